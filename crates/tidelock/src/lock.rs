//! A lock: an immutable name, and the operations on it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::ClientInner;
use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::acquire::context::{LockContext, LockPart};
use crate::engine::acquire::request::AcquireRequest;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::{FencedGuard, LockGuard};
use crate::guard::Guard;
use crate::options::AcquireOptions;
use crate::permits::Permits;
use crate::snapshot::Snapshot;
use crate::store::{LockKind, Name};

/// The name of a lock on a store. Cheap to make and to clone, and without state: the [`Guard`] has the hold.
///
/// *Exclusion*: every other guard of the same name on the same store, in this process, in others, and in Java processes
/// with Redisson. Two acquisitions of one task exclude each other too, unless one [`Owner`](crate::Owner) makes both.
/// *Cost*: on Redis, one round trip to acquire and one to release; a waiter sleeps until it is woken. *Limits*: see the
/// [guarantees](https://docs.rs/tidelock). Above all, a holder may be frozen past its lease. It is told, but cannot be
/// stopped: use a [fenced lock](Lock::fenced) for work that must never happen twice.
///
/// `G` is the guard that an acquisition gives: a [`Guard`], or for a [`FencedLock`] a guard with a token.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let stock = client.lock("stock:42");
/// let held = stock.acquire().await?;
/// assert!(stock.try_acquire().await?.is_none()); // also for this task: it is held
/// held.release().await?;
/// # Ok(()) }
/// ```
pub struct Lock<G = Guard> {
    pub(crate) context: Arc<LockContext>,
    pub(crate) kind: LockKind,
    name: Result<Name, LockRefusal>,
    /// A function: a lock has no guard, so it is `Send` and `Sync` whatever the guard is.
    gives: PhantomData<fn() -> G>,
}

/// A [`Lock`] whose guards have a fencing token: [`Lock::fenced`] makes it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Client, FencedLock};
///
/// let client = Client::connect("memory:").await?;
/// let ledger: FencedLock = client.lock("ledger").fenced();
/// let guard = ledger.acquire().await?;
/// assert_eq!(guard.token().get(), 1);
/// # Ok(()) }
/// ```
pub type FencedLock = Lock<FencedGuard>;

/// Why a lock cannot be used. `lock()` cannot fail, so the operations of the lock return this error.
#[derive(Debug, Clone)]
enum LockRefusal {
    /// No store could keep the name.
    Name(Arc<str>),
    /// The store has no plain locks.
    Plain(Arc<str>),
}

impl<G> Clone for Lock<G> {
    fn clone(&self) -> Self {
        Self {
            context: self.context.copy(),
            kind: self.kind,
            name: self.name.clone(),
            gives: PhantomData,
        }
    }
}

impl Lock {
    pub(crate) fn new(core: &Arc<ClientInner>, kind: LockKind, name: &str) -> Self {
        let name = full_name(core, name);
        Self {
            context: LockContext::new(Arc::clone(core), core.home.clone()),
            kind,
            name,
            gives: PhantomData,
        }
    }

    /// A lock that the store keeps as one plain key.
    pub(crate) fn plain(core: &Arc<ClientInner>, name: &str) -> Self {
        let mut name = full_name(core, name);
        if let (None, Ok(good)) = (&core.plain, &name) {
            name = Err(LockRefusal::Plain(good.as_str().into()));
        }
        let store = core.plain.as_ref().unwrap_or(&core.home).clone();
        Self {
            context: LockContext::new(Arc::clone(core), store),
            kind: LockKind::Mutex,
            name,
            gives: PhantomData,
        }
    }

    /// The same lock with fencing tokens: every grant has a [`FencingToken`](crate::FencingToken) larger than all
    /// earlier ones. It excludes the lock without tokens on the same name. On Redis it is Redisson's `RFencedLock`; a
    /// [plain lock](crate::Client::plain_lock) counts its tokens in a second key, and only for clients that ask for
    /// tokens.
    ///
    /// On a store that cannot count, and for a set of locks, its operations fail with
    /// [`Unsupported`](ErrorKind::Unsupported) before any traffic. A side of a
    /// [read-write lock](crate::ReadWriteLock) can be fenced too.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let ledger = client.lock("ledger").fenced();
    /// let first = ledger.acquire().await?;
    /// let earlier = first.token();
    /// first.release().await?;
    /// assert!(ledger.acquire().await?.token() > earlier);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fenced(self) -> FencedLock {
        Lock {
            kind: match self.kind {
                LockKind::Mutex => LockKind::Fenced,
                LockKind::Fair => LockKind::FairFenced,
                LockKind::Spin => LockKind::SpinFenced,
                LockKind::Read => LockKind::ReadFenced,
                LockKind::Write => LockKind::WriteFenced,
                LockKind::UpgradeableRead => LockKind::UpgradeableReadFenced,
                other => other,
            },
            context: self.context,
            name: self.name,
            gives: PhantomData,
        }
    }

    /// A lock of that name in every store of a set (Redlock).
    pub(crate) fn at(core: Arc<ClientInner>, store: QueuedStore, name: &str) -> Self {
        let name = full_name(&core, name);
        Self {
            context: LockContext::new(core, store),
            kind: LockKind::Mutex,
            name,
            gives: PhantomData,
        }
    }

    /// A lock of the client's own store whose name has its prefix already.
    pub(crate) fn named(core: &Arc<ClientInner>, kind: LockKind, name: Name) -> Self {
        Self {
            context: LockContext::new(Arc::clone(core), core.home.clone()),
            kind,
            name: Ok(name),
            gives: PhantomData,
        }
    }

    /// A lock that consists of other locks (multi lock).
    pub(crate) fn in_set(
        core: Arc<ClientInner>,
        store: QueuedStore,
        name: Name,
        parts: Vec<LockPart>,
    ) -> Self {
        Self {
            context: LockContext::of_parts(core, store, parts),
            kind: LockKind::Mutex,
            name: Ok(name),
            gives: PhantomData,
        }
    }
}

impl Lock<Permits> {
    /// One permit of a semaphore. It has no local queue: several tasks hold permits at a time, and each waiter may ask for
    /// another number, so each asks for itself.
    pub(crate) fn of_permits(core: &Arc<ClientInner>, name: &str) -> Self {
        let store = QueuedStore {
            queues: None,
            ..core.home.clone()
        };
        Self {
            context: LockContext::new(Arc::clone(core), store),
            kind: LockKind::Permits(1),
            name: full_name(core, name),
            gives: PhantomData,
        }
    }
}

impl<G: LockGuard> Lock<G> {
    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.lock("stock").name(), "shop:stock");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        match &self.name {
            Ok(name) => name.as_str(),
            Err(LockRefusal::Name(refused) | LockRefusal::Plain(refused)) => refused,
        }
    }

    /// Waits until the lock is free, acquires it, and keeps it until the returned [`Guard`] is dropped or released.
    ///
    /// Between processes there is no promised order, unless the lock is [fair](crate::Client::fair_lock). Within this process the longest waiter is woken first, and a
    /// newcomer may overtake it. The call retries through an outage of the store of up to one lease. Time in which this
    /// process itself did not run, because it was frozen or its machine slept, does not count as an outage.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) or [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the store has not
    /// answered for a whole lease, [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported), [`Closed`](ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no lock and no queue entry behind: the client completes a request in flight
    /// in the background and releases its grant, and passes a wake that had already arrived to the next waiter.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock:42").acquire().await?;
    /// // one process at a time
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire<G> {
        self.acquire_with(AcquireOptions::new())
    }

    /// The same lock without re-entry: an [`Owner`](crate::Owner) that holds it and acquires it again gets an error
    /// instead of a second guard. For code in which a second acquisition is always a mistake. In the store it is the same
    /// lock, also as Redisson's `RLock` of `getNonReentrantLock`, and excludes all other locks of its name.
    ///
    /// The error is [`InvalidOptions`](ErrorKind::InvalidOptions), before any traffic. An acquisition without an owner
    /// never re-enters, so it waits as ever. A task that has a guard can still share it by
    /// [`Guard::reenter`](crate::Guard::reenter): that is no acquisition. A multi lock asks for its parts in its own name:
    /// call this on the multi lock, not on its parts.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, ErrorKind, Owner};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let me = Owner::new();
    /// let till = client.lock("till").non_reentrant();
    /// let guard = till.acquire_with(AcquireOptions::new().owner(&me)).await?;
    /// let error = till.acquire_with(AcquireOptions::new().owner(&me)).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn non_reentrant(self) -> Self {
        Self {
            context: self.context.without_reentry(),
            ..self
        }
    }

    /// Acquires the lock if it is free now. `None`: another owner holds it.
    ///
    /// On Redis, for a tenth of a second after this client released the lock while other processes wait for it, the call may
    /// let them ask first.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but the call retries through an outage for the response timeout only.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no lock behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Some(guard) = client.lock("nightly").try_acquire().await? {
    ///     // it is ours tonight
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> TryAcquire<G> {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// As [`try_acquire`](Self::try_acquire), with options; their `wait` is ignored.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and [`InvalidOptions`](ErrorKind::InvalidOptions).
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no lock behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let ten_minutes = AcquireOptions::new().expires_after(Duration::from_secs(600));
    /// let guard = client.lock("warm-up").try_acquire_with(ten_minutes).await?;
    /// assert!(guard.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire_with(&self, options: AcquireOptions) -> TryAcquire<G> {
        TryAcquire(
            self.acquisition(options.wait(std::time::Duration::ZERO)),
            PhantomData,
        )
    }

    /// As [`acquire`](Self::acquire), with options: how long to wait, how long to hold, and which owner.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`TimedOut`](ErrorKind::TimedOut), [`Cancelled`](ErrorKind::Cancelled),
    /// [`InvalidOptions`](ErrorKind::InvalidOptions).
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no lock and no queue entry behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.lock("report");
    /// let held = lock.acquire().await?;
    /// let error = lock.acquire_with(AcquireOptions::new().wait(Duration::from_millis(5))).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_with(&self, options: AcquireOptions) -> Acquire<G> {
        Acquire(self.acquisition(options), PhantomData)
    }

    /// As [`acquire`](Self::acquire), but waits at most this long: `acquire_with(AcquireOptions::new().wait(limit))`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`TimedOut`](ErrorKind::TimedOut) when another owner holds the lock.
    /// A store that does not answer within `limit` is not a timeout, but [`OutcomeUnknown`](ErrorKind::OutcomeUnknown)
    /// or [`Unavailable`](ErrorKind::Unavailable); see [`is_timeout`](crate::Error::is_timeout).
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no lock and no queue entry behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("report").acquire_timeout(std::time::Duration::from_secs(5)).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_timeout(&self, limit: std::time::Duration) -> Acquire<G> {
        self.acquire_with(AcquireOptions::new().wait(limit))
    }

    #[track_caller]
    fn acquisition(&self, options: AcquireOptions) -> Acquisition {
        let place = Location::caller();
        Acquisition::of(self.checked_name().and_then(|name| {
            let context = Arc::clone(&self.context);
            if G::NEEDS_TOKENS {
                let need = context.store.need(LockKind::Fenced);
                need.map_err(|error| error.on_lock(&name))?;
            }
            AcquireRequest::new(context, self.kind, name, options, place)
        }))
    }

    /// The state of this lock in the store: holders, counts, time left, token. For operators and logs: it may have
    /// changed by the time you read it.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.lock("report");
    /// let guard = lock.acquire().await?;
    /// let seen = lock.inspect().await?;
    /// assert_eq!(seen.holders[0].owner, guard.owner_id());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Snapshot> {
        let name = self.checked_name()?;
        let LockContext { core, store, .. } = &*self.context;
        core.refuse_if_closed()?;
        let asked = async {
            let seen = store.front().inspect(&name).await;
            store.heard(&name, &seen);
            seen
        };
        let seen = core.steward.answered(asked).await;
        seen.map_err(|error| error.without_effect().on_lock(&name))
    }

    /// Frees the lock, no matter which owner holds it, and wakes the waiters. The holder learns of it at its next
    /// renewal at the latest, so for up to a third of its lease two owners may believe they hold the lock: for
    /// operators. `false`: the lock was not held.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect), and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the lock may or may not have been freed. A request that is still on
    /// its way then may free the hold of the next owner, who is told.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.lock("report");
    /// let guard = lock.acquire().await?;
    /// assert!(lock.force_release().await?);
    /// assert!(lock.try_acquire().await?.is_some());
    /// drop(guard); // it no longer holds the lock
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool> {
        let name = self.checked_name()?;
        self.context.core.refuse_if_closed()?;
        self.free(&name, None).await
    }

    /// Frees the lock only if it is still held as `seen` says, and wakes the waiters. `seen` is what
    /// [`inspect`](Self::inspect) returned earlier. An operator reads who holds the lock before they break it; meanwhile the
    /// lock may have gone to an owner that works. The store decides and frees at one instant.
    ///
    /// `true`: it was freed. `false`: it is free, another owner holds it, or the same owner with another fencing token; a
    /// lock held by other owners stays as it is. Readers and permits that were released since `seen` do not matter, one
    /// that was added does. A hand-off within a process changes neither owner nor token in the store. In a
    /// [set](crate::RedLock) each member decides by itself.
    ///
    /// The holder learns of it as of [`force_release`](Self::force_release).
    ///
    /// # Errors
    /// As [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the lock may or may not have been freed. A request that is still on
    /// its way frees no hold that is not in `seen`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.lock("report");
    /// let first = lock.acquire().await?;
    /// let seen = lock.inspect().await?;
    /// first.release().await?;
    /// let second = lock.acquire().await?;
    /// assert!(!lock.force_release_if(&seen).await?); // another owner holds it now
    /// second.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn force_release_if(&self, seen: &Snapshot) -> Result<bool> {
        let name = self.checked_name()?;
        self.context.core.refuse_if_closed()?;
        if seen.name != name.as_str() {
            return Err(Error::new(ErrorKind::InvalidOptions)
                .on_lock(&name)
                .because("the snapshot is that of another lock"));
        }
        self.free(&name, Some(seen)).await
    }

    async fn free(&self, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
        let LockContext { core, store, .. } = &*self.context;
        let asked = async {
            let freed = store.front().force_release(name, seen).await;
            store.heard(name, &freed);
            freed
        };
        let freed = core.steward.answered(asked).await;
        // Unless the lock has certainly stayed as it was: the request may have taken effect, so the local queue must not
        // hand off this hold any more.
        let is_unchanged = seen.is_some() && matches!(freed, Ok(false));
        if let Some(queues) = &self.context.queues
            && !is_unchanged
        {
            queues.forced(name);
        }
        freed.map_err(|error| error.on_lock(name))
    }

    pub(crate) fn checked_name(&self) -> Result<Name> {
        match &self.name {
            Ok(name) => Ok(name.clone()),
            // The name is checked once per lock, not per acquisition; a second check here gives the full error message.
            Err(LockRefusal::Name(refused)) => Name::new(Arc::clone(refused)),
            Err(LockRefusal::Plain(name)) => Err(Error::new(ErrorKind::Unsupported)
                .on_lock(name)
                .because("this store has no plain locks; use Redis or Valkey")),
        }
    }
}

fn full_name(core: &ClientInner, name: &str) -> Result<Name, LockRefusal> {
    // We check before we add the prefix; otherwise a prefix would hide the mistake of an empty name.
    let full = if name.is_empty() {
        String::new()
    } else {
        format!("{}{name}", core.settings.prefix)
    };
    Name::new(full.as_str()).map_err(|_| LockRefusal::Name(full.into()))
}

impl<G: LockGuard> fmt::Debug for Lock<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Future of [`Lock::acquire`] and [`Lock::acquire_with`].
///
/// # Cancel safety
/// Cancel safe. Dropped at any point, it leaves no lock and no queue entry behind.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let lock = client.lock("job");
/// let asked: tidelock::Acquire = lock.acquire(); // nothing is sent yet
/// assert!(!lock.inspect().await?.is_locked());
/// let guard = asked.await?;
/// assert!(lock.inspect().await?.is_locked());
/// # Ok(()) }
/// ```
#[must_use = "nothing is asked for until the future is awaited"]
pub struct Acquire<G = Guard>(Acquisition, PhantomData<fn() -> G>);

impl<G: LockGuard> Future for Acquire<G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| match result? {
            Some(hold) => G::from_guard(Guard::new(hold)),
            None => Err(self.0.not_free()),
        })
    }
}

/// Future of [`Lock::try_acquire`] and [`Lock::try_acquire_with`].
///
/// # Cancel safety
/// Cancel safe. Dropped at any point, it leaves no lock behind.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let lock = client.lock("job");
/// let asked: tidelock::TryAcquire = lock.try_acquire(); // nothing is sent yet
/// let guard = lock.acquire().await?;
/// assert!(asked.await?.is_none()); // too late
/// # Ok(()) }
/// ```
#[must_use = "nothing is asked for until the future is awaited"]
pub struct TryAcquire<G = Guard>(Acquisition, PhantomData<fn() -> G>);

impl<G: LockGuard> Future for TryAcquire<G> {
    type Output = Result<Option<G>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let hold = Pin::new(&mut self.0).poll(cx);
        hold.map(|hold| {
            hold?
                .map(|hold| G::from_guard(Guard::new(hold)))
                .transpose()
        })
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

impl<G> fmt::Debug for TryAcquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryAcquire").finish_non_exhaustive()
    }
}
