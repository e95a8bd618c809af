//! What operators see of a process.

use std::time::{Duration, SystemTime};

use crate::snapshot::ClientInfo;
use crate::types::FencingToken;

/// How often a client writes its record.
pub(super) const BEAT: Duration = Duration::from_secs(10);

/// How often it does while somebody watches.
pub(super) const WATCHED_BEAT: Duration = Duration::from_secs(1);

/// After how many beats without a record a process counts as gone.
const BEATS_KEPT: u32 = 3;

/// The slot of the mark that says that somebody watches.
pub(super) const WATCHERS: &str = "watchers";

/// What a process tells of itself; [`Client::processes`](crate::Client::processes) lists them. Its texts come from the
/// store, where anybody may have written them: show them [`Escaped`](crate::Escaped).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     println!("{}: {} held, {} waiting", process.info, process.held, process.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Process {
    /// Its [client](crate::Client::id): the part of an owner before the colon. A process with several clients writes a
    /// record for each.
    pub client: String,
    /// Host, process id, program and user, and since when the client is connected.
    pub info: ClientInfo,
    /// The [version of the program](crate::ClientBuilder::program_version), if it tells one.
    pub version: Option<String>,
    /// When it wrote the record, by the store's clock; etcd and sqlite tell no time, and ZooKeeper's is that of its server.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::time"))]
    pub written: SystemTime,
    /// How long ago that was.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub age: Duration,
    /// After what time it writes the next record.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub beat: Duration,
    /// How long the store took to answer its last read.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub latency: Duration,
    /// How many locks it held.
    pub held: u64,
    /// How many of its calls waited.
    pub waiting: u64,
    /// How many locks it has acquired since it connected.
    pub acquired: u64,
    /// How long the calls took that have got a lock since it connected: at most 20 buckets without those that are empty.
    /// Empty: it has got none, or does not tell.
    pub acquire_times: Vec<WaitBucket>,
    /// How many of its calls have timed out.
    pub timed_out: u64,
    /// How many of its calls have failed.
    pub failed: u64,
    /// How many locks it has lost.
    pub lost: u64,
    /// What it held longest, the longest first; at most 20.
    pub holds: Vec<ProcessHold>,
    /// What it waited for longest, the longest first; at most 20.
    pub waits: Vec<ProcessWait>,
    /// The elections in which it led or was a candidate, those in which it led first; at most 20.
    pub elections: Vec<ProcessElection>,
    /// The newest slot of each job that it ran: first those that run, then the others, each with the newest change first; at
    /// most 20 jobs.
    pub jobs: Vec<ProcessJob>,
}

/// How many calls of a [`Process`] got a lock within a time. The buckets of several processes can be added up, and those of
/// an earlier record subtracted.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     for bucket in &process.acquire_times {
///         let than = if bucket.is_longer { "more than" } else { "at most" };
///         println!("{} calls took {than} {:?}", bucket.calls, bucket.bound);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitBucket {
    /// They took at most so long, and longer than the next smaller bound of the process.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub bound: Duration,
    /// They took longer than the bound, which is the largest one.
    pub is_longer: bool,
    /// How many calls.
    pub calls: u64,
}

/// A lock that a [`Process`] held when it wrote its record.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     for hold in &process.holds {
///         println!("{} since {:?}", tidelock::Escaped(&hold.name), hold.held_for);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessHold {
    /// The name of the lock, prefix included.
    pub name: String,
    /// The kind of the lock, such as `mutex` or `read`.
    pub kind: String,
    /// The fencing token of the holder, if it has one.
    pub token: Option<FencingToken>,
    /// For how long it has been held until now.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub held_for: Duration,
}

/// A lock that a [`Process`] waited for when it wrote its record.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     for wait in &process.waits {
///         println!("{} calls wait for {}", wait.waiters, tidelock::Escaped(&wait.name));
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessWait {
    /// The name of the lock, prefix included.
    pub name: String,
    /// The kind of the lock, such as `mutex` or `read`.
    pub kind: String,
    /// How many calls of the process waited.
    pub waiters: u64,
    /// For how long the first of them has waited until now.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub longest: Duration,
}

/// An election in which a [`Process`] led or was a candidate when it wrote its record. The store itself decides who leads:
/// [`Election::leader`](crate::election::Election::leader) asks it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     for election in process.elections.iter().filter(|election| election.term.is_some()) {
///         println!("{} leads {}", process.info, tidelock::Escaped(&election.name));
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessElection {
    /// The name of the election, prefix included.
    pub name: String,
    /// The [identity](crate::election::Election::identity) of the candidate.
    pub identity: String,
    /// The term in which it led. `None`: it campaigned.
    pub term: Option<u64>,
    /// For how long it has led, or has campaigned, until now.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub lasted: Duration,
}

/// A slot of a [job](crate::once) that a [`Process`] ran before it wrote its record. The marks in the store say what came
/// of a slot: [`OnceJob::history`](crate::once::OnceJob::history) asks for them, also after the process has ended.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::Escaped;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// for process in client.processes().await? {
///     for job in &process.jobs {
///         println!("{}, slot {}: {}", Escaped(&job.name), Escaped(&job.slot), Escaped(&job.state));
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessJob {
    /// The name of the job, prefix included.
    pub name: String,
    /// The slot, as [`Mark::slot`](crate::once::Mark::slot).
    pub slot: String,
    /// `running`, `done` or `failed`, as [`MarkState::as_str`](crate::once::MarkState::as_str), or `unconfirmed`: the
    /// attempt has ended, and the store has confirmed no mark of its end.
    pub state: String,
    /// The number of the attempt in this slot: 1 for the first.
    pub attempt: u64,
    /// The fencing token of the attempt.
    pub token: Option<FencingToken>,
    /// For how long it has been in this state until now.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub lasted: Duration,
}

impl Process {
    /// Whether it has missed three beats. It was killed or frozen, or cannot reach the store: its locks end with their
    /// leases. A client that was closed removes its record.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let gone = client.processes().await?.into_iter().filter(|process| process.is_gone());
    /// assert_eq!(gone.count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn is_gone(&self) -> bool {
        self.age > self.beat.saturating_mul(BEATS_KEPT)
    }
}
