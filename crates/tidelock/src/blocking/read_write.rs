//! The read-write lock of the blocking API.

use std::sync::Arc;

use crate::blocking::{Client, Lock, LockGuard, by_thread, on_this_thread};
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::options::AcquireOptions;

/// Three [`Lock`]s of one name; see [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Examples
/// ```
/// use tidelock::ErrorKind;
///
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let prices = client.read_write_lock("prices");
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
    sides: crate::ReadWriteLock,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A read-write lock; see [`Client::read_write_lock`](crate::Client::read_write_lock). Re-entrancy is by thread: a
    /// thread that holds the write side may also read; a thread that holds the read side and asks for the write side
    /// gets an error.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let reader = prices.read().acquire()?;
    /// reader.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock {
            sides: self.client.read_write_lock(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl ReadWriteLock {
    /// The read side: its guards exclude writers, not each other.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.read().acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn read(&self) -> Lock {
        self.side(self.sides.read())
    }

    /// The write side: its guard excludes all others.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.write().acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn write(&self) -> Lock {
        self.side(self.sides.write())
    }

    /// The upgradeable read: plain readers may join its guard, and [`upgrade`](Self::upgrade) turns it into a writer; see
    /// [`ReadWriteLock::upgradeable_read`](crate::ReadWriteLock::upgradeable_read).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.upgradeable_read().acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn upgradeable_read(&self) -> Lock {
        self.side(self.sides.upgradeable_read())
    }

    /// Turns an upgradeable reader into a writer; see [`ReadWriteLock::upgrade`](crate::ReadWriteLock::upgrade).
    ///
    /// # Errors
    /// As [`ReadWriteLock::upgrade`](crate::ReadWriteLock::upgrade), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let reader = prices.upgradeable_read().acquire()?;
    /// let writer = prices.upgrade(&reader)?;
    /// let again = prices.write().acquire()?; // the same thread, so the same hold
    /// assert_eq!(again.owner_id(), writer.owner_id());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn upgrade<G: LockGuard>(&self, reader: &G) -> Result<G> {
        self.upgrade_with(reader, AcquireOptions::new())
    }

    /// Turns an upgradeable reader into a writer; see
    /// [`ReadWriteLock::upgrade_with`](crate::ReadWriteLock::upgrade_with). The thread is the owner unless `options` name one.
    ///
    /// # Errors
    /// As [`ReadWriteLock::upgrade_with`](crate::ReadWriteLock::upgrade_with), and [`Runtime`](ErrorKind::Runtime) in
    /// async code. After any other error than
    /// [`Lost`](ErrorKind::Lost) the upgradeable guard is as it was before.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let reader = prices.upgradeable_read().acquire()?;
    /// let soon = AcquireOptions::new().wait(Duration::from_secs(1));
    /// prices.upgrade_with(&reader, soon)?.release()?;
    /// assert!(reader.is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn upgrade_with<G: LockGuard>(&self, reader: &G, options: AcquireOptions) -> Result<G> {
        let options = by_thread(&self.blocker, options);
        let place = std::panic::Location::caller();
        let upgrade = self.sides.upgrade_guard(reader.as_async(), options, place);
        Ok(on_this_thread(&self.blocker, self.blocker.run(upgrade)??))
    }

    /// Turns a writer into a reader; see [`ReadWriteLock::downgrade`](crate::ReadWriteLock::downgrade).
    ///
    /// # Errors
    /// As [`ReadWriteLock::downgrade`](crate::ReadWriteLock::downgrade), and [`Runtime`](ErrorKind::Runtime) in async
    /// code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let writer = prices.write().acquire()?;
    /// let reader = prices.downgrade(writer)?;
    /// let again = prices.read().acquire()?; // the same thread, so the same hold
    /// assert_eq!(again.owner_id(), reader.owner_id());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn downgrade<G: LockGuard>(&self, writer: G) -> Result<G> {
        self.downgrade_with(writer, AcquireOptions::new())
    }

    /// Turns a writer into a reader; see [`ReadWriteLock::downgrade_with`](crate::ReadWriteLock::downgrade_with). The
    /// thread is the owner unless `options` name one.
    ///
    /// # Errors
    /// As [`ReadWriteLock::downgrade_with`](crate::ReadWriteLock::downgrade_with), and [`Runtime`](ErrorKind::Runtime)
    /// in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let prices = client.read_write_lock("prices");
    /// let writer = prices.write().acquire()?;
    /// let minute = AcquireOptions::new().expires_after(Duration::from_secs(60));
    /// let reader = prices.downgrade_with(writer, minute)?;
    /// assert!(reader.valid_for() > Duration::from_secs(50));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn downgrade_with<G: LockGuard>(&self, writer: G, options: AcquireOptions) -> Result<G> {
        let options = by_thread(&self.blocker, options);
        let downgrade = self.sides.downgrade_with(writer.into_async(), options);
        Ok(on_this_thread(&self.blocker, self.blocker.run(downgrade)??))
    }

    fn side(&self, lock: crate::Lock) -> Lock {
        Lock {
            lock,
            blocker: Arc::clone(&self.blocker),
        }
    }

    /// The name of both sides, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.read_write_lock("prices").name(), "prices");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.sides.name()
    }
}
