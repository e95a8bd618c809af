//! Leader election: of the candidates in all processes one leads at a time, and each leadership has a larger term.
//!
//! A leader holds the fenced lock of the election's name, so its term is the fencing token of that hold, and it is told
//! of a loss before another candidate can lead. A Java service that takes `getLock(name)` keeps all candidates from
//! leading. The marks, a line of text per candidate, show the election to others, and say whom a candidate lets go first.
//! Nobody leads because of a mark.
//!
//! ```text
//!   idle ──campaign──► waits for the lock ──grant──► leads in term n ──resign, loss──► idle
//! ```
//!
//! 1. A candidate stores its mark before it asks for the lock, so that a leader is never without an identity. The term
//!    follows right after the grant; a reader that comes in between sees a leader without a term.
//! 2. [`Election::lead`] drops the work of a term before it releases the lock, and before it campaigns again.
//! 3. A candidate that has the lock reads the marks before its term begins. If another one should lead, it gives the lock
//!    back, and stands aside for a while.
//! 4. A leadership is never handed to another task of the process without a release in the store. Otherwise two terms
//!    would have one owner, and a reader could not tell them apart.

mod announcer;
mod campaign;
mod lead;
mod mark;
mod seen;
mod successor;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending, select};

pub use self::campaign::Leadership;
pub use self::lead::LeadershipTerm;
#[cfg(feature = "blocking")]
pub(crate) use self::lead::{TermBackoff, TermEnd};
pub use self::seen::{Candidate, ElectedLeader, LeaderChanges};
pub use self::successor::NotTransferred;

use self::announcer::Announcer;
use crate::closing::Closing;
use crate::engine::ClientInner;
use crate::engine::runtime::timers::Timers;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::options::{self, CancelToken};
use crate::store::LockKind;

/// Bounds the length of an identity, in bytes.
const LONGEST_IDENTITY: usize = 200;

/// How often a candidate looks whether it is healthy.
const CHECKS_PER_LEASE: u32 = 10;

/// An election: [`Client::election`](crate::Client::election) makes it. Cheap to clone; the clones are one candidate.
///
/// *Promise*: of all candidates at most one leads at a time, under the conditions of a [`Lock`]. A leader that is frozen
/// past its lease is told when it continues, before the work of [`lead`](Self::lead) is polled again. Pass
/// [`Leadership::token`] to the resource to exclude a write that was already on its way.
///
/// *Cost*: beside the lock, a candidate writes one mark per lease, and three when it begins to campaign; when it gets the
/// lock, it reads the marks. The stores that keep marks have elections: all but memcached, PostgreSQL's session locks and
/// sets of locks.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::CancelToken;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let stop = CancelToken::new(); // cancel it on SIGTERM
/// let election = client.election("billing").identity("web-3").cancel(&stop);
/// election
///     .lead(|term| {
///         println!("leads in term {}", term.number());
/// #       stop.cancel();
///         std::future::pending::<std::io::Result<()>>() // the work; it is dropped when the leadership is lost
///     })
///     .await?;
/// # assert!(stop.is_cancelled());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "call `lead` or `campaign`"]
pub struct Election {
    announcer: Arc<Announcer>,
    lock_delay: Option<Duration>,
    cancel: Option<CancelToken>,
    healthy: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Election {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        let process = core.process_info.own();
        let identity = format!("{}:{}", process.host, process.pid);
        let lock = Lock::new(core, LockKind::Mutex, name).fenced();
        Self {
            announcer: Announcer::new(lock, identity, 0),
            lock_delay: None,
            cancel: None,
            healthy: None,
        }
    }

    /// How others see this candidate: 1 to 200 bytes without control characters. Default: host and process id. A client
    /// has one identity in each election.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing").identity("web-3");
    /// let _leadership = election.campaign().await?;
    /// let leader = election.leader().await?.expect("it leads");
    /// assert_eq!(leader.identity.as_deref(), Some("web-3"));
    /// # Ok(()) }
    /// ```
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        let Announcer { lock, priority, .. } = &*self.announcer;
        self.announcer = Announcer::new(lock.clone(), identity.into(), *priority);
        self
    }

    /// Candidates with a higher priority lead first. Default: 0.
    ///
    /// The priority decides only who follows a leader. A candidate that gets the lock while one with a higher priority
    /// waits gives it back and stands aside until that one leads, for a third of a lease at most. So a leader is never
    /// deposed by a candidate that comes later, and a candidate that has died keeps no other from leading: in the three
    /// leases after its death an election may take a third of a lease longer. Candidates that stood aside wait behind the
    /// others again, also with [`in_order`](Self::in_order).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let spare = client.election("billing").identity("small-machine").priority(-1);
    /// let leadership = spare.campaign().await?; // nobody else is there
    /// # Ok(()) }
    /// ```
    pub fn priority(mut self, priority: i32) -> Self {
        let Announcer { lock, identity, .. } = &*self.announcer;
        self.announcer = Announcer::new(lock.clone(), identity.clone(), priority);
        self
    }

    /// The candidates lead in the order in which they began to campaign, over all processes: the election uses the
    /// [fair lock](crate::Client::fair_lock) of its name. All candidates of an election must choose the same.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").in_order().campaign().await?;
    /// leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn in_order(mut self) -> Self {
        let Announcer {
            lock,
            identity,
            priority,
            ..
        } = &*self.announcer;
        let mut lock = lock.clone();
        lock.kind = LockKind::FairFenced;
        self.announcer = Announcer::new(lock, identity.clone(), *priority);
        self
    }

    /// For how long nobody leads after a leadership that ended without a resignation; see
    /// [`AcquireOptions::lock_delay`](crate::AcquireOptions::lock_delay). It gives requests of a lost leader time to
    /// arrive, for resources that check no token. On stores other than etcd, ZooKeeper and `memory:` a campaign with it
    /// fails with [`ErrorKind::Unsupported`]. Default: none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing").lock_delay(Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    pub fn lock_delay(mut self, time: Duration) -> Self {
        self.lock_delay = Some(time);
        self
    }

    /// Leads only while `healthy` returns true. A sick candidate does not campaign. A sick leader of
    /// [`lead`](Self::lead) resigns. The function is called ten times per lease and must not block.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let database_answers = Arc::new(AtomicBool::new(true)); // a task of yours sets it
    /// let election = client
    ///     .election("billing")
    ///     .lead_while(move || database_answers.load(Ordering::Relaxed));
    /// let leadership = election.campaign().await?;
    /// # Ok(()) }
    /// ```
    pub fn lead_while(mut self, healthy: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.healthy = Some(Arc::new(healthy));
        self
    }

    /// Stops campaigns with [`ErrorKind::Cancelled`], and ends [`lead`](Self::lead), when the token is cancelled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::CancelToken;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let stop = CancelToken::new();
    /// stop.cancel();
    /// let election = client.election("billing").cancel(&stop);
    /// election.lead(|_| async { Ok::<_, std::io::Error>(()) }).await?; // returns at once
    /// # Ok(()) }
    /// ```
    pub fn cancel(mut self, cancel: &CancelToken) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// The name of the election and of its lock, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.election("billing").name(), "shop:billing");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.announcer.lock.name()
    }

    /// Whether a leadership of this election or one of its clones is provably held right now. Sends no request: for
    /// readiness probes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing");
    /// let probe = election.clone();
    /// let leadership = election.campaign().await?;
    /// assert!(probe.is_leader());
    /// leadership.resign().await?;
    /// assert!(!probe.is_leader());
    /// # Ok(()) }
    /// ```
    pub fn is_leader(&self) -> bool {
        self.announcer.is_leading()
    }

    fn check(&self) -> Result<()> {
        self.announcer.lock.checked_name()?;
        let identity = &self.announcer.identity;
        let length = identity.len();
        if length == 0 || length > LONGEST_IDENTITY || identity.chars().any(char::is_control) {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "an identity must have 1 to {LONGEST_IDENTITY} bytes and no control characters; this one has {length} bytes"
            )));
        }
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        if let Some(delay) = self.lock_delay {
            options::within("lock_delay", delay, Duration::ZERO)?;
        }
        self.announcer.check()?;
        let lock = &self.announcer.lock;
        lock.context.store.need_delay(lock.kind, self.lock_delay)
    }

    fn core(&self) -> &ClientInner {
        &self.announcer.lock.context.core
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.core().timers
    }

    pub(crate) fn lease(&self) -> Duration {
        self.core().settings.lease
    }

    fn is_healthy(&self) -> bool {
        self.healthy.as_ref().is_none_or(|healthy| healthy())
    }

    /// Waits until the candidate is healthy.
    ///
    /// # Errors
    /// `Closed` or `Cancelled`.
    async fn until_healthy(&self) -> Result<()> {
        if self.is_healthy() {
            return Ok(());
        }
        tracing::info!(
            election = self.name(),
            "the candidate is sick; it does not campaign"
        );
        match select(pin!(self.stopped()), pin!(self.until_health_is(true))).await {
            Either::Left((kind, _)) => Err(Error::new(kind)),
            Either::Right(_) => Ok(()),
        }
    }

    async fn until_health_is(&self, wanted: bool) {
        while self.is_healthy() != wanted {
            self.timers().after(self.lease() / CHECKS_PER_LEASE).await;
        }
    }

    /// Resolves when the client closes or the token is cancelled, with the kind of error that says so.
    async fn stopped(&self) -> ErrorKind {
        let closing = Closing::new(&self.core().steward.closed);
        match select(closing, pin!(self.cancelled())).await {
            Either::Left(_) => ErrorKind::Closed,
            Either::Right(_) => ErrorKind::Cancelled,
        }
    }

    /// Resolves when the token is cancelled. Without one it never does.
    async fn cancelled(&self) {
        match &self.cancel {
            Some(cancel) => cancel.clone().cancelled().await,
            None => pending().await,
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .field("identity", &self.announcer.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::join;

    use super::*;
    use crate::client::Client;

    #[tokio::test(start_paused = true)]
    async fn a_change_of_health_is_seen_within_a_tenth_of_a_lease() {
        let builder = Client::builder().simulated_time();
        let client = builder.connect("memory:").await.unwrap();
        let healthy = Arc::new(AtomicBool::new(true));
        let gate = Arc::clone(&healthy);
        let election = client.election("billing");
        assert!(election.is_healthy(), "nobody looks after it");
        let election = election.lead_while(move || gate.load(Ordering::SeqCst));
        let (timers, lease) = (election.timers(), election.lease());
        for is_healthy in [false, true] {
            let begun = timers.now();
            let changes = async {
                timers.after(lease / 2).await;
                healthy.store(is_healthy, Ordering::SeqCst);
            };
            join(election.until_health_is(is_healthy), changes).await;
            let seen_after = timers.now().since(begun).saturating_sub(lease / 2);
            let rings_late = Duration::from_millis(10);
            assert!(seen_after <= lease / 10 + rings_late, "{seen_after:?}");
            assert_eq!(election.is_healthy(), is_healthy);
        }
    }

    #[tokio::test]
    async fn an_election_is_checked_before_it_asks_the_store() {
        let client = Client::connect("memory:").await.unwrap();
        let election = || client.election("billing");
        let longest = election().identity("x".repeat(LONGEST_IDENTITY));
        assert!(longest.check().is_ok());
        let cancel = CancelToken::new();
        assert!(election().cancel(&cancel).check().is_ok());
        cancel.cancel();
        let longer = election().identity("x".repeat(LONGEST_IDENTITY + 1));
        for (bad, kind) in [
            (longer, ErrorKind::InvalidOptions),
            (
                election().lock_delay(Duration::MAX),
                ErrorKind::InvalidOptions,
            ),
            (election().cancel(&cancel), ErrorKind::Cancelled),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), kind);
        }
    }
}
