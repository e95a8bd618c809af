//! The counting semaphore of the blocking API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::Client;
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::snapshot::Snapshot;

/// A counting semaphore, for threads; see [`CountingSemaphore`](crate::CountingSemaphore). A process that dies with permits
/// has taken them for good.
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let slots = client.counting_semaphore("slots");
/// slots.set_permits_if_new(3)?; // only the first call of all processes has an effect
/// slots.acquire(2)?; // both, or none
/// assert!(!slots.try_acquire(2)?);
/// slots.release(2)?; // any process may do that
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct CountingSemaphore {
    semaphore: crate::CountingSemaphore,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A counting semaphore; see [`Client::counting_semaphore`](crate::Client::counting_semaphore). Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(!client.counting_semaphore("slots").try_acquire(1)?); // it has no permits yet
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn counting_semaphore(&self, name: &str) -> CountingSemaphore {
        CountingSemaphore {
            semaphore: self.client.counting_semaphore(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl CountingSemaphore {
    /// Gives a new semaphore this many permits; see
    /// [`CountingSemaphore::set_permits_if_new`](crate::CountingSemaphore::set_permits_if_new).
    ///
    /// # Errors
    /// As [`CountingSemaphore::set_permits_if_new`](crate::CountingSemaphore::set_permits_if_new), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// assert!(slots.set_permits_if_new(3)?);
    /// assert!(!slots.set_permits_if_new(8)?); // it has 3
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn set_permits_if_new(&self, total: u32) -> Result<bool> {
        self.blocker.run(self.semaphore.set_permits_if_new(total))?
    }

    /// Adds or removes permits; see
    /// [`CountingSemaphore::add_permits`](crate::CountingSemaphore::add_permits).
    ///
    /// # Errors
    /// As [`CountingSemaphore::add_permits`](crate::CountingSemaphore::add_permits), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// assert_eq!(slots.add_permits(3)?, 3);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn add_permits(&self, more: i32) -> Result<i64> {
        self.blocker.run(self.semaphore.add_permits(more))?
    }

    /// How many permits are available; see
    /// [`CountingSemaphore::available`](crate::CountingSemaphore::available).
    ///
    /// # Errors
    /// As [`CountingSemaphore::available`](crate::CountingSemaphore::available), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// assert_eq!(slots.available()?, 0);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn available(&self) -> Result<i64> {
        self.blocker.run(self.semaphore.available())?
    }

    /// Takes permits if there are enough, all or none; see
    /// [`CountingSemaphore::try_acquire`](crate::CountingSemaphore::try_acquire).
    ///
    /// # Errors
    /// As [`CountingSemaphore::try_acquire`](crate::CountingSemaphore::try_acquire), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(1)?;
    /// assert!(slots.try_acquire(1)?);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn try_acquire(&self, permits: u32) -> Result<bool> {
        self.blocker.run(self.semaphore.try_acquire(permits))?
    }

    /// Waits for permits, and takes all of them or none; see
    /// [`CountingSemaphore::acquire`](crate::CountingSemaphore::acquire).
    ///
    /// # Errors
    /// As [`CountingSemaphore::acquire`](crate::CountingSemaphore::acquire), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3)?;
    /// slots.acquire(2)?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn acquire(&self, permits: u32) -> Result<()> {
        self.blocker.run(self.semaphore.acquire(permits))?
    }

    /// As [`acquire`](Self::acquire), for at most that time; see
    /// [`CountingSemaphore::acquire_timeout`](crate::CountingSemaphore::acquire_timeout).
    ///
    /// # Errors
    /// As [`CountingSemaphore::acquire_timeout`](crate::CountingSemaphore::acquire_timeout), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// use std::time::Duration;
    ///
    /// let error = slots.acquire_timeout(1, Duration::from_millis(5)).unwrap_err();
    /// assert!(error.is_timeout()); // it has no permits yet
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn acquire_timeout(&self, permits: u32, limit: Duration) -> Result<()> {
        self.blocker
            .run(self.semaphore.acquire_timeout(permits, limit))?
    }

    /// Gives permits back, and wakes the waiters; see
    /// [`CountingSemaphore::release`](crate::CountingSemaphore::release).
    ///
    /// # Errors
    /// As [`CountingSemaphore::release`](crate::CountingSemaphore::release), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3)?;
    /// slots.acquire(2)?;
    /// assert_eq!(slots.release(2)?, 3);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn release(&self, permits: u32) -> Result<i64> {
        self.blocker.run(self.semaphore.release(permits))?
    }

    /// Takes all permits that are available; see
    /// [`CountingSemaphore::drain`](crate::CountingSemaphore::drain).
    ///
    /// # Errors
    /// As [`CountingSemaphore::drain`](crate::CountingSemaphore::drain), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3)?;
    /// assert_eq!(slots.drain()?, 3);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn drain(&self) -> Result<u64> {
        self.blocker.run(self.semaphore.drain())?
    }

    /// The state of this semaphore in the store; see
    /// [`CountingSemaphore::inspect`](crate::CountingSemaphore::inspect).
    ///
    /// # Errors
    /// As [`CountingSemaphore::inspect`](crate::CountingSemaphore::inspect), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let slots = client.counting_semaphore("slots");
    /// assert_eq!(slots.inspect()?.permits, None); // it has no number yet
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn inspect(&self) -> Result<Snapshot> {
        self.blocker.run(self.semaphore.inspect())?
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.counting_semaphore("slots").name(), "slots");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }
}

impl fmt::Debug for CountingSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.semaphore.fmt(f)
    }
}
