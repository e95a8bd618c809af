//! The read-write lock of the blocking API.

use crate::blocking::{Client, Lock};
use crate::error::Result;

/// Two [`Lock`]s of one name; see [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Examples
/// ```
/// use tidelock::ErrorKind;
///
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let prices = client.read_write_lock("prices")?;
/// let writer = prices.write().acquire()?;
/// let reader = prices.read().acquire()?; // the same thread
/// drop(writer); // still exclusive, by `reader`
/// assert!(prices.read().inspect()?.is_locked());
/// reader.release()?;
///
/// let reader = prices.read().acquire()?;
/// let error = prices.write().acquire().unwrap_err(); // it would wait for itself
/// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl Client {
    /// A read-write lock; see [`Client::read_write_lock`](crate::Client::read_write_lock). Re-entrancy is by thread: a
    /// thread that holds the write side may also read; a thread that holds the read side and asks for the write side
    /// gets an error.
    ///
    /// # Errors
    /// As [`Client::read_write_lock`](crate::Client::read_write_lock).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices")?;
    /// let reader = prices.read().acquire()?;
    /// reader.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn read_write_lock(&self, name: &str) -> Result<ReadWriteLock> {
        let sides = self.client.read_write_lock(name)?;
        Ok(ReadWriteLock {
            read: self.locked(sides.read()),
            write: self.locked(sides.write()),
        })
    }
}

impl ReadWriteLock {
    /// The read side: its guards exclude writers, not each other.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices")?;
    /// let guard = prices.read().acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The write side: its guard excludes all others.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices")?;
    /// let guard = prices.write().acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn write(&self) -> Lock {
        self.write.clone()
    }

    /// The name of both sides, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.read_write_lock("prices")?.name(), "prices");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.write.name()
    }
}
