//! The read-write lock of the blocking API.

use super::Lock;

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
    pub(super) read: Lock,
    pub(super) write: Lock,
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
