//! Semaphore: a number of permits of one name, each with a lease.

use std::fmt;
use std::sync::Arc;

use crate::engine::ClientInner;
use crate::engine::acquire::context::LockContext;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::lock::{Acquire, Lock, TryAcquire};
use crate::permits::Permits;
use crate::snapshot::Snapshot;
use crate::store::{LockKind, PermitChange};

/// A semaphore: all its holders together have at most as many permits as it has. Cheap to make and to clone, and
/// without state. [`Client::semaphore`](crate::Client::semaphore) makes it.
///
/// *Permits*: the first process that calls [`set_permits_if_new`](Self::set_permits_if_new) decides how many there are.
/// Until then an acquisition waits. The number can be changed later, also below the number that is held: those keep
/// their permits, and nobody gets one until enough are given back.
///
/// *Leases*: permits are held as a lock is. Their lease is renewed while the [`Permits`] guard lives, and a process that
/// dies gives them back when the lease ends. A release that is repeated, or comes after that end or after a forced
/// release, gives back nothing twice: there is never one permit too many.
///
/// *Order*: none is promised on Redis and in `memory:`. Each release wakes the waiters, and each of them asks the store. A
/// waiter for many permits may wait as long as others take them one by one. On PostgreSQL, etcd and `sqlite:` waiters get
/// their permits in the order in which they came; one that asks for more than the semaphore has keeps nobody out.
///
/// *Re-entry*: none. Each acquisition takes permits of its own, so [`AcquireOptions::owner`](crate::AcquireOptions::owner)
/// is refused with [`InvalidOptions`](ErrorKind::InvalidOptions), and a task that waits for more than the others leave
/// waits for itself.
///
/// On Redis it is Redisson's `RPermitExpirableSemaphore`. Redisson's `RSemaphore` counts in the same key, so the two may
/// share a name; its permits have no holder, and a Java process that dies with one loses it. A lock of the same name
/// fails with [`WrongType`](ErrorKind::WrongType), and so does a semaphore of the name of a lock. PostgreSQL, etcd,
/// ZooKeeper, `sqlite:` and `memory:` have semaphores too. On other stores the operations fail with
/// [`Unsupported`](ErrorKind::Unsupported) before any traffic.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let render = client.semaphore("render");
/// render.set_permits_if_new(3).await?; // only the first call of all processes has an effect
/// let one = render.acquire().await?;
/// let two = render.permits(2).acquire().await?; // both, or none
/// assert!(render.try_acquire().await?.is_none());
/// one.release().await?;
/// assert!(render.try_acquire().await?.is_some());
/// # drop(two);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    one: Lock<Permits>,
}

impl Semaphore {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        Self {
            one: Lock::of_permits(core, name),
        }
    }

    /// So many permits at once, all or none. The result has every method of a [`Lock`]: wait limits, options,
    /// cancelling. Its operations fail with [`InvalidOptions`](ErrorKind::InvalidOptions) unless `count` is 1 to 1000.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// let three = render.permits(3).acquire().await?;
    /// let error = render.permits(3).acquire_timeout(Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # drop(three);
    /// # Ok(()) }
    /// ```
    pub fn permits(&self, count: u16) -> Lock<Permits> {
        let mut permits = self.one.clone();
        permits.kind = LockKind::Permits(count);
        permits
    }

    /// Waits for one permit. See [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no permit taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// let permit = render.acquire().await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire<Permits> {
        self.one.acquire()
    }

    /// Takes one permit if there is one. `None`: there is not. See [`Lock::try_acquire`].
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no permit taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(client.semaphore("render").try_acquire().await?.is_none()); // it has no permits yet
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> TryAcquire<Permits> {
        self.one.try_acquire()
    }

    /// Gives a new semaphore this many permits. `false`: it has a number already, which stays. Every process may call
    /// this at its start. Redisson's `trySetPermits`.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported), [`Closed`](ErrorKind::Closed),
    /// and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the reply was lost: repeat the call.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the number may or may not have been set. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// assert!(render.set_permits_if_new(5).await?);
    /// assert!(!render.set_permits_if_new(8).await?); // it has 5
    /// # Ok(()) }
    /// ```
    pub async fn set_permits_if_new(&self, total: u32) -> Result<bool> {
        self.change(PermitChange::SetIfNew(total)).await
    }

    /// Changes the number of permits, those that are held included. Holders keep theirs, also if they are more than
    /// `total`. Redisson's `setPermits`.
    ///
    /// # Errors
    /// As [`set_permits_if_new`](Self::set_permits_if_new).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the number may or may not have been set. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits(5).await?;
    /// let permit = render.acquire().await?;
    /// render.set_permits(1).await?;
    /// assert!(permit.is_held());
    /// assert!(render.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn set_permits(&self, total: u32) -> Result<()> {
        self.change(PermitChange::Set(total)).await.map(drop)
    }

    /// Adds permits, or removes them if `more` is negative. Redisson's `addPermits`.
    ///
    /// # Errors
    /// As [`set_permits_if_new`](Self::set_permits_if_new). After [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) do not
    /// repeat the call, because it would count twice: read the number with [`inspect`](Self::inspect) and use
    /// [`set_permits`](Self::set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the permits may or may not have been added.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits(5).await?;
    /// render.add_permits(-2).await?;
    /// assert_eq!(render.inspect().await?.permits.map(|count| count.total), Some(3));
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, more: i32) -> Result<()> {
        self.change(PermitChange::Add(more)).await.map(drop)
    }

    /// The state of this semaphore in the store: its permits, and each acquisition that holds some. For operators and
    /// logs: it may have changed by the time you read it. See [`Lock::inspect`].
    ///
    /// # Errors
    /// As [`Lock::inspect`].
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// let two = render.permits(2).acquire().await?;
    /// let count = render.inspect().await?.permits.expect("it has permits");
    /// assert_eq!((count.available, count.total), (3, 5));
    /// # drop(two);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Snapshot> {
        self.one.inspect().await
    }

    /// Takes all permits back, no matter which owners hold them, and wakes the waiters. The number of permits stays. For
    /// operators: each holder learns of it at its next renewal at the latest. `false`: no permit was held. See
    /// [`Lock::force_release`].
    ///
    /// # Errors
    /// As [`Lock::force_release`].
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the permits may or may not have been taken back.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(1).await?;
    /// let lost = render.acquire().await?;
    /// assert!(render.force_release().await?);
    /// let permit = render.acquire().await?;
    /// drop(lost); // gives back nothing
    /// assert!(render.try_acquire().await?.is_none());
    /// # drop(permit);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool> {
        self.one.force_release().await
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.semaphore("render").name(), "shop:render");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.one.name()
    }

    async fn change(&self, change: PermitChange) -> Result<bool> {
        let name = self.one.checked_name()?;
        let LockContext { core, store, .. } = &*self.one.context;
        let asked = async {
            let changed = async {
                core.refuse_if_closed()?;
                store.permit_counter()?.change(&name, change).await
            };
            let changed = changed.await;
            store.heard(&name, &changed);
            changed
        };
        let changed = core.steward.answered(asked).await;
        changed.map_err(|error| error.on_lock(&name))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
