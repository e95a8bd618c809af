//! Counting semaphore: permits without holders.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::count::{Count, Goal};
use crate::engine::ClientInner;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::{CountChange, CountChanged, CountKind, SemaphoreChange};

/// A counting semaphore: a number of permits that anybody may take from and give back to. Nobody holds a permit: one task
/// may take it and another give it back. Cheap to make and to clone. [`Client::counting_semaphore`](crate::Client::counting_semaphore)
/// makes it.
///
/// *No leases*: a process that dies with permits has taken them for good, until somebody calls
/// [`release`](Self::release) or [`add_permits`](Self::add_permits) for it. A [`Semaphore`](crate::Semaphore) has holders
/// and leases, and gets the permits of the dead back. Use that one, unless a Java service uses `RSemaphore`, or permits
/// pass from one process to another.
///
/// *Exactly once*: each call counts once, also if replies are lost and the request is repeated or arrives late. An
/// acquisition that is cancelled, or ends with an error, has taken nothing: if its request may have taken effect, the
/// client gives the permits back in the background. They leak only if the process ends before that, or the store does not
/// answer for a minute (or twice the client's lease, if that is longer), or for a [response
/// timeout](crate::ClientBuilder::response_timeout) when the client closes. So do those of a process that is frozen for five
/// minutes before it hears the reply: by then the store has forgotten the request. A call that is no acquisition fails with
/// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) then.
///
/// *Order*: none is promised. Each release wakes the waiters, and each of them asks the store. A waiter for many permits
/// may wait as long as others take them one by one. Waiters also ask every third of the client's lease, so a lost message
/// only delays them.
///
/// *Crashes of the store*: a store that loses its data has lost the semaphore with its permits. A failover to a replica
/// that lags can undo an acquisition, so that there is one permit too many, or a release. Nobody is told.
///
/// On Redis it is Redisson's `RSemaphore`. A [`Semaphore`](crate::Semaphore) of the same name counts in the same key: the
/// two may share a name, and each sees what the other leaves. A lock of the same name fails with
/// [`WrongType`](ErrorKind::WrongType), and so does a semaphore of the name of a lock. A [`Latch`](crate::Latch) is a
/// number to Redis too: do not use one name for both. `memory:` has counting semaphores too. On other stores the
/// operations fail with [`Unsupported`](ErrorKind::Unsupported) before any traffic.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let slots = client.counting_semaphore("slots");
/// slots.set_permits_if_new(3).await?; // only the first call of all processes has an effect
/// slots.acquire(2).await?; // both, or none
/// assert!(!slots.try_acquire(2).await?);
/// slots.release(2).await?; // any process may do that
/// assert_eq!(slots.available().await?, 3);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CountingSemaphore {
    count: Count,
}

impl CountingSemaphore {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        Self {
            count: Count::new(core, CountKind::Semaphore, name),
        }
    }

    /// Gives a new semaphore this many permits. `false`: it has a number already, which stays. Every process may call this at
    /// its start. Redisson's `trySetPermits`.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported), [`Closed`](ErrorKind::Closed),
    /// and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store did not answer for a whole lease of the client: repeat the
    /// call.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the number may or may not have been set. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// assert!(slots.set_permits_if_new(3).await?);
    /// assert!(!slots.set_permits_if_new(8).await?); // it has 3
    /// # Ok(()) }
    /// ```
    pub async fn set_permits_if_new(&self, total: u32) -> Result<bool> {
        let changed = self.change(SemaphoreChange::SetIfNew(total)).await?;
        Ok(changed.changed)
    }

    /// Adds permits, or removes them if `more` is negative, and returns how many are available after that: fewer than none, if
    /// more were removed than were available. Redisson's `addPermits`.
    ///
    /// # Errors
    /// As [`set_permits_if_new`](Self::set_permits_if_new). After [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) do not repeat
    /// the call, because it could count twice.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the change may or may not have been made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// assert_eq!(slots.add_permits(3).await?, 3);
    /// assert_eq!(slots.add_permits(-1).await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, more: i32) -> Result<i64> {
        let changed = self.change(SemaphoreChange::Add(more)).await?;
        Ok(changed.count)
    }

    /// How many permits are available; see [`add_permits`](Self::add_permits) for a negative number. For operators and logs: it
    /// may have changed by the time you read it.
    ///
    /// # Errors
    /// As [`set_permits_if_new`](Self::set_permits_if_new), without `OutcomeUnknown`.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// assert_eq!(slots.available().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available(&self) -> Result<i64> {
        self.count.read().await
    }

    /// Takes permits if there are enough, all or none. `false`: there are too few, or the semaphore has no number yet.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if `permits` is 0. Otherwise as
    /// [`set_permits_if_new`](Self::set_permits_if_new), without `OutcomeUnknown`. After an error no permit is taken.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no permit taken: the client gives back in the background what its request took.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(1).await?;
    /// assert!(slots.try_acquire(1).await?);
    /// assert!(!slots.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self, permits: u32) -> Result<bool> {
        self.check(permits)?;
        self.count.try_take(permits).await
    }

    /// Waits for permits, and takes all of them or none.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if `permits` is 0. [`Unavailable`](ErrorKind::Unavailable) if the store
    /// could not be reached for a whole lease of the client. [`Closed`](ErrorKind::Closed) also if the client closes meanwhile.
    /// Otherwise as [`try_acquire`](Self::try_acquire). After an error no permit is taken.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves neither a waiter nor a permit taken; see [`try_acquire`](Self::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3).await?;
    /// slots.acquire(2).await?;
    /// assert_eq!(slots.available().await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self, permits: u32) -> Result<()> {
        self.check(permits)?;
        self.count.wait(Goal::Permits(permits), None).await
    }

    /// As [`acquire`](Self::acquire), for at most that time. With zero it asks once. The store may need longer to answer.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`TimedOut`](ErrorKind::TimedOut) if there were too few permits by then.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// use std::time::Duration;
    ///
    /// let error = slots.acquire_timeout(1, Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout()); // it has no permits yet
    /// # Ok(()) }
    /// ```
    pub async fn acquire_timeout(&self, permits: u32, limit: Duration) -> Result<()> {
        self.check(permits)?;
        self.count.wait(Goal::Permits(permits), Some(limit)).await
    }

    /// Gives permits back, wakes the waiters, and returns how many are available after that. Nobody checks who took them: a call
    /// too many makes a permit too many. A semaphore without a number gets one. Redisson's `release`.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if `permits` is 0. Otherwise as [`add_permits`](Self::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the permits may or may not have been given back. To be sure, spawn a task
    /// that releases.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3).await?;
    /// slots.acquire(2).await?;
    /// assert_eq!(slots.release(2).await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, permits: u32) -> Result<i64> {
        self.check(permits)?;
        let changed = self.change(SemaphoreChange::GiveBack(permits)).await?;
        Ok(changed.count)
    }

    /// Takes all permits that are available, and returns how many they were. Redisson's `drainPermits`.
    ///
    /// # Errors
    /// As [`add_permits`](Self::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the permits may or may not have been taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3).await?;
    /// assert_eq!(slots.drain().await?, 3);
    /// assert_eq!(slots.drain().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn drain(&self) -> Result<u64> {
        let drained = self.change(SemaphoreChange::Drain).await?;
        // Unchanged: none is available, or fewer than none.
        Ok(u64::try_from(drained.count).unwrap_or(0))
    }

    /// The state of this semaphore in the store: its permits and how many wait. It has no holders to show. For operators and
    /// logs: it may have changed by the time you read it. See [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3).await?;
    /// let permits = slots.inspect().await?.permits.expect("it has permits");
    /// assert_eq!(permits.available, 3);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Snapshot> {
        self.count.lock().inspect().await
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.counting_semaphore("slots").name(), "shop:slots");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.count.name()
    }

    async fn change(&self, change: SemaphoreChange) -> Result<CountChanged> {
        self.count.change(CountChange::Semaphore(change)).await
    }

    fn check(&self, permits: u32) -> Result<()> {
        if permits > 0 {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidOptions).on_lock(self.name());
        Err(error.because("0 permits were asked for or given back; use 1 or more"))
    }
}

impl fmt::Debug for CountingSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingSemaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
