//! The client: one store, its settings, and the background task (steward) that renews its locks.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, future};

use crate::barrier::Barrier;
use crate::closing::Closing;
use crate::counting_semaphore::CountingSemaphore;
use crate::election::Election;
use crate::engine::ClientInner;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::error::{Error, ErrorKind, Result};
use crate::health::ClientStatus;
use crate::latch::Latch;
use crate::list::HeldNames;
use crate::lock::Lock;
use crate::multi;
use crate::once::OnceJob;
use crate::read_write::ReadWriteLock;
use crate::semaphore::Semaphore;
use crate::sequencer::{self, Sequencer};
use crate::snapshot::Finding;
use crate::stats::Stats;
use crate::store::{LockKind, Name};

/// The name that [`Client::ping`] asks for. Chaos fails only this one of all inspections.
pub(crate) const PING: &str = "tidelock:ping";

/// A connection to a store of locks. Cheap to clone; all clones are one client, with one identity on the wire.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// guard.release().await?;
/// client.close(std::time::Duration::from_secs(1)).await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

impl Client {
    pub(crate) fn new(core: Arc<ClientInner>) -> Self {
        Self(core)
    }

    pub(crate) fn core(&self) -> &Arc<ClientInner> {
        &self.0
    }

    /// A lock of that name. Sends nothing. If no store could keep the name, the operations of the lock fail.
    /// [`fenced`](Lock::fenced) adds fencing tokens.
    ///
    /// On Redis do not use both a name without a `{` and the same name in braces, such as `stock` and `{stock}`: by Redisson's
    /// rule for names, fair locks, read-write locks, semaphores and jobs of the two share keys.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let stock = client.lock("stock:42");
    /// assert_eq!(stock.name(), "stock:42");
    /// let error = client.lock("").acquire().await.unwrap_err(); // `acquire` reports it
    /// assert_eq!(error.kind(), ErrorKind::InvalidName);
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(&self.0, LockKind::Mutex, name)
    }

    /// A lock that is one plain key of Redis, `SET name owner NX PX ms`: the lock of redis-py, redsync, node-redlock,
    /// rslock and bsm/redislock, which it excludes on the same name. No message announces a release, so waiters poll.
    ///
    /// It does not exclude [`lock`](Self::lock): a name in use by one kind is refused for the other with
    /// [`WrongType`](crate::ErrorKind::WrongType). On stores other than Redis its operations fail with
    /// [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic. On a client whose URL says `locks=plain`
    /// (`redis://host?locks=plain`), [`lock`](Self::lock) makes plain locks too.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("redis://127.0.0.1").await?;
    /// let shared_with_python = client.plain_lock("stock:42");
    /// let guard = shared_with_python.acquire().await?;
    /// guard.release().await?;
    /// let counted = client.plain_lock("ledger").fenced().acquire().await?;
    /// println!("token {}", counted.token());
    /// # Ok(()) }
    /// ```
    pub fn plain_lock(&self, name: &str) -> Lock {
        Lock::plain(&self.0, name)
    }

    /// A fair lock: waiters are served in order of arrival, over all processes. It excludes [`lock`](Self::lock) on the
    /// same name, which takes no notice of the queue; use a name for one of them only.
    ///
    /// On Redis it is Redisson's `RFairLock`, in one queue with Java's threads. A release grants the lock to the next
    /// waiter in the same request. A waiter whose process has died is passed over at once if its connection is closed,
    /// after at most 6 s otherwise. A live process that is frozen for longer loses its places, and gets the first one
    /// when it goes on. Waiters of one process queue one by one too, so the lock does not stay in the process. A waiter
    /// needs a subscription: see the [store's page](https://docs.rs/tidelock).
    ///
    /// On `sqlite:`, PostgreSQL and MySQL the queue is a table. A release hands over in the same way. On `sqlite:` and
    /// MySQL a waiter of another process notices its turn within 64 ms, on PostgreSQL by a notification. A dead waiter at
    /// the head costs the next one 8 s at most. PostgreSQL with `locks=session` has no fair locks.
    ///
    /// On ZooKeeper and etcd every lock has a queue, and this lock is the same as [`lock`](Self::lock). `memory:` has fair
    /// locks. On other stores its operations fail with [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let counter = client.fair_lock("counter");
    /// let guard = counter.acquire().await?; // after everybody who came before
    /// guard.release().await?;
    /// let counted = client.fair_lock("ledger").fenced().acquire().await?;
    /// assert_eq!(counted.token().get(), 1);
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        Lock::new(&self.0, LockKind::Fair, name)
    }

    /// A spin lock: its waiters ask the store again and again, after pauses of 6 to 64 ms, instead of waiting for a
    /// message. It excludes [`lock`](Self::lock) on the same name. Redisson calls it `RLock` of `getSpinLock`.
    ///
    /// For very many short locks on Redis, where the messages of the releases are a load of their own: nothing is
    /// subscribed, and a release publishes only if the server says that somebody listens, such as a waiter for
    /// [`lock`](Self::lock). It costs latency: half of a pause passes between a release and the next holder, except
    /// within this process, where the lock is handed over as ever. In each process one waiter per name asks. Between
    /// processes there is no order: see [`fair_lock`](Self::fair_lock).
    ///
    /// On Redis and in memory. On other stores its operations fail with
    /// [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let seat = client.spin_lock("seat:14c");
    /// let guard = seat.acquire().await?;
    /// assert!(client.lock("seat:14c").try_acquire().await?.is_none()); // the same lock
    /// guard.release().await?;
    /// assert_eq!(seat.fenced().acquire().await?.token().get(), 2);
    /// # Ok(()) }
    /// ```
    pub fn spin_lock(&self, name: &str) -> Lock {
        Lock::new(&self.0, LockKind::Spin, name)
    }

    /// A job that runs once per slot, on whichever process comes first: a nightly report, an import of one file. It
    /// holds the fenced lock of this name while it runs; see [`OnceJob`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::once::Slot;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let report = client.once("report").slot(Slot::every(Duration::from_secs(24 * 3600)));
    /// report.run(|_| async { Ok::<_, std::io::Error>(()) }).await?; // call it on every replica, as often as you like
    /// # Ok(()) }
    /// ```
    pub fn once(&self, name: &str) -> OnceJob {
        OnceJob::new(&self.0, name)
    }

    /// An election: of the candidates in all processes one leads at a time, see [`Election`]. The leader holds the fenced
    /// lock of this name. Sends nothing. Keep one `Election` per process and clone it: the clones are one candidate.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing").identity("web-3");
    /// let leadership = election.campaign().await?;
    /// println!("leads in term {}", leadership.term());
    /// leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn election(&self, name: &str) -> Election {
        Election::new(&self.0, name)
    }

    /// A read-write lock: any number of guards for reading, or one for writing; see [`ReadWriteLock`]. First come,
    /// first served, so neither side starves. On ZooKeeper it is Curator's `InterProcessReadWriteLock`;
    /// [`lock`](Self::lock) on the same name excludes both sides.
    ///
    /// Sends nothing. Its operations fail with [`Unsupported`](crate::ErrorKind::Unsupported) before any traffic if the
    /// store has no such locks; Redis, PostgreSQL, ZooKeeper, `sqlite:` and
    /// `memory:` have.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let one = prices.read().acquire().await?;
    /// let other = prices.read().acquire().await?; // together
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock::new(&self.0, name)
    }

    /// A semaphore: all its holders together have at most as many permits as it has; see [`Semaphore`]. On Redis it is
    /// Redisson's `RPermitExpirableSemaphore`. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// let permit = render.acquire().await?;
    /// let two = render.permits(2).acquire().await?; // both, or none
    /// two.release().await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(&self.0, name)
    }

    /// A semaphore whose permits have no holder and no lease; see [`CountingSemaphore`]. On Redis it is Redisson's
    /// `RSemaphore`. Sends nothing. A process that dies with permits has taken them for good:
    /// [`semaphore`](Self::semaphore) gets them back.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.set_permits_if_new(3).await?;
    /// slots.acquire(2).await?;
    /// slots.release(2).await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getSemaphore")]
    pub fn counting_semaphore(&self, name: &str) -> CountingSemaphore {
        CountingSemaphore::new(&self.0, name)
    }

    /// A count-down latch: its waiters go on when it has been counted down to zero; see [`Latch`]. On Redis it is
    /// Redisson's `RCountDownLatch`. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let imported = client.latch("imported");
    /// imported.set_count_if_new(2).await?;
    /// imported.count_down().await?;
    /// imported.count_down().await?;
    /// imported.wait().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(&self.0, name)
    }

    /// A double barrier: so many members, in any processes, enter together and leave together; see [`Barrier`]. All must
    /// name the same number. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let solver = client.barrier("solver", 2);
    /// let (one, other) = tokio::try_join!(solver.enter(), solver.enter())?;
    /// tokio::try_join!(one.leave(), other.leave())?;
    /// # Ok(()) }
    /// ```
    pub fn barrier(&self, name: &str, members: u32) -> Barrier {
        Barrier::new(&self.0, name, members)
    }

    /// Several locks as one: its guard holds all of them or none. They may be locks of other clients and stores; the
    /// same lock twice counts once. The result is an ordinary [`Lock`], cheap to make.
    ///
    /// A waiter never holds a part while it waits. So sets that overlap cannot deadlock, in whatever order they are
    /// acquired, also with Java's `RMultiLock`. Each part is a plain lock in its store and excludes other users of that
    /// lock. If one part is lost, the whole set is lost. Lease, drift and identity come from this client. A
    /// [`close`](Self::close) of the client of a part waits for the guard, as that of this client does. A set has no
    /// fencing token: acquire a [`FencedLock`](crate::FencedLock) separately, beside the set.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) for an empty set,
    /// [`InvalidName`](crate::ErrorKind::InvalidName), and [`Unsupported`](crate::ErrorKind::Unsupported) for a side of a
    /// read-write lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
    /// let both = client.multi_lock([&from, &to])?.acquire().await?;
    /// assert!(from.try_acquire().await?.is_none());
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn multi_lock<L: Borrow<Lock>>(&self, locks: impl IntoIterator<Item = L>) -> Result<Lock> {
        multi::lock_of_all(&self.0, locks)
    }

    /// This client's identity on the wire: a UUID, the part before the colon of every owner it writes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert_eq!(client.id().len(), 36);
    /// # Ok(()) }
    /// ```
    pub fn id(&self) -> &str {
        self.0.mint.client().as_str()
    }

    /// Names of held locks on this store that match a glob (`*` and `?`), prefix included. Awaited, the result is a
    /// sorted list of all; see [`HeldNames`] for the stream and for a limit. Sends nothing until it is polled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("stock:1").acquire().await?;
    /// assert_eq!(client.list("stock:*").await?, ["stock:1"]);
    /// held.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn list(&self, pattern: &str) -> HeldNames {
        HeldNames::new(Arc::clone(&self.0), pattern)
    }

    /// Asks the store whether the hold of a [`Sequencer`] has its lock now. `false`: it was released, lost or taken
    /// over.
    ///
    /// The answer was true at one moment between the call and its return: a linearizable read on etcd, `sync` and a
    /// read on ZooKeeper. The hold may end right after that moment. Only the holder knows for how long its lock is
    /// still proved.
    ///
    /// The name in the sequencer includes its prefix; this client does not add its own.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), before any traffic, on stores that cannot check;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when there is no answer: then the result is unknown.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// # let header = "tidelock1:exclusive:7:primary";
    /// // `header` came with a request: is its sender still the primary?
    /// if !client.verify(&header.parse()?).await? {
    ///     println!("refused: you are not the primary any more");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn verify(&self, sequencer: &Sequencer) -> Result<bool> {
        let (name, generation) = sequencer.parts();
        let sequencers = self.0.home.store.front().extensions().sequencers;
        let asked = async {
            self.0.refuse_if_closed()?;
            let sequencers = sequencers.ok_or_else(sequencer::unsupported)?;
            let verified = sequencers.verify(name, generation);
            self.0.steward.answered(verified).await
        };
        asked
            .await
            .map_err(|error| error.without_effect().on_lock(name))
    }

    /// What this client knows of itself and its store: for metrics, and for health checks that must not wait. Sends
    /// nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let status = client.status();
    /// println!("{} locks held, {} waiting", status.held, status.waiting);
    /// # Ok(()) }
    /// ```
    pub fn status(&self) -> ClientStatus {
        let core = &self.0;
        let health = core.home.store.health();
        ClientStatus {
            is_connected: health.is_answering(),
            since_last_answer: health.since_last_answer(),
            held: core.steward.table.len(),
            waiting: core.waiting.count(),
            is_closing: self.is_closing(),
        }
    }

    /// Asks the store one question that changes nothing: the state of the lock `tidelock:ping`, prefix added, which
    /// needs no rights beyond those of [`Lock::inspect`]. For readiness probes. It returns within one [response
    /// timeout](crate::ClientBuilder::response_timeout). In a cluster it asks the node of that name.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer,
    /// [`Refused`](crate::ErrorKind::Refused) if it rejects the client, [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let is_ready = client.ping().await.is_ok();
    /// assert!(is_ready);
    /// # Ok(()) }
    /// ```
    pub async fn ping(&self) -> Result<()> {
        let core = &self.0;
        core.refuse_if_closed()?;
        let name = Name::new(format!("{}{PING}", core.settings.prefix))?;
        let (store, limit) = (&core.home.store, core.settings.response_timeout);
        let asked = async {
            let read = core.timers.limit(limit, store.front().inspect(&name)).await;
            let answer = read.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Unavailable)
                    .because(format!("no answer to a ping within {limit:?}")))
            });
            store.heard(&name, &answer);
            answer
        };
        match core.steward.answered(asked).await {
            // Something else stands at that name: the store has answered.
            Err(error) if error.kind() == ErrorKind::WrongType => Ok(()),
            answer => answer.map(drop).map_err(Error::without_effect),
        }
    }

    /// Checks everything about the store that weakens a lock, as `tidelock doctor` does.
    ///
    /// On Redis and Valkey it writes, because only the commands of a lock show whether a user may run them: locks under
    /// `tidelock:probe:{…}` with a random id, which it releases and which expire after a second; the token counter
    /// `redisson_lock_token:{tidelock:probe}`, which it deletes; and messages on the channel of `tidelock:probe`. On all
    /// other stores it only reads; on etcd it also sends a put under a condition that no key meets. To find out whether
    /// the store answers use [`ping`](Self::ping), which only reads on every store.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable). If the store denies one of the queries, that is a finding, not
    /// an error.
    ///
    /// # Cancel safety
    /// Cancel safe. If a call on Redis is dropped, its probe lock expires after a second; its counter may stay.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// for finding in client.diagnose().await? {
    ///     println!("{:?} {}: {}", finding.severity, finding.subject, finding.meaning);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.0.refuse_if_closed()?;
        let asked = self.0.home.store.front().diagnose();
        let found = self.0.steward.answered(asked).await;
        found.map_err(Error::without_effect)
    }

    /// What this client has counted since it connected: acquires, waits, losses, and how long they took. Sends no
    /// request. The clones of a client count together; a closed client keeps its numbers.
    ///
    /// With the cargo feature `metrics`, the `metrics` facade gets the same.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(client.lock("job").try_acquire().await?.is_none());
    /// let stats = client.stats();
    /// assert_eq!((stats.acquired(), stats.busy, stats.held), (1, 1, 1));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Stats {
        self.0.steward.instruments.stats()
    }

    /// Resolves when a [`close`](Self::close) begins: take no new work, and finish what you have within the grace
    /// period. The locks are still held and renewed. If the client is only dropped, it never resolves.
    ///
    /// # Cancel safety
    /// Cancel safe; it only listens.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let terminated = client.clone();
    /// tokio::spawn(async move { terminated.close(Duration::from_secs(5)).await });
    /// client.closing().await; // `lost` and `while_held` stay quiet for five seconds more
    /// # Ok(()) }
    /// ```
    pub fn closing(&self) -> Closing {
        Closing::new(&self.0.steward.closed)
    }

    /// Whether a [`close`](Self::close) has begun. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(!client.is_closing());
    /// client.close(std::time::Duration::ZERO).await;
    /// assert!(client.is_closing());
    /// # Ok(()) }
    /// ```
    pub fn is_closing(&self) -> bool {
        self.0.steward.closed.is_set()
    }

    /// Closes the client and all its clones. In this order:
    ///
    /// 1. It refuses new acquisitions, ends waits with [`Closed`](crate::ErrorKind::Closed), and fires
    ///    [`closing`](Self::closing).
    /// 2. It waits at most `grace` for the guards to be dropped. Their locks are renewed meanwhile: work in
    ///    [`while_held`](crate::Guard::while_held) can finish.
    /// 3. It fires [`lost`](crate::Guard::lost) with [`LostReason::Closed`](crate::LostReason::Closed) for the remaining
    ///    locks, releases them, and closes the connections.
    ///
    /// A [`multi_lock`](Self::multi_lock) or a lock of a [`RedLock`](crate::RedLock) that another client has made with a
    /// lock or the store of this one is held by both: this client waits for its guard, and ends it in step 3, also if the
    /// `RedLock` would have a majority without this client. `closing` of such a guard tells only of the client that made
    /// the set.
    ///
    /// Returns the number of locks that were still held after `grace`. Of several calls, the grace period that ends
    /// first counts. On shutdown, stop what brings new work first, let it drain, and then call `close`.
    ///
    /// It returns within `grace` plus one [response timeout](crate::ClientBuilder::response_timeout), even if the store
    /// does not answer. A lock whose release the store has not confirmed by then stays until its lease ends.
    ///
    /// # Cancel safety
    /// If the future is dropped early, the client is closed anyway, but its locks stay held until their guards are
    /// dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// let left = client.close(std::time::Duration::from_millis(10)).await;
    /// assert_eq!(left, 1); // the guard did not go in time, so its lock was released
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn close(&self, grace: Duration) -> usize {
        let core = &self.0;
        // Only the first of several calls announces the close; later calls wait with it.
        if core.steward.closed.set() {
            core.home.close();
            core.plain.iter().for_each(QueuedStore::close);
        }
        let guests = &core.steward.guests;
        let emptied = future::join(core.steward.table.emptied(), guests.gone());
        let emptied = core.steward.unless_ended(emptied.map(drop));
        core.timers.limit(grace, emptied).await;
        let left = self.release_all() + guests.end();
        // One response timeout covers all remaining requests to the store. Locks whose release gets no answer end with
        // their leases.
        let end = core.timers.now() + core.settings.response_timeout;
        let settled = future::join(core.steward.settled(), guests.gone());
        let settled = core.steward.unless_ended(settled.map(drop));
        core.timers.until(end, settled).await;
        core.steward.retire();
        core.timers.until(end, core.steward.ended()).await;
        // Both closes start even if the time is over; once started they complete without a waiter.
        let closed = future::join(
            core.home.store.back().close(),
            core.home.store.front().close(),
        );
        let closed = core.steward.unless_ended(closed.map(drop));
        core.timers.until(end, closed).await;
        left
    }

    /// Whether nothing is held and the steward has nothing left to do. For tests that look for leaks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(!client.is_idle());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "testing")]
    pub fn is_idle(&self) -> bool {
        self.0.steward.is_idle()
    }

    fn release_all(&self) -> usize {
        let steward = &self.0.steward;
        // Registered before the removal. Otherwise another call of `close` would see neither the holds nor their releases,
        // and would not wait for them.
        let _in_flight = steward.in_flight();
        // We empty the lease table first. Otherwise the steward would keep renewing a lock whose release fails.
        let rest = steward.table.drain();
        let left = rest.len();
        for entry in rest {
            steward.end_by_close(entry);
        }
        left
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("store", &self.0.home.store.front())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use crate::store::{Backend, BoxFuture, ready};
    use crate::testing::{Twist, Twisted};

    /// Gives this answer to each look at a lock.
    #[derive(Debug)]
    struct Answers(ErrorKind);

    impl Twist for Answers {
        fn inspect<'a>(
            &'a self,
            _inner: &'a dyn Backend,
            _name: &'a Name,
        ) -> BoxFuture<'a, Result<Snapshot>> {
            ready(Err(Error::new(self.0)))
        }
    }

    #[tokio::test]
    async fn a_ping_fails_unless_the_store_answers() {
        for (answer, told) in [
            // Somebody keeps something else under that name.
            (ErrorKind::WrongType, None),
            (ErrorKind::Refused, Some(ErrorKind::Refused)),
            (ErrorKind::Unavailable, Some(ErrorKind::Unavailable)),
            (ErrorKind::OutcomeUnknown, Some(ErrorKind::Unavailable)),
        ] {
            let builder = Client::builder().publish_process_info(false);
            let client = builder.connect_to(async |env| {
                let store = crate::testing::open("memory:", env).await?;
                Ok(Twisted::wrap(store, Answers(answer)))
            });
            let pinged = client.await.unwrap().ping().await;
            assert_eq!(pinged.err().map(|error| error.kind()), told, "{answer:?}");
        }
    }
}
