//! The contract between the acquire loop and a store, and the plain data types of that contract.

pub(crate) mod abilities;
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
pub(crate) mod beats;
mod bond;
pub(crate) mod connect_once;
mod contract;
#[cfg(any(
    feature = "etcd",
    feature = "memcached",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
pub(crate) mod credentials;
mod doctor;
pub(crate) mod errors;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod fair_waiters;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod glob;
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    all(unix, any(feature = "etcd", feature = "memcached", feature = "redis"))
))]
pub(crate) mod keepalive;
pub(crate) mod kinds;
pub(crate) mod lazy;
mod liveness;
#[cfg(feature = "memcached")]
pub(crate) mod memcached;
pub mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod percent;
#[cfg(any(
    feature = "etcd",
    feature = "postgres",
    feature = "sqlite",
    feature = "zookeeper"
))]
pub(crate) mod permit_order;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(all(feature = "redis", feature = "unstable-backend"))]
#[doc(hidden)]
pub mod redis_scripts;
pub(crate) mod registry;
mod released;
mod request;
pub(crate) mod set;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) mod side_order;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sweeper;
#[cfg(any(feature = "etcd", feature = "memcached", feature = "redis"))]
pub(crate) mod tcp;
pub(crate) mod ticket_key;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
pub(crate) mod tls;
pub(crate) mod url;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::bond::Bond;
pub(crate) use self::contract::POLLER_BEAT;
pub use self::contract::{
    Backend, BoxFuture, CLIENT_INFO_TTL, Capabilities, CountChange, CountChanged, CountKind,
    Counts, Extensions, HearReleases, Incarnation, LatchChange, ListAwaited, MarkChange, Marks,
    Operate, Page, PermitChange, PermitCounter, PollerBeat, Pollers, SemaphoreChange, ServerRuns,
    TokenCounter, VerifySequencers, certain, ready,
};
pub use self::glob::matches_glob;
pub(crate) use self::liveness::Caller;
pub use self::liveness::Liveness;
pub use self::released::{Awaited, Released, ReleasesSeen};
pub use self::request::{
    Attempt, AttemptReply, AttemptRequest, Grant, Renewal, Renewed, Ticket, Wait,
};
pub use crate::acknowledge::{Acknowledged, ReplicaAck};
pub use crate::engine::runtime::background::Background;
pub use crate::engine::runtime::clock::{BootInstant, Clock};
pub use crate::engine::runtime::timers::{Timer, Timers};
pub use crate::engine::runtime::wakes::{Wake, WakeChannels};
pub use crate::name::Name;
pub use crate::types::{ClientId, LockKind, OwnerId};

use crate::error::Error;

/// The two sides of one store: one for the callers and one for the steward. They share no connection.
#[derive(Debug, Clone)]
pub struct Store {
    /// For the callers' tasks.
    pub front: Arc<dyn Backend>,
    /// For the steward's thread.
    pub back: Arc<dyn Backend>,
    /// The same store, with each lock written as one plain key, as clients in other languages do. `None`: the store has
    /// no such locks.
    pub plain: Option<Box<Store>>,
}

impl Store {
    /// A store without plain locks.
    pub fn new(front: Arc<dyn Backend>, back: Arc<dyn Backend>) -> Self {
        Self {
            front,
            back,
            plain: None,
        }
    }

    /// A store that its callers cannot block, so one connection serves both sides.
    pub fn single(backend: Arc<dyn Backend>) -> Self {
        Self::new(Arc::clone(&backend), backend)
    }

    /// Wraps both sides, also those of the plain locks.
    #[must_use]
    pub fn map(self, wrap: &dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend>) -> Self {
        Self {
            front: wrap(self.front),
            back: wrap(self.back),
            plain: self.plain.map(|plain| Box::new(plain.map(wrap))),
        }
    }
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
    /// Returns user and password at each connect. A password without a user is for the user of the URL. `None`: those of the
    /// URL.
    pub credentials: Option<Arc<dyn Fn() -> crate::Credentials + Send + Sync>>,
    /// PEM files for TLS.
    pub tls: TlsFiles,
    /// Whether to create a missing store: the file of a path, the tables in a database. Otherwise a missing store is an
    /// error.
    pub create: bool,
}

/// How long a store keeps the answer to a change of a number: longer than a client with that lease repeats the change, which
/// is a lease, and then takes it back, which is two more. Otherwise a repeated change would count twice, and permits that were
/// taken without a reply would never come back. A client that was frozen for as long repeats nothing.
pub(crate) fn answers_kept(lease: Duration) -> Duration {
    (lease * 3 + Duration::from_secs(60)).max(Duration::from_secs(300))
}

#[cfg(any(test, feature = "testing"))]
impl Env {
    /// All limits are this long, and nothing else is set.
    pub(crate) fn of_limits(timers: Timers, background: Background, limit: Duration) -> Self {
        Self {
            timers,
            background,
            response_timeout: limit,
            lease: limit,
            acknowledge_within: limit,
            credentials: None,
            tls: TlsFiles::default(),
            create: true,
        }
    }
}

#[cfg(any(feature = "redis", feature = "memcached"))]
impl Env {
    /// How much longer a first connect waits than the connect itself may take. So the connect fails first, and its error says
    /// more than a timeout. A busy machine lets a task wait for some milliseconds, so short timeouts get more than their share.
    pub(crate) fn connect_slack(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(50);
        (self.response_timeout / 8).max(LEAST)
    }
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

#[cfg(test)]
mod tests {
    #[cfg(any(
        feature = "etcd",
        feature = "memcached",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) mod clock;
    #[cfg(any(feature = "etcd", feature = "postgres", feature = "zookeeper"))]
    pub(crate) mod log;
    #[cfg(any(feature = "memcached", feature = "mysql", feature = "redis"))]
    pub(crate) mod scripted;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_answer_is_kept_until_no_client_repeats_its_change() {
        for (lease, kept) in [(0, 300), (80, 300), (100, 360), (3600, 10_860)] {
            let answers = answers_kept(Duration::from_secs(lease));
            assert_eq!(answers, Duration::from_secs(kept), "a lease of {lease} s");
        }
    }

    #[test]
    fn a_store_that_must_wait_says_for_how_long() {
        let within = Duration::from_secs(3);
        let error = Error::new(ErrorKind::Unavailable).caused_by(NotYet { within });
        assert_eq!(NotYet::of(&error), Some(within));
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("ready within 3s"));
        let away = Error::new(ErrorKind::Unavailable);
        assert_eq!(NotYet::of(&away), None);
        let broken = away.caused_by(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(NotYet::of(&broken), None);
    }

    #[cfg(any(feature = "redis", feature = "memcached"))]
    #[tokio::test]
    async fn a_first_connect_waits_a_little_longer_than_the_connect_itself() {
        for (timeout, slack) in [(8000, 1000), (400, 50), (80, 50)] {
            let (background, _) = Background::start(Clock::Simulated).unwrap();
            let timers = Timers::new(Clock::Simulated);
            let env = Env::of_limits(timers, background, Duration::from_millis(timeout));
            assert_eq!(env.connect_slack(), Duration::from_millis(slack));
        }
    }
}
