//! The contract between the acquire loop and a store, and the plain data types of that contract.

mod bond;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod glob;
mod liveness;
#[cfg(feature = "memcached")]
pub(crate) mod memcached;
pub mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod percent;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod registry;
mod released;
pub(crate) mod set;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
pub(crate) mod tls;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use self::bond::Bond;
pub use self::glob::matches_glob;
pub(crate) use self::liveness::Caller;
pub use self::liveness::Liveness;
pub use self::released::{Awaited, Released, ReleasesSeen};
pub use crate::acknowledge::{Acknowledged, ReplicaAck};
pub use crate::engine::runtime::background::Background;
pub use crate::engine::runtime::clock::{BootInstant, Clock};
pub(crate) use crate::engine::runtime::jitter;
pub use crate::engine::runtime::timers::{Timer, Timers};
pub use crate::engine::runtime::wakes::{Wake, WakeChannels};
pub use crate::name::Name;
pub use crate::types::{ClientId, LockKind, OwnerId};

use crate::error::{Error, Result};
use crate::fence::SqlFence;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::types::FencingToken;

/// A boxed future. It makes [`Backend`] usable as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything needed to renew, release or clean up one acquisition. It exists before the first byte is sent, so that
/// cleanup never depends on a reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The kind of the lock.
    pub kind: LockKind,
    /// The name of the lock.
    pub name: Name,
    /// The owner, used for this one acquisition only.
    pub owner: OwnerId,
}

/// One attempt: may this ticket hold the lock now?
#[derive(Debug, Clone)]
pub struct AttemptRequest {
    /// The acquisition and its lock.
    pub ticket: Ticket,
    /// The lease of the grant.
    pub lease: Duration,
    /// How long the caller waits in total. Zero: the caller only wants one answer, so the store need not arm a wake.
    pub patience: Duration,
    /// The caller already has a [`Wake`] for this lock; the store does not arm another.
    pub armed: bool,
    /// How many replicas must acknowledge the grant before it is reported. A store without replicas ignores this.
    pub wish: ReplicaAck,
    /// In a set of stores, the member that the caller's wake belongs to. A single store ignores this.
    pub part: usize,
    /// How many more fencing tokens to reserve with the grant, for later acquisitions of this process. A store that
    /// cannot or need not do so reserves none: see [`Grant::more`].
    pub spare: u32,
    /// How long nobody may get the lock after this hold ends without a release. A release or a force release ends the
    /// delay at once. Zero: no delay. Set only if [`Capabilities::delays`] is true.
    pub delay: Duration,
    /// Tells whether the caller still waits for the answer.
    pub liveness: Liveness,
}

/// The answer to an [`AttemptRequest`].
#[derive(Debug)]
pub enum Attempt {
    /// The ticket holds the lock.
    Acquired(Grant),
    /// Another ticket holds the lock.
    Held(Wait),
}

/// The details of a grant.
#[derive(Debug, Clone, Default)]
pub struct Grant {
    /// The fencing token, if the store counts. Always present for [`LockKind::Fenced`].
    pub token: Option<FencingToken>,
    /// How many tokens after this one were reserved with it. No later grant of this lock gets one of them.
    pub more: u32,
    /// The acknowledgements reached. `None`: none were requested.
    pub acknowledged: Option<Acknowledged>,
    /// A condition that the hold depends on besides its lease. `None`: the lease only.
    pub bond: Option<Bond>,
}

/// The details of a refusal.
#[derive(Debug, Default)]
pub struct Wait {
    /// Resolves when the answer may have changed. It is armed before the attempt is decided. `None`: the caller polls.
    pub wake: Option<Wake>,
    /// The latest time for the next attempt: the rest of the holder's lease, if known.
    pub recheck: Option<Duration>,
}

/// A request to renew one lease.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The ticket of the lease.
    pub ticket: Ticket,
    /// The new minimum length from now. A renewal never shortens a lease.
    pub lease: Duration,
    /// How many replicas must acknowledge the renewal before it counts as [`Kept`](Renewed::Kept).
    pub wish: ReplicaAck,
}

/// The result of one [`Renewal`].
#[derive(Debug)]
pub enum Renewed {
    /// The ticket holds the lock for the requested lease.
    Kept,
    /// The ticket no longer holds the lock.
    Gone,
    /// The ticket no longer holds the lock alone: the key is also used by another kind of lock, or holds something
    /// else.
    WrongType,
    /// This renewal failed. The others in the batch are not affected.
    Failed(Error),
}

/// The capabilities of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a table of abilities, not a state"
)]
pub struct Capabilities {
    /// The store wakes waiters. Otherwise the acquire loop polls.
    pub wakes: bool,
    /// Grants carry fencing tokens for [`LockKind::Fenced`].
    pub tokens: bool,
    /// A refused ticket keeps a position in a queue of the store until it is withdrawn.
    pub queues: bool,
    /// Processes of other machines can share the locks.
    pub shared: bool,
    /// A reported grant survives a crash of the store.
    pub durable: bool,
    /// After a hold that ended without a release, the store can delay the next grant: [`AttemptRequest::delay`].
    pub delays: bool,
    /// The store can tell whether a given grant has the lock now: [`Backend::check`].
    pub sequencers: bool,
    /// The store supports [`LockKind::Read`] and [`LockKind::Write`].
    pub read_write: bool,
}

/// One page of [`Backend::list`].
#[derive(Debug, Default)]
pub struct Page {
    /// Names of held locks, in no order. A name may appear twice.
    pub names: Vec<String>,
    /// The cursor of the next page. `None`: this was the last page.
    pub next: Option<u64>,
}

/// Executes single requests on one store. Has no retry loop and no timer, and never waits for a lock.
///
/// # Contract
/// 1. The server decides `attempt` at one instant. A repeated attempt of the same ticket, after `Held` or after a lost
///    answer, neither queues twice nor counts twice. It never shortens a lease.
/// 2. When `ask.patience > 0`, the store wakes and the ask is not `armed`, a `Held` carries a wake armed *before* that
///    instant. If arming costs nothing, it does so for `patience == 0` too. A store that cannot arm at the moment
///    returns `wake: None`.
/// 3. `release` ends the ticket's acquisition. `withdraw` does the same, removes anything else that the ticket left (a
///    position in a queue), and makes any later attempt of the ticket have no effect. Both may be repeated.
/// 4. No method retries a request that may have taken effect. An error that may have taken effect has the kind
///    [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown); one that certainly has not has the kind
///    [`Unavailable`](crate::ErrorKind::Unavailable) or another.
/// 5. A grant or a renewal without the requested acknowledgements is no success. The grant is undone, and reported as
///    [`Unavailable`](crate::ErrorKind::Unavailable) if the undo is certain; the renewal is
///    [`Failed`](Renewed::Failed).
/// 6. Each call ends within the response timeout of its [`Env`], if necessary with an error.
/// 7. A future of this trait may be polled on several runtimes in turn, the last of them the background's. It must not
///    own timers or sockets of the runtime that first polled it; use [`Timers`].
/// 8. A grant is valid until its lease ends or the condition of its [`Bond`] ends; nobody else gets the lock before. If
///    a store can only detect the end, it severs the bond at that moment.
/// 9. Tickets of a read-write lock are served in order of arrival. A ticket of [`LockKind::Read`] waits until no other kind
///    is ahead of it; all other tickets wait until nothing is ahead. A ticket that was refused with patience keeps its
///    position until it is withdrawn, or until it makes no attempt for two leases. All kinds on one name compete with
///    each other, and every grant of a read-write lock has a token.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The capabilities of the store. They never change.
    fn capabilities(&self) -> Capabilities;
    /// Attempts to acquire the lock for this ticket.
    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, Result<Attempt>>;
    /// True if an earlier request of this ticket may still take effect although the attempt was answered. The caller
    /// must then withdraw the ticket and make no further attempt. Only sets of stores have such answers.
    fn in_doubt(&self, _ticket: &Ticket) -> bool {
        false
    }
    /// Renews a batch of one lane. The results are in the order of the batch.
    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>>;
    /// The lane of a lock. Lanes fail independently: a batch of renewals never mixes lanes, and a lane that hangs does
    /// not delay another.
    fn lane(&self, name: &Name) -> u64;
    /// Releases the lock of the ticket.
    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Removes everything that the ticket left, and makes its late requests have no effect.
    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Tells whether the grant with this token has the lock now. It uses a linearizable read, not the state of a server
    /// that may lag. Called only if [`Capabilities::sequencers`] is true.
    fn check<'a>(
        &'a self,
        _name: &'a Name,
        _generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let refused = Err(Error::new(crate::ErrorKind::Unsupported));
        Box::pin(std::future::ready(refused))
    }
    /// Frees the lock regardless of its holder, and wakes its waiters. Returns false if the lock was free.
    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>>;
    /// Returns the visible state of a lock.
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>>;
    /// Lists the names of held locks that match a glob (`*`, `?`), one page at a time, starting with cursor 0.
    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>>;
    /// Publishes the details of this process for operators, for the time `ttl`.
    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>>;
    /// Removes the details that [`announce`](Self::announce) published for this client.
    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>>;
    /// Checks the store for conditions that weaken a lock.
    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>>;
    /// Returns the server run that answers now. After an attempt, this is the run that decided the attempt, or a later
    /// one. `None`: unknown.
    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// The poll interval of a waiter that has a [`Wake`], in a store that does not always wake but does at the moment.
    /// `None`: the same as for a waiter without a wake. Sends no request.
    fn pause(&self, _name: &Name) -> Option<Duration> {
        None
    }
    /// The releases of this lock that the client has noticed. `None`: the client is not listening. Sends no request.
    fn releases_seen(&self, _name: &Name) -> Option<ReleasesSeen> {
        None
    }
    /// The same store, with each lock written as one plain key, as clients in other languages do. `None`: the store has
    /// no such locks.
    fn plain(&self) -> Option<Arc<dyn Backend>> {
        None
    }
    /// Returns a statement that fails the user's own transaction unless this token is still the newest. `None`: the
    /// store is not a database with user transactions.
    fn sql_fence(&self, _name: &Name, _token: FencingToken) -> Option<SqlFence> {
        None
    }
    /// Closes connections and subscriptions gracefully.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The two sides of one store: one for the callers and one for the steward. They share no connection.
#[derive(Debug, Clone)]
pub struct Store {
    /// For the callers' tasks.
    pub front: Arc<dyn Backend>,
    /// For the steward's thread.
    pub back: Arc<dyn Backend>,
}

impl Store {
    /// A store that its callers cannot block, so one connection serves both sides.
    pub fn single(backend: Arc<dyn Backend>) -> Self {
        Self {
            front: Arc::clone(&backend),
            back: backend,
        }
    }
}

/// One run of a server process. A server that lost all its state is a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// The id of the run, different for every start.
    pub id: Arc<str>,
    /// The minimum time that the server has been up.
    pub up: Duration,
}

/// The cause of an [`Unavailable`](crate::ErrorKind::Unavailable) error of a healthy store that must wait before it can
/// answer safely. Waiters keep waiting during that time.
#[derive(Debug, Clone, Copy)]
pub struct NotYet {
    /// The maximum time until the store is ready.
    pub within: Duration,
}

impl NotYet {
    pub(crate) fn of(error: &Error) -> Option<Duration> {
        let source = std::error::Error::source(error)?;
        Some(source.downcast_ref::<Self>()?.within)
    }
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ready within {:?}", self.within)
    }
}

impl std::error::Error for NotYet {}

/// The environment of a store, passed at its start.
#[derive(Clone)]
pub struct Env {
    /// The clock and the timers; they work on every runtime.
    pub timers: Timers,
    /// The steward's thread, for background connections.
    pub background: Background,
    /// Each request ends within this time.
    pub response_timeout: Duration,
    /// The client's lease: no recheck is later than this, whatever a foreign holder wrote.
    pub lease: Duration,
    /// How long to wait for replicas. A store waits less if the response timeout or a lease requires it.
    pub acknowledge_within: Duration,
    /// Returns user and password at each connect. `None`: those of the URL.
    pub credentials: Option<Arc<dyn Fn() -> crate::Credentials + Send + Sync>>,
    /// PEM files for TLS.
    pub tls: TlsFiles,
    /// Whether to create a missing store: the file of a path, the tables in a database. Otherwise a missing store is an
    /// error.
    pub create: bool,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// PEM files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities to trust instead of the public ones.
    pub ca: Option<std::path::PathBuf>,
    /// The client's certificate.
    pub cert: Option<std::path::PathBuf>,
    /// The key of the client's certificate.
    pub key: Option<std::path::PathBuf>,
}
