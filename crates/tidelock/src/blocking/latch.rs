//! The count-down latch of the blocking API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::Client;
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A count-down latch, for threads; see [`Latch`](crate::Latch).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let imported = client.latch("imported");
/// imported.set_count_if_new(2)?; // only the first call of all processes has an effect
/// let worker = imported.clone();
/// std::thread::spawn(move || {
///     worker.count_down()?;
///     worker.count_down()
/// });
/// imported.wait()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Latch {
    latch: crate::Latch,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A count-down latch; see [`Client::latch`](crate::Client::latch). Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.latch("imported").wait()?; // it never had a count
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn latch(&self, name: &str) -> Latch {
        Latch {
            latch: self.client.latch(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl Latch {
    /// Gives an open latch this count; see [`Latch::set_count_if_new`](crate::Latch::set_count_if_new).
    ///
    /// # Errors
    /// As [`Latch::set_count_if_new`](crate::Latch::set_count_if_new), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.latch("imported").set_count_if_new(3)?);
    /// assert!(!client.latch("imported").set_count_if_new(5)?); // it is at 3
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn set_count_if_new(&self, count: u32) -> Result<bool> {
        self.blocker.run(self.latch.set_count_if_new(count))?
    }

    /// The count; see [`Latch::count`](crate::Latch::count).
    ///
    /// # Errors
    /// As [`Latch::count`](crate::Latch::count), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.latch("imported").count()?, 0);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn count(&self) -> Result<u64> {
        self.blocker.run(self.latch.count())?
    }

    /// Counts down by one; see [`Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    /// As [`Latch::count_down`](crate::Latch::count_down), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(2)?;
    /// assert_eq!(imported.count_down()?, 1);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn count_down(&self) -> Result<u64> {
        self.blocker.run(self.latch.count_down())?
    }

    /// Waits until the latch is open; see [`Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    /// As [`Latch::wait`](crate::Latch::wait), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.latch("imported").wait()?; // it never had a count
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn wait(&self) -> Result<()> {
        self.blocker.run(self.latch.wait())?
    }

    /// As [`wait`](Self::wait), for at most that time; see [`Latch::wait_timeout`](crate::Latch::wait_timeout).
    ///
    /// # Errors
    /// As [`Latch::wait_timeout`](crate::Latch::wait_timeout), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(1)?;
    /// assert!(imported.wait_timeout(Duration::from_millis(5)).unwrap_err().is_timeout());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn wait_timeout(&self, limit: Duration) -> Result<()> {
        self.blocker.run(self.latch.wait_timeout(limit))?
    }

    /// Opens the latch regardless of its count; see [`Latch::delete`](crate::Latch::delete).
    ///
    /// # Errors
    /// As [`Latch::delete`](crate::Latch::delete), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(!client.latch("imported").delete()?); // it was open
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn delete(&self) -> Result<bool> {
        self.blocker.run(self.latch.delete())?
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.latch("imported").name(), "imported");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.latch.name()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.latch.fmt(f)
    }
}
