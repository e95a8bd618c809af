//! The same API without async, for threads: [`Client`], [`Lock`], [`Guard`].
//!
//! Re-entrancy is by thread, as in Java: the thread that holds a lock acquires it again at once, counted in this
//! process; every other thread waits. Therefore a [`Guard`] cannot leave its thread.
//!
//! In async code every call that would block fails with [`ErrorKind::Runtime`]: it could wait for a task that cannot run
//! meanwhile. Use the async [`Client`](crate::Client) there, or call it inside `tokio::task::spawn_blocking`.
//!
//! # Examples
//! ```
//! use tidelock::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let stock = client.lock("stock:42");
//! let outer = stock.acquire()?;
//! let inner = stock.acquire()?; // the same thread: at once
//! drop(inner);
//! outer.release()?;
//! # Ok::<(), tidelock::Error>(())
//! ```

mod barrier;
mod counting_semaphore;
mod election;
mod fenced;
mod guard;
mod latch;
mod once;
mod read_write;
mod semaphore;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Client as AsyncClient;
use crate::builder::ClientBuilder;
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::fenced::sealed::FromGuard as _;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::processes::{AwaitedLock, Process};
use crate::snapshot::{Finding, Snapshot};
use crate::stats::Stats;
use crate::types::FencingToken;

pub use self::barrier::{Barrier, BarrierGuard};
pub use self::counting_semaphore::CountingSemaphore;
pub use self::election::{Election, LeaderChanges, Leadership};
pub use self::fenced::{FencedGuard, LockGuard};
pub use self::guard::Guard;
pub use self::latch::Latch;
pub use self::once::OnceJob;
pub use self::read_write::ReadWriteLock;
pub use self::semaphore::{Permits, Semaphore};

/// A connection to a store of locks, for threads. All clones are one client.
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// assert!(client.lock("nightly").try_acquire()?.is_some());
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    client: AsyncClient,
    blocker: Arc<Blocker>,
}

impl Client {
    /// Connects with default settings. The URL is as for [`Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    /// As [`Client::connect`](crate::Client::connect), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{ErrorKind, blocking::Client};
    ///
    /// let client = Client::connect("memory:")?;
    /// assert!(!client.lock("stock:42").inspect()?.is_locked());
    /// assert_eq!(Client::connect("nonsense:").unwrap_err().kind(), ErrorKind::InvalidOptions);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn connect(url: &str) -> Result<Self> {
        Self::from_async(AsyncClient::connect(url))
    }

    /// A client that connects with its first operation; see [`Client::connect_lazy`](crate::Client::connect_lazy).
    ///
    /// # Errors
    /// As [`Client::connect_lazy`](crate::Client::connect_lazy), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use tidelock::blocking::Client;
    ///
    /// let client = Client::connect_lazy("memory:")?;
    /// assert!(!client.status().is_connected);
    /// client.lock("stock:42").acquire()?.release()?;
    /// assert!(client.status().is_connected);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self> {
        AsyncClient::builder().connect_lazy_blocking(url)
    }

    /// See [`Client::from_env_lazy`](crate::Client::from_env_lazy).
    ///
    /// # Errors
    /// As [`Client::from_env_lazy`](crate::Client::from_env_lazy).
    ///
    /// # Examples
    /// ```no_run
    /// // TIDELOCK_STORE=redis://redis TIDELOCK_PREFIX=shop:
    /// let client = tidelock::blocking::Client::from_env_lazy()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn from_env_lazy() -> Result<Self> {
        Self::from_async(async { AsyncClient::from_env_lazy() })
    }

    /// See [`Client::from_env`](crate::Client::from_env).
    ///
    /// # Errors
    /// As [`Client::from_env`](crate::Client::from_env).
    ///
    /// # Examples
    /// ```no_run
    /// // TIDELOCK_STORE=redis://127.0.0.1 TIDELOCK_PREFIX=shop:
    /// let client = tidelock::blocking::Client::from_env()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn from_env() -> Result<Self> {
        Self::from_async(AsyncClient::from_env())
    }

    /// Runs an async connect to its end, for settings other than the defaults and for stores without a URL.
    ///
    /// # Errors
    /// The errors of `connecting`, and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::{Client, blocking};
    ///
    /// let settings = Client::builder().lease(Duration::from_secs(10));
    /// let client = blocking::Client::from_async(settings.connect("memory:"))?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn from_async(connecting: impl Future<Output = Result<AsyncClient>>) -> Result<Self> {
        let blocker = Blocker::start()?;
        let client = blocker.run(connecting)??;
        Ok(Self {
            client,
            blocker: Arc::new(blocker),
        })
    }

    /// A builder, for other settings than the defaults. End it with
    /// [`connect_blocking`](crate::ClientBuilder::connect_blocking).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::blocking::Client;
    ///
    /// let client = Client::builder().lease(Duration::from_secs(10)).connect_blocking("memory:")?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn builder() -> crate::ClientBuilder {
        AsyncClient::builder()
    }

    /// A lock of that name. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let stock = client.lock("stock:42");
    /// let guard = stock.acquire()?;
    /// assert_eq!(client.lock("stock:42").inspect()?.holders.len(), 1);
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        self.locked(self.client.lock(name))
    }

    /// A lock that is one plain key of Redis. See [`Client::plain_lock`](crate::Client::plain_lock).
    ///
    /// # Examples
    /// ```
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// // Only Redis and Valkey have plain locks.
    /// let error = client.plain_lock("stock:42").acquire().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn plain_lock(&self, name: &str) -> Lock {
        self.locked(self.client.plain_lock(name))
    }

    /// A fair lock; see [`Client::fair_lock`](crate::Client::fair_lock). A thread that holds it gets it again at once.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.fair_lock("counter").acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.locked(self.client.fair_lock(name))
    }

    /// A spin lock; see [`Client::spin_lock`](crate::Client::spin_lock). A thread that holds it gets it again at once.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.spin_lock("seat:14c").acquire()?;
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn spin_lock(&self, name: &str) -> Lock {
        self.locked(self.client.spin_lock(name))
    }

    /// Several locks as one; see [`Client::multi_lock`](crate::Client::multi_lock).
    ///
    /// # Errors
    /// As [`Client::multi_lock`](crate::Client::multi_lock).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
    /// let both = client.multi_lock([&from, &to])?.acquire()?;
    /// assert!(from.inspect()?.is_locked() && to.inspect()?.is_locked());
    /// both.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn multi_lock<'a>(&self, locks: impl IntoIterator<Item = &'a Lock>) -> Result<Lock> {
        let parts = locks.into_iter().map(|lock| &lock.lock);
        self.client.multi_lock(parts).map(|lock| self.locked(lock))
    }

    /// A lock of a [`RedLock`](crate::RedLock), for threads of this client. Make the `RedLock` from
    /// [`as_async`](Self::as_async) clients.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{RedLock, blocking::Client};
    ///
    /// let servers = [Client::connect("memory:")?, Client::connect("memory:")?, Client::connect("memory:")?];
    /// let redlock = RedLock::new(servers.iter().map(|server| server.as_async().clone()))?;
    /// let nightly = servers[0].wrap(redlock.lock("nightly"));
    /// nightly.acquire()?.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn wrap(&self, lock: crate::Lock) -> Lock {
        self.locked(lock)
    }

    fn locked(&self, lock: crate::Lock) -> Lock {
        Lock {
            lock,
            blocker: Arc::clone(&self.blocker),
        }
    }

    /// This client's identity on the wire: a UUID.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert!(guard.owner_id().starts_with(client.id()));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn id(&self) -> &str {
        self.client.id()
    }

    /// The async client underneath. Both are the same client: each sees the other's locks as held.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert_eq!(client.as_async().id(), client.id()); // one client, two APIs
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn as_async(&self) -> &AsyncClient {
        &self.client
    }

    /// Names of held locks, as an iterator; see [`Client::list`](crate::Client::list). Each item blocks until the store
    /// has answered, and is an error of kind [`Runtime`](ErrorKind::Runtime) in async code. For a limit use
    /// [`Iterator::take`].
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("stock:1").acquire()?;
    /// for name in client.list("stock:*").take(100) {
    ///     assert_eq!(name?, "stock:1");
    /// }
    /// assert!(client.list("ledger:*").next().is_none());
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn list(&self, pattern: &str) -> impl Iterator<Item = Result<String>> + use<> {
        let (mut names, blocker) = (self.client.list(pattern), Arc::clone(&self.blocker));
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let next = blocker
                .run(names.next())
                .unwrap_or_else(|error| Some(Err(error)));
            ended = !matches!(next, Some(Ok(_)));
            next
        })
    }

    /// See [`Client::verify`](crate::Client::verify).
    ///
    /// # Errors
    /// As [`Client::verify`](crate::Client::verify), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("primary").acquire()?;
    /// let header = guard.sequencer()?.to_string();
    /// assert!(client.verify(&header.parse()?)?);
    /// guard.release()?;
    /// assert!(!client.verify(&header.parse()?)?);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn verify(&self, sequencer: &crate::Sequencer) -> Result<bool> {
        self.blocker.run(self.client.verify(sequencer))?
    }

    /// See [`Client::status`](crate::Client::status). Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert_eq!(client.status().held, 1);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn status(&self) -> crate::ClientStatus {
        self.client.status()
    }

    /// See [`Client::ping`](crate::Client::ping).
    ///
    /// # Errors
    /// As [`Client::ping`](crate::Client::ping), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.ping()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn ping(&self) -> Result<()> {
        self.blocker.run(self.client.ping())?
    }

    /// See [`Client::diagnose`](crate::Client::diagnose).
    ///
    /// # Errors
    /// As [`Client::diagnose`](crate::Client::diagnose), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// for finding in client.diagnose()? {
    ///     println!("{:?} {}: {}", finding.severity, finding.subject, finding.meaning);
    /// }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn diagnose(&self) -> Result<Vec<Finding>> {
        self.blocker.run(self.client.diagnose())?
    }

    /// See [`Client::processes`](crate::Client::processes).
    ///
    /// # Errors
    /// As [`Client::processes`](crate::Client::processes), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// for process in client.processes()? {
    ///     println!("{}: {} held", process.info, process.held);
    /// }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn processes(&self) -> Result<Vec<Process>> {
        self.blocker.run(self.client.processes())?
    }

    /// See [`Client::watch_processes`](crate::Client::watch_processes).
    ///
    /// # Errors
    /// As [`Client::watch_processes`](crate::Client::watch_processes), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.watch_processes()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn watch_processes(&self) -> Result<()> {
        self.blocker.run(self.client.watch_processes())?
    }

    /// See [`Client::awaited`](crate::Client::awaited).
    ///
    /// # Errors
    /// As [`Client::awaited`](crate::Client::awaited), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.awaited()?.is_empty());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn awaited(&self) -> Result<Vec<AwaitedLock>> {
        self.blocker.run(self.client.awaited())?
    }

    /// What this client has counted since it connected; see [`Client::stats`](crate::Client::stats).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert_eq!(client.stats().held, 1);
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Whether a [`close`](Self::close) has begun. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// while !client.is_closing() {
    ///     // one step of the work
    ///     client.close(std::time::Duration::ZERO)?; // another thread does this
    /// }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn is_closing(&self) -> bool {
        self.client.is_closing()
    }

    /// Waits until a [`close`](Self::close) begins; see [`Client::closing`](crate::Client::closing).
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let server = client.clone();
    /// let worker = std::thread::spawn(move || server.closing()); // then stop what brings new work
    /// client.close(std::time::Duration::from_secs(1))?;
    /// worker.join().unwrap()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn closing(&self) -> Result<()> {
        self.blocker.run(self.client.closing())
    }

    /// As [`closing`](Self::closing), but waits at most `limit`. False: the client is open.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(!client.closing_timeout(Duration::ZERO)?);
    /// client.close(Duration::ZERO)?;
    /// assert!(client.closing_timeout(Duration::ZERO)?);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn closing_timeout(&self, limit: Duration) -> Result<bool> {
        let timers = &self.client.core().timers;
        let closing = self
            .blocker
            .run(timers.limit(limit, self.client.closing()))?;
        Ok(closing.is_some())
    }

    /// Closes the client and all its clones; see [`Client::close`](crate::Client::close). Returns the number of locks
    /// that were still held after `grace`.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code; then nothing is closed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// guard.release()?;
    /// assert_eq!(client.close(Duration::from_secs(1))?, 0); // no lock was left
    /// assert!(client.lock("job").acquire().is_err());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn close(&self, grace: Duration) -> Result<usize> {
        let left = self.blocker.run(self.client.close(grace))?;
        self.blocker.close();
        Ok(left)
    }
}

impl ClientBuilder {
    /// Connects a client of the [blocking API](crate::blocking); see
    /// [`blocking::Client::connect`](crate::blocking::Client::connect).
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let settings = tidelock::Client::builder().prefix("shop:");
    /// let client = settings.connect_blocking("memory:")?;
    /// assert_eq!(client.lock("stock").name(), "shop:stock");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn connect_blocking(self, url: &str) -> Result<Client> {
        Client::from_async(self.connect(url))
    }

    /// A client for threads that connects with its first operation; see [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    /// As [`connect_lazy`](Self::connect_lazy), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::Client::builder().prefix("shop:").connect_lazy_blocking("memory:")?;
    /// assert_eq!(client.lock("stock").name(), "shop:stock");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn connect_lazy_blocking(self, url: &str) -> Result<Client> {
        Client::from_async(async move { self.connect_lazy(url) })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// The name of a lock on a store, for threads. See [`Lock`](crate::Lock).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let stock = client.lock("stock:42");
/// let held = stock.acquire()?;
/// assert!(stock.try_acquire()?.is_some()); // this thread has it already
/// held.release()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
pub struct Lock<G: LockGuard = Guard> {
    lock: crate::Lock<G::Async>,
    blocker: Arc<Blocker>,
}

/// A [`Lock`] whose guards have a fencing token: [`Lock::fenced`] makes it.
///
/// # Examples
/// ```
/// use tidelock::blocking::{Client, FencedLock};
///
/// let ledger: FencedLock = Client::connect("memory:")?.lock("ledger").fenced();
/// assert_eq!(ledger.acquire()?.token().get(), 1); // the first grant
/// # Ok::<(), tidelock::Error>(())
/// ```
pub type FencedLock = Lock<FencedGuard>;

impl FencedLock {
    /// Raises the counter of the fencing tokens. See [`FencedLock::raise_token`](crate::FencedLock::raise_token).
    ///
    /// # Errors
    /// As [`FencedLock::raise_token`](crate::FencedLock::raise_token), and [`Runtime`](ErrorKind::Runtime) inside an async runtime.
    ///
    /// # Examples
    /// ```
    /// use tidelock::FencingToken;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let next = client.lock("ledger").fenced().raise_token(FencingToken::new(5009))?;
    /// assert_eq!(next.get(), 5009);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn raise_token(&self, at_least: FencingToken) -> Result<FencingToken> {
        self.blocker.run(self.lock.raise_token(at_least))?
    }

    /// The newest fencing token. See [`FencedLock::newest_token`](crate::FencedLock::newest_token).
    ///
    /// # Errors
    /// As [`FencedLock::newest_token`](crate::FencedLock::newest_token), and [`Runtime`](ErrorKind::Runtime) inside an async runtime.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.lock("ledger").fenced().newest_token()?, None); // nobody has had it
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn newest_token(&self) -> Result<Option<FencingToken>> {
        self.blocker.run(self.lock.newest_token())?
    }
}

impl<G: LockGuard> Clone for Lock<G> {
    fn clone(&self) -> Self {
        Self {
            lock: self.lock.clone(),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl Lock {
    /// The same lock with fencing tokens. See [`Lock::fenced`](crate::Lock::fenced).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("ledger").fenced().acquire()?;
    /// println!("token {}", guard.token());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[must_use]
    pub fn fenced(self) -> FencedLock {
        Lock {
            lock: self.lock.fenced(),
            blocker: self.blocker,
        }
    }
}

impl<G: LockGuard> Lock<G> {
    /// The same lock without re-entry: a thread that holds it and acquires it again gets an error. See
    /// [`Lock::non_reentrant`](crate::Lock::non_reentrant).
    ///
    /// # Examples
    /// ```
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let till = client.lock("till").non_reentrant();
    /// let guard = till.acquire()?;
    /// assert_eq!(till.acquire().unwrap_err().kind(), ErrorKind::InvalidOptions);
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[must_use]
    pub fn non_reentrant(self) -> Self {
        Self {
            lock: self.lock.non_reentrant(),
            ..self
        }
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Client, blocking};
    ///
    /// let client = blocking::Client::from_async(Client::builder().prefix("shop:").connect("memory:"))?;
    /// assert_eq!(client.lock("stock").name(), "shop:stock");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Waits until the lock is free and acquires it. A thread that already holds it gets it at once.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let stock = client.lock("stock:42");
    /// let outer = stock.acquire()?;
    /// let inner = stock.acquire()?; // the same thread: at once
    /// outer.release()?;
    /// assert!(inner.is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Result<G> {
        self.acquire_with(AcquireOptions::new())
    }

    /// Acquires the lock if it is free now, or held by this thread. `None`: another owner holds it.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let nightly = client.lock("nightly");
    /// let held = nightly.acquire()?;
    /// let other = nightly.clone();
    /// let got = std::thread::spawn(move || other.try_acquire().map(|guard| guard.is_some()));
    /// assert!(!got.join().unwrap()?); // another thread, another owner
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> Result<Option<G>> {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// As [`try_acquire`](Self::try_acquire), with options; their `wait` is ignored.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and [`InvalidOptions`](ErrorKind::InvalidOptions).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let minute = AcquireOptions::new().expires_after(Duration::from_secs(60));
    /// let guard = client.lock("warm-up").try_acquire_with(minute)?.expect("nobody has it");
    /// assert!(guard.valid_for() <= Duration::from_secs(60));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn try_acquire_with(&self, options: AcquireOptions) -> Result<Option<G>> {
        let asked = self.lock.try_acquire_with(self.by_thread(options));
        Ok(self.blocker.run(asked)??.map(|guard| self.guard(guard)))
    }

    /// As [`acquire`](Self::acquire), with options. An explicit owner replaces the thread. A [`CancelToken`](crate::CancelToken)
    /// in the options stops the wait from another thread.
    ///
    /// # Errors
    /// As [`Lock::acquire_with`](crate::Lock::acquire_with), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{AcquireOptions, CancelToken, ErrorKind, blocking::Client};
    ///
    /// let client = Client::connect("memory:")?;
    /// let lock = client.lock("report");
    /// let held = lock.acquire()?;
    /// let cancel = CancelToken::new();
    /// let waiter = std::thread::spawn({
    ///     let (lock, options) = (lock.clone(), AcquireOptions::new().cancel(&cancel));
    ///     move || lock.acquire_with(options).map(drop)
    /// });
    /// cancel.cancel();
    /// assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    /// held.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<G> {
        let asked = self.lock.acquire_with(self.by_thread(options));
        Ok(self.guard(self.blocker.run(asked)??))
    }

    /// As [`acquire`](Self::acquire), but waits at most this long.
    ///
    /// # Errors
    /// As [`Lock::acquire_timeout`](crate::Lock::acquire_timeout), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> tidelock::Result<()> {
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("report").acquire_timeout(std::time::Duration::from_secs(5))?;
    /// guard.release()?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_timeout(&self, limit: Duration) -> Result<G> {
        self.acquire_with(AcquireOptions::new().wait(limit))
    }

    /// See [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.lock("report");
    /// let guard = report.acquire()?;
    /// let seen = report.inspect()?;
    /// assert_eq!(seen.holders[0].owner, guard.owner_id());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn inspect(&self) -> Result<Snapshot> {
        self.blocker.run(self.lock.inspect())?
    }

    /// Frees the lock, no matter which owner holds it; see [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// As [`Lock::force_release`](crate::Lock::force_release), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.lock("report");
    /// assert!(!report.force_release()?); // nobody held it
    /// let guard = report.acquire()?;
    /// assert!(report.force_release()?);
    /// drop(guard); // it no longer holds the lock
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn force_release(&self) -> Result<bool> {
        self.blocker.run(self.lock.force_release())?
    }

    /// Frees the lock only if it is still held as `seen` says; see
    /// [`Lock::force_release_if`](crate::Lock::force_release_if).
    ///
    /// # Errors
    /// As [`Lock::force_release_if`](crate::Lock::force_release_if), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.lock("report");
    /// let guard = report.acquire()?;
    /// let seen = report.inspect()?;
    /// assert!(report.force_release_if(&seen)?);
    /// assert!(!report.force_release_if(&seen)?); // nobody holds it any more
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn force_release_if(&self, seen: &Snapshot) -> Result<bool> {
        self.blocker.run(self.lock.force_release_if(seen))?
    }

    fn by_thread(&self, options: AcquireOptions) -> AcquireOptions {
        if !G::Async::REENTERS {
            return options;
        }
        by_thread(&self.blocker, options)
    }

    fn guard(&self, guard: G::Async) -> G {
        on_this_thread(&self.blocker, guard)
    }
}

/// The owner is this thread, unless the options name one.
fn by_thread(blocker: &Arc<Blocker>, options: AcquireOptions) -> AcquireOptions {
    if options.owner.is_some() {
        return options;
    }
    options.owner(&owner_of_this_thread(blocker))
}

/// The guard for this thread.
fn on_this_thread<G: LockGuard>(blocker: &Arc<Blocker>, guard: G::Async) -> G {
    G::from_async(guard, |inner| Guard {
        inner,
        blocker: Arc::clone(blocker),
        callbacks: RefCell::default(),
        stays_here: PhantomData,
    })
}

impl<G: LockGuard> fmt::Debug for Lock<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

thread_local! {
    /// The owner that stands for this thread, one for each client it has used.
    static OWNERS: RefCell<Vec<(Weak<Blocker>, Owner)>> = const { RefCell::new(Vec::new()) };
}

fn owner_of_this_thread(client: &Arc<Blocker>) -> Owner {
    // While the thread exits, the thread-local may be gone already. A fresh owner then excludes all others.
    OWNERS
        .try_with(|owners| {
            let mut owners = owners.borrow_mut();
            // Entries of dropped clients are removed here; otherwise the list would grow with every client.
            owners.retain(|(client, _)| client.strong_count() > 0);
            let known = owners
                .iter()
                .find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(client)));
            if let Some((_, owner)) = known {
                return owner.clone();
            }
            let owner = Owner::new();
            owners.push((Arc::downgrade(client), owner.clone()));
            owner
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
