//! The client: one store, its settings, and the steward behind it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, future};

use crate::backend::Kind;
use crate::builder::ClientBuilder;
use crate::core::Core;
use crate::core::steward::Chore;
use crate::error::Result;
use crate::guard::LostReason;
use crate::lock::Lock;
use crate::multi;
use crate::owner::Owner;
use crate::read_write::ReadWriteLock;
use crate::sequencer::{self, Sequencer};
use crate::snapshot::Finding;

/// A connection to a store of locks. Cheap to clone; the clones are one client, with one identity on the wire.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// guard.release().await?;
/// client.close(std::time::Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Clone)]
pub struct Client(Arc<Core>);

impl Client {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self(core)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }

    /// Connects with default settings. The URL names the store: `memory:`, `sqlite:PATH`, `redis://host:port/db`,
    /// `rediss://…` (TLS), `redis+unix:///path`, `redis+sentinel://host:26379,…/service`,
    /// `redis+cluster://host:6379,…`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host:2181,…/base/path`,
    /// `etcd://host:2379,…`, `memcached://host:port`.
    ///
    /// It tries once; [`connect_within`](crate::ClientBuilder::connect_within) tries again while a store is being started or is full.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) for a URL that cannot be read, [`Unavailable`](crate::ErrorKind::Unavailable)
    /// when the store does not answer, [`Refused`](crate::ErrorKind::Refused) when it does not let us in, [`Runtime`](crate::ErrorKind::Runtime)
    /// outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, its connections are closed.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind};
    ///
    /// let client = Client::connect("memory:").await?;
    /// assert!(client.lock("job").try_acquire().await?.is_some());
    /// let error = Client::connect("nonsense:").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client with settings of its own.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A lock of that name. Nothing is sent; a name no store could keep is refused by the lock's verbs.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::ErrorKind;
    ///
    /// let stock = client.lock("stock:42");
    /// assert_eq!(stock.name(), "stock:42");
    /// let error = client.lock("").acquire().await.unwrap_err(); // told by its verbs
    /// assert_eq!(error.kind(), ErrorKind::InvalidName);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(&self.0, Kind::Mutex, name)
    }

    /// A lock whose every grant has a [`FencingToken`](crate::FencingToken) larger than all before. It excludes
    /// [`lock`](Self::lock) on the same name. On Redis it is Redisson's `RFencedLock`.
    ///
    /// A store that cannot count refuses its verbs with [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.fenced_lock("ledger");
    /// let first = lock.acquire().await?;
    /// let earlier = first.token().expect("a fenced lock has tokens");
    /// first.release().await?;
    /// let second = lock.acquire().await?;
    /// assert!(second.token().expect("as above") > earlier);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn fenced_lock(&self, name: &str) -> Lock {
        Lock::new(&self.0, Kind::Fenced, name)
    }

    /// A lock that is one plain key of Redis, `SET name owner NX PX ms`: the lock that redis-py, redsync, node-redlock, rslock
    /// and bsm/redislock write, and that excludes theirs on the same name. Nobody is told of a release, so waiters look again.
    ///
    /// It does not exclude [`lock`](Self::lock): a name that is used as one is refused as the other, with
    /// [`WrongType`](crate::ErrorKind::WrongType). Stores other than Redis refuse its verbs with
    /// [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic. A client whose URL says `locks=plain`
    /// (`redis://host?locks=plain`) makes such locks by [`lock`](Self::lock) too.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn f() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("redis://127.0.0.1").await?;
    /// let shared_with_python = client.plain_lock("stock:42");
    /// let guard = shared_with_python.acquire().await?;
    /// guard.release().await?;
    /// let counted = client.plain_lock("ledger").fenced().acquire().await?;
    /// assert!(counted.token().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn plain_lock(&self, name: &str) -> Lock {
        Lock::plain(&self.0, name)
    }

    /// A lock with two sides: any number of guards for reading, or one for writing; see [`ReadWriteLock`]. First come, first
    /// served, so neither side starves. On ZooKeeper it is Curator's `InterProcessReadWriteLock`; [`lock`](Self::lock) on the
    /// same name excludes both sides.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the store has none (only ZooKeeper and `memory:` have), and
    /// [`InvalidName`](crate::ErrorKind::InvalidName). Nothing is sent.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices")?;
    /// let one = prices.read().acquire().await?;
    /// let other = prices.read().acquire().await?; // together
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// # drop((one, other));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn read_write_lock(&self, name: &str) -> Result<ReadWriteLock> {
        ReadWriteLock::new(&self.0, name)
    }

    /// Several locks as one: its guard holds all of them, and nobody gets some. They may be locks of other clients and
    /// stores; the same lock twice counts once. It is a [`Lock`] with a lock's verbs, free to make.
    ///
    /// Nobody waits while holding a part of it: sets that overlap, asked for in any order, also by Java's `RMultiLock`,
    /// cannot block each other for ever. Each part is a plain lock in its store and excludes whoever takes it by itself.
    /// The loss of one part is the loss of the whole. Lease, drift and identity are this client's.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) for no locks, [`InvalidName`](crate::ErrorKind::InvalidName), and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a fenced lock: take it by itself, beside the set.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
    /// let both = client.multi_lock([&from, &to])?.acquire().await?;
    /// assert!(from.try_acquire().await?.is_none());
    /// both.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn multi_lock<L: Borrow<Lock>>(&self, locks: impl IntoIterator<Item = L>) -> Result<Lock> {
        multi::lock_of_all(&self.0, locks)
    }

    /// A new owner that may re-enter what it holds; see [`Owner`].
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::AcquireOptions;
    ///
    /// let me = client.owner();
    /// let job = client.lock("job");
    /// let outer = job.acquire_with(AcquireOptions::new().owner(&me)).await?;
    /// assert!(job.try_acquire().await?.is_none()); // anybody else
    /// assert!(job.try_acquire_with(AcquireOptions::new().owner(&me)).await?.is_some());
    /// # drop(outer);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn owner(&self) -> Owner {
        Owner::default()
    }

    /// This client's identity on the wire: a UUID, the part before the colon of every owner it writes.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// assert_eq!(client.id().len(), 36);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn id(&self) -> &str {
        self.0.mint.client().as_str()
    }

    /// Names of locks that are held on this store and match a glob (`*` and `?`), prefix included; at most `most`, in no order.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("stock:1").acquire().await?;
    /// assert_eq!(client.list("stock:*", 100).await?, ["stock:1"]);
    /// held.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn list(&self, pattern: &str, most: usize) -> Result<Vec<String>> {
        self.0.refuse_if_closed()?;
        let mut names = std::collections::BTreeSet::new();
        let mut cursor = 0;
        loop {
            let page = self.0.home.front().list(pattern, cursor).await?;
            names.extend(page.names);
            match page.next {
                Some(next) if names.len() < most => cursor = next,
                _ => return Ok(names.into_iter().take(most).collect()),
            }
        }
    }

    /// Asks the store whether the hold that a [`Sequencer`] stands for has its lock now. False: it was released, lost or taken.
    ///
    /// The answer is the store's at one moment between the call and its return, by a linearizable read on etcd and by `sync` and
    /// a read on ZooKeeper. The hold may end right behind it: for as long as it was to go on at least, only the holder can tell.
    ///
    /// The name stands in the sequencer with its prefix; this client's own prefix is not put before it.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), before any traffic, on stores that cannot tell;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) without an
    /// answer: then nothing is known.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// # let header = "tidelock1:exclusive:7:primary";
    /// // `header` came with a request: is its sender still the primary?
    /// if !client.check(&header.parse()?).await? {
    ///     println!("refused: you are not the primary any more");
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn check(&self, sequencer: &Sequencer) -> Result<bool> {
        let (name, generation) = sequencer.parts();
        let front = self.0.home.front();
        let asked = async {
            self.0.refuse_if_closed()?;
            if !front.capabilities().sequencers {
                return Err(sequencer::unsupported());
            }
            front.check(name, generation).await
        };
        asked.await.map_err(|error| error.on_lock(name))
    }

    /// Looks at everything about the store that weakens a lock: what `tidelock doctor` prints.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable). What the store refuses to tell is a finding, not an error.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// for finding in client.examine().await? {
    ///     println!("{:?} {}: {}", finding.severity, finding.subject, finding.meaning);
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        self.0.refuse_if_closed()?;
        self.0.home.front().examine().await
    }

    /// Closes the client for all its clones: refuses new acquisitions, ends waits with [`Closed`](crate::ErrorKind::Closed), fires
    /// [`lost`](crate::Guard::lost) with [`LostReason::Closed`] while the locks are still kept, waits for the guards to go,
    /// at most `grace`, then releases what is left and ends the connections. Returns the number of guards that had not gone.
    ///
    /// It returns within `grace` and one [response timeout](crate::ClientBuilder::response_timeout), also when the store does
    /// not answer. A lock whose release the store has not confirmed by then stays until its lease ends.
    ///
    /// # Cancel safety
    /// Dropped early, the client is closed all the same, but what is held stays until the guards go.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// let left = client.close(std::time::Duration::from_millis(10)).await;
    /// assert_eq!(left, 1); // the guard did not go in time, so its lock was released
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn close(&self, grace: Duration) -> usize {
        let core = &self.0;
        if core.closed.set() {
            core.home.close_lines();
            for status in core.steward.table.statuses() {
                status.announce_close();
            }
        }
        let emptied = core.steward.unless_ended(core.steward.table.emptied());
        core.timers.limit(grace, emptied).await;
        let left = self.release_all();
        // One response timeout for all that is left to be asked of the store. If no answer comes in time, locks end with their leases.
        let end = core.timers.now() + core.settings.response_timeout;
        core.timers.until(end, core.steward.settled()).await;
        core.steward.retire();
        core.timers.until(end, core.steward.ended()).await;
        // Both begin, also when the time is over: what has begun needs nobody who waits for it.
        let closed = future::join(core.home.back().close(), core.home.front().close());
        let closed = core.steward.unless_ended(closed.map(drop));
        core.timers.until(end, closed).await;
        left
    }

    /// Nothing is held, and the steward has nothing left to do. For tests that look for what was left behind.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(!client.is_idle());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    #[cfg(feature = "testing")]
    pub fn is_idle(&self) -> bool {
        self.0.steward.is_idle()
    }

    fn release_all(&self) -> usize {
        let core = &self.0;
        let until = core.timers.now() + core.settings.response_timeout;
        // Out of the table first: what cannot be released must at least not be renewed for ever.
        let rest = core.steward.table.drain();
        for keep in &rest {
            keep.status.lose(LostReason::Closed);
            core.steward.send(Chore::Release {
                site: Arc::clone(&keep.site),
                ticket: keep.ticket.clone(),
                unclear: keep.unclear,
                repeated: false,
                until,
                answer: None,
                tenure: None,
                kept: Duration::ZERO,
            });
        }
        rest.len()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("store", &self.0.home.front())
            .finish_non_exhaustive()
    }
}
