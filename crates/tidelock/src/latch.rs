//! Count-down latch: waiters go on when a number has come to zero.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::count::{Count, Goal};
use crate::engine::ClientInner;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{CountChange, CountChanged, CountKind, LatchChange};

/// A count-down latch: [`wait`](Self::wait) returns when it has been counted down to zero. Cheap to make and to clone, and
/// without state. [`Client::latch`](crate::Client::latch) makes it.
///
/// *Open and closed*: a latch without a count is open, and nobody waits for it. So a latch must get its count with
/// [`set_count_if_new`](Self::set_count_if_new) before others wait. After the last
/// [`count_down`](Self::count_down) the store has forgotten it, and the name can be used for a new latch. A waiter that has
/// not read the zero by then waits for the new one. So use a new name for each round, or set the new count only when all
/// waiters have gone on.
///
/// *Exactly once*: each call of [`count_down`](Self::count_down) counts once, also if replies are lost and the request is
/// repeated or arrives late. Only if the store does not answer for a whole lease of the client, or the process is frozen for five
/// minutes before it hears the reply, the call fails with [`OutcomeUnknown`](ErrorKind::OutcomeUnknown).
///
/// *Crashes*: a count has no lease and no owner. If a process dies before it counts down, nobody else does it: the others
/// wait until their time limit, or until an operator calls [`delete`](Self::delete). Wait with
/// [`wait_timeout`](Self::wait_timeout). A store that loses its data opens all its latches. A failover to a replica
/// that lags can undo a count-down.
///
/// *Waiting is quiet*: waiters sleep until a message comes. They read the count again every third of the client's lease,
/// and after a reconnect, so a lost message or a latch that was deleted by hand only delays them.
///
/// On Redis it is Redisson's `RCountDownLatch`. Locks and held semaphores of the same name fail with
/// [`WrongType`](ErrorKind::WrongType), and so does a latch of their name. A semaphore none of whose permits is held is
/// only a number to Redis, as a latch is: do not use one name for both. `memory:` has latches too. On other stores the
/// operations fail with [`Unsupported`](ErrorKind::Unsupported) before any traffic.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let imported = client.latch("imported");
/// imported.set_count_if_new(3).await?; // only the first call of all processes has an effect
/// let worker = imported.clone();
/// tokio::spawn(async move {
///     for _file in 0..3 {
///         worker.count_down().await?;
///     }
///     Ok::<_, tidelock::Error>(())
/// });
/// imported.wait().await?; // all three files are imported
/// assert_eq!(imported.count().await?, 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Latch {
    count: Count,
}

impl Latch {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        Self {
            count: Count::new(core, CountKind::Latch, name),
        }
    }

    /// Gives an open latch this count. `false`: it has a count already, which stays. Every process may call this at its
    /// start, as long as no process can have counted down to zero by then: otherwise a late call closes the latch again.
    /// Redisson's `trySetCount`.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if `count` is 0, because such a latch is open. Also
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported), [`Closed`](ErrorKind::Closed),
    /// and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store did not answer for a whole lease of the client.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the count may or may not have been set.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let imported = client.latch("imported");
    /// assert!(imported.set_count_if_new(3).await?);
    /// assert!(!imported.set_count_if_new(5).await?); // it is at 3
    /// # Ok(()) }
    /// ```
    pub async fn set_count_if_new(&self, count: u32) -> Result<bool> {
        if count == 0 {
            let error = Error::new(ErrorKind::InvalidOptions);
            return Err(error
                .on_lock(self.name())
                .because("a latch with the count 0 is open; use 1 or more, or no latch"));
        }
        let changed = self.change(LatchChange::SetIfNew(count)).await?;
        Ok(changed.changed)
    }

    /// The count. 0: the latch is open, or never had a count. For operators and logs: it may have changed by the time you
    /// read it.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported), [`Closed`](ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert_eq!(client.latch("imported").count().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count(&self) -> Result<u64> {
        let count = self.count.read().await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Counts down by one, and returns the count after that. At zero the latch is open and its waiters go on. An open
    /// latch stays open. One call counts once, also if replies are lost.
    ///
    /// # Errors
    /// As [`set_count_if_new`](Self::set_count_if_new), without `InvalidOptions`. After
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) do not repeat the call, because it could count twice.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the latch may or may not have been counted down.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(2).await?;
    /// assert_eq!(imported.count_down().await?, 1);
    /// assert_eq!(imported.count_down().await?, 0);
    /// assert_eq!(imported.count_down().await?, 0); // it is open
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<u64> {
        let changed = self.change(LatchChange::CountDown).await?;
        Ok(u64::try_from(changed.count).unwrap_or(0))
    }

    /// Waits until the latch is open. Returns at once if it has no count. Redisson's `await`.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the store could not be reached for a whole lease of the client, and all
    /// others of [`count`](Self::count). [`Closed`](ErrorKind::Closed) also if the client closes meanwhile.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no waiter behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// client.latch("imported").wait().await?; // it never had a count
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self) -> Result<()> {
        self.count.wait(Goal::Open, None).await
    }

    /// As [`wait`](Self::wait), for at most that time. With zero it reads the count once. The store may need longer to answer.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and [`TimedOut`](ErrorKind::TimedOut) if the latch was not open by then.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no waiter behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(1).await?;
    /// let error = imported.wait_timeout(Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # Ok(()) }
    /// ```
    pub async fn wait_timeout(&self, limit: Duration) -> Result<()> {
        self.count.wait(Goal::Open, Some(limit)).await
    }

    /// Opens the latch regardless of its count. All its waiters go on, also those of Redisson. `false`: it was open. For
    /// operators, and for the end of a job that failed.
    ///
    /// # Errors
    /// As [`set_count_if_new`](Self::set_count_if_new), without `InvalidOptions`.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the latch may or may not have been opened. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(3).await?;
    /// assert!(imported.delete().await?);
    /// imported.wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool> {
        let changed = self.change(LatchChange::Delete).await?;
        Ok(changed.changed)
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.latch("imported").name(), "shop:imported");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.count.name()
    }

    async fn change(&self, change: LatchChange) -> Result<CountChanged> {
        self.count.change(CountChange::Latch(change)).await
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
