//! The read-write lock of the blocking API.

use super::Lock;

/// Two [`Lock`]s of one name; see [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Examples
/// ```
/// # fn main() -> tidelock::Result<()> {
/// # let client = tidelock::blocking::Client::connect("memory:")?;
/// use tidelock::ErrorKind;
///
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
/// # drop(reader);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ReadWriteLock {
    pub(super) read: Lock,
    pub(super) write: Lock,
}

impl ReadWriteLock {
    /// The read side: its guards exclude writers, not each other.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices")?;
    /// let guard = prices.read().acquire()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The write side: its guard excludes all others.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices")?;
    /// let guard = prices.write().acquire()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self) -> Lock {
        self.write.clone()
    }

    /// The name of both sides, prefix included.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.read_write_lock("prices")?.name(), "prices");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.write.name()
    }
}
