//! The contract between the one acquisition loop and a store, and its plain data.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod glob;
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

pub use self::glob::matches_glob;
pub use self::released::{Awaited, Heard, Released};
pub use crate::acknowledge::{Acknowledge, Acknowledged};
pub use crate::core::bond::Bond;
pub use crate::core::caller::Asker;
pub(crate) use crate::core::chance;
pub use crate::core::clock::{Clock, Moment};
pub use crate::core::rt::Background;
pub use crate::core::signals::{Signals, Wake};
pub use crate::core::timers::{Timer, Timers};
pub use crate::name::Name;
pub use crate::owner::{ClientId, OwnerId};

use crate::error::{Error, Result};
use crate::fence::SqlFence;
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Snapshot};

/// A future behind a pointer: what makes [`Backend`] usable as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What kind of lock a name is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One holder.
    Mutex,
    /// One holder, and every grant has a token larger than all before. Excludes [`Mutex`](Self::Mutex) on the same name.
    Fenced,
    /// Any number of holders, all of this kind. Only for stores that [have it](Capabilities::read_write), as the next one.
    Read,
    /// One holder. Excludes every kind on the same name.
    Write,
}

impl Kind {
    /// A side of a read-write lock. Who waits for one has a place in a queue of the store, whatever the store does for
    /// other kinds: a stream of readers would otherwise leave no gap for a writer.
    pub fn is_read_write(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Both may hold the lock at the same time.
    pub fn shares_with(self, other: Self) -> bool {
        self == Self::Read && other == Self::Read
    }
}

/// All that is needed to renew, release or clean up one acquisition. Made before the first byte is sent, so that no
/// cleanup ever depends on a reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// What kind of lock.
    pub kind: Kind,
    /// Which lock.
    pub name: Name,
    /// Who acquires; used for this one acquisition only.
    pub owner: OwnerId,
}

/// One question: may this ticket hold the lock now?
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who asks for what.
    pub ticket: Ticket,
    /// For how long, if it is granted.
    pub lease: Duration,
    /// How long the caller is ready to wait in all. Zero: it only wants to know, so make no effort to arm a wake.
    pub patience: Duration,
    /// The caller has a [`Wake`] for this lock already; do not arm another.
    pub armed: bool,
    /// How many replicas must have acknowledged the grant before it is reported. A store without replicas has nothing to ask.
    pub wish: Acknowledge,
    /// Of a set of stores: to which member that wake belongs. A single store has no use for it.
    pub part: usize,
    /// How many more fencing tokens to reserve with the grant, for those of this process who come next. A store that
    /// cannot, or need not, reserves none: see [`Grant::more`].
    pub spare: u32,
    /// How long nobody is to be granted the lock after this hold has ended by itself. A release ends it at once, and so does
    /// force. Zero: not at all. Only asked where [`Capabilities::delays`] says so.
    pub delay: Duration,
    /// Whether anybody still waits for the answer.
    pub asker: Asker,
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Attempt {
    /// It holds the lock.
    Acquired(Grant),
    /// Somebody else does.
    Held(Wait),
}

/// What comes with a lock that was granted.
#[derive(Debug, Clone, Default)]
pub struct Grant {
    /// The fencing token, where the store counts. Always there for [`Kind::Fenced`].
    pub token: Option<FencingToken>,
    /// How many tokens after that one were reserved with it: no later grant of this lock has one of them.
    pub more: u32,
    /// What was reached of the wish. `None`: nobody was to be asked.
    pub acknowledged: Option<Acknowledged>,
    /// What the hold depends on besides its lease. `None`: on nothing.
    pub bond: Option<Bond>,
}

/// What comes with a refusal.
#[derive(Debug, Default)]
pub struct Wait {
    /// Resolves when the answer may have changed; armed before the question was decided. `None`: the caller polls.
    pub wake: Option<Wake>,
    /// When to ask again at the latest: what is left of the holder's lease, as far as it is known.
    pub recheck: Option<Duration>,
}

/// One lease to be renewed.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// Whose.
    pub ticket: Ticket,
    /// To at least this much from now; never less than what stands.
    pub lease: Duration,
    /// How many replicas must have acknowledged it before it counts as [`Kept`](Renewed::Kept).
    pub wish: Acknowledge,
}

/// What became of one [`Renewal`].
#[derive(Debug)]
pub enum Renewed {
    /// It holds the lock, for the lease asked for.
    Kept,
    /// It does not hold the lock any more.
    Gone,
    /// It does not hold it alone any more: the key is another kind of lock as well, or something else altogether.
    WrongType,
    /// This one could not be asked for; the others of the batch are not concerned.
    Failed(Error),
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a table of abilities, not a state"
)]
pub struct Capabilities {
    /// A waiter is woken by the store; otherwise the loop polls.
    pub wakes: bool,
    /// Grants carry fencing tokens for [`Kind::Fenced`].
    pub tokens: bool,
    /// A refused ticket keeps a place in a queue of the store until it is withdrawn.
    pub queues: bool,
    /// Processes of other machines can share the locks.
    pub shared: bool,
    /// A grant that was reported survives a crash of the store.
    pub durable: bool,
    /// A lock whose hold ended without a release can be kept from everybody for a time: [`Ask::delay`].
    pub delays: bool,
    /// It can be asked whether a given grant has the lock now: [`Backend::check`].
    pub sequencers: bool,
    /// [`Kind::Read`] and [`Kind::Write`] can be asked for.
    pub read_write: bool,
}

/// One page of [`Backend::list`].
#[derive(Debug, Default)]
pub struct Page {
    /// Names of locks that are held, in no order. A name may come twice.
    pub names: Vec<String>,
    /// Where to go on. `None`: that was all.
    pub next: Option<u64>,
}

/// Answers single questions about one store. Holds no loop, no timer, no opinion about waiting.
///
/// # Contract
/// 1. `attempt` is decided at one instant on the server. Asked again with the same ticket, after `Held` or after an
///    answer that was lost, it neither queues twice nor counts twice. It never shortens a lease that stands.
/// 2. When `ask.patience > 0`, the store wakes and the ask is not `armed`, a `Held` carries a wake armed *before* that instant.
///    Where arming costs nothing it does so also for `patience == 0`. A store that cannot arm just now says so by `wake: None`.
/// 3. `release` ends the ticket's acquisition. `withdraw` does so too, removes whatever else the ticket left (a place in a
///    queue), and makes an attempt of the ticket that arrives later take no effect. Both may be repeated.
/// 4. No method retries what may have taken effect. An error that may have taken effect has the kind
///    [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), one that surely has not [`Unavailable`](crate::ErrorKind::Unavailable) or another.
/// 5. A grant or a renewal that is not acknowledged as it was wished is no success: the grant is undone, and reported as
///    [`Unavailable`](crate::ErrorKind::Unavailable) if that is certain; the renewal is [`Failed`](Renewed::Failed).
/// 6. Each call ends within the response timeout of its [`Env`], with an error if need be.
/// 7. A future of this trait may be polled on several runtimes in turn, the last of them the background's: it must not
///    own timers or sockets of the runtime it was first polled on; use [`Timers`].
/// 8. A grant stands until its lease ends, or what its [`Bond`] names does; nobody else gets the lock before. Where a store
///    can only tell that this has ended, it severs the bond at that moment.
/// 9. Tickets of a read-write lock are served in the order in which they came: one of [`Kind::Read`] waits until no other
///    kind is before it, all others until nobody is. One that was refused with patience keeps its place until it is
///    withdrawn, or has not been asked for during two leases. All kinds of one name stand in each other's way, and every
///    grant of a read-write lock has a token.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What the store can do. Constant.
    fn capabilities(&self) -> Capabilities;
    /// May this ticket hold the lock?
    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>>;
    /// An earlier request of this ticket may still take effect, although the question was answered: then the ticket is to
    /// be withdrawn, and not asked again. Only sets of stores know such answers.
    fn in_doubt(&self, _ticket: &Ticket) -> bool {
        false
    }
    /// Renews a batch of one lane; answers in order.
    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>>;
    /// Locks of different lanes fail apart: a batch of renewals never mixes lanes, and a lane that hangs holds up no other.
    fn lane(&self, name: &Name) -> u64;
    /// Gives up what the ticket holds.
    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Removes whatever the ticket left or may still leave.
    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Whether the grant with that token has the lock now, by a linearizable read: not by what a server remembers that may
    /// lag. Asked only where [`Capabilities::sequencers`] says so.
    fn check<'a>(
        &'a self,
        _name: &'a Name,
        _generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let refused = Err(Error::new(crate::ErrorKind::Unsupported));
        Box::pin(std::future::ready(refused))
    }
    /// Frees the lock, whoever holds it, and wakes its waiters. False: nobody held it.
    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>>;
    /// What can be seen of a lock.
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>>;
    /// Names of held locks that match a glob (`*`, `?`), a page at a time, beginning with cursor 0.
    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>>;
    /// Leaves this process's details where operators find them, for that time.
    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>>;
    /// Removes what [`announce`](Self::announce) has left of this client.
    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>>;
    /// Looks at everything about the store that weakens a lock.
    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>>;
    /// Which life of the server answers now. Asked after an attempt it is the life that was attempted, or a later one.
    /// `None`: it cannot be told.
    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// How long may pass between two looks of a waiter that has a [`Wake`], where the store does not always wake, but does so
    /// now. `None`: as long as between those of one that has none. Costs no traffic.
    fn pause(&self, _name: &Name) -> Option<Duration> {
        None
    }
    /// What this client has heard of the releases of that lock. `None`: it does not listen now. Costs no traffic.
    fn heard(&self, _name: &Name) -> Option<Heard> {
        None
    }
    /// The same store, its locks written as one plain key each, as clients of other languages do. `None`: it has no such locks.
    fn plain(&self) -> Option<Arc<dyn Backend>> {
        None
    }
    /// A statement that fails a transaction of the user's own unless this token is still the newest. `None`: the store is no
    /// database in which users have transactions.
    fn sql_fence(&self, _name: &Name, _token: FencingToken) -> Option<SqlFence> {
        None
    }
    /// Ends connections and subscriptions in good order.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Two faces of one store: the callers' own, and the steward's, which shares no connection with it.
#[derive(Debug, Clone)]
pub struct Store {
    /// For the callers' tasks.
    pub front: Arc<dyn Backend>,
    /// For the steward's thread.
    pub back: Arc<dyn Backend>,
}

impl Store {
    /// A store that cannot be blocked by its callers and needs one face only.
    pub fn single(backend: Arc<dyn Backend>) -> Self {
        Self {
            front: Arc::clone(&backend),
            back: backend,
        }
    }
}

/// One life of a server's process: a server that has forgotten everything is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// Different for every start.
    pub id: Arc<str>,
    /// For how long at least it has been up.
    pub up: Duration,
}

/// Beneath an [`Unavailable`](crate::ErrorKind::Unavailable) error: nothing is wrong with the store, it only has to wait
/// until it is sure of something. Whoever waits for a lock is left waiting for that time.
#[derive(Debug, Clone, Copy)]
pub struct NotYet {
    /// When it will be ready, at the latest.
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

/// What a store is given at its start.
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
    /// How long replicas are waited for; a store waits less where the response timeout or a lease demands it.
    pub acknowledge_within: Duration,
    /// User and password, asked for at each connect. `None`: those of the URL.
    pub credentials: Option<Arc<dyn Fn() -> crate::Credentials + Send + Sync>>,
    /// PEM files for TLS.
    pub tls: TlsFiles,
    /// Whether a store that is not there yet may be made: the file of a path, the tables in a database. Otherwise it is an error.
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
    /// Certificates of the authorities to trust instead of the public ones.
    pub ca: Option<std::path::PathBuf>,
    /// The client's certificate.
    pub cert: Option<std::path::PathBuf>,
    /// The key of the client's certificate.
    pub key: Option<std::path::PathBuf>,
}
