//! Snapshots of a lock, as operators see it, and findings about a store's health.

mod display;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::types::FencingToken;
use crate::types::LockKind;
use crate::unstable::for_stores;

/// The state of a lock in the store at one instant. It may have changed by the time you read it, so use it for
/// operators and logs, not for decisions.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("report").acquire().await?;
/// let seen = client.lock("report").inspect().await?;
/// for holder in &seen.holders {
///     let place = holder.client.as_ref().map(|c| format!("{} on {}", c.pid, c.host));
///     println!("{} ({place:?}), {:?} left", holder.owner, seen.expires_in);
/// }
/// assert!(seen.is_locked());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The name, prefix included.
    pub name: String,
    /// The holders. Empty: the lock is free.
    pub holders: Vec<Holder>,
    /// Time until the lease ends without a renewal. `None`: the lock is free, or held without a limit (written by
    /// hand).
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::serde_text::optional_duration")
    )]
    pub expires_in: Option<Duration>,
    /// The newest granted fencing token, if the store counts.
    pub token: Option<FencingToken>,
    /// The number of waiting processes, if the store can tell. On Redis this is the number of processes that are
    /// subscribed to releases. A process stays subscribed for a moment after its last waiter, and after a release that
    /// Redisson waits for. Waiters of a fair lock count one by one.
    pub waiters: Option<u64>,
    /// The owners that wait for a [fair lock](crate::Client::fair_lock), the next one first; at most 100. Empty for
    /// other locks, and on stores other than Redis and `memory:`.
    pub queue: Vec<String>,
    /// The permits, if this is a semaphore.
    pub permits: Option<PermitCount>,
    /// The count, if this is a latch. On Redis a latch and a semaphore are the same kind of key. While permits are held
    /// or a process waits, the store knows which of them the key is; otherwise a key that is a number is shown as both.
    pub latch: Option<u64>,
}

/// The permits of a semaphore.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let render = client.semaphore("render");
/// render.set_permits_if_new(5).await?;
/// let count = render.inspect().await?.permits.expect("it is a semaphore");
/// assert_eq!((count.available, count.total), (5, 5));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PermitCount {
    /// How many nobody holds. Negative if the number was reduced below the number that is held.
    pub available: i64,
    /// How many there are, those that are held included. Permits of Redisson's `RSemaphore` are not included while they
    /// are taken.
    pub total: i64,
}

impl PermitCount {
    for_stores! {
        /// Creates a count.
        ///
        /// # Examples
        /// ```
        /// let count = tidelock::PermitCount::new(3, 5);
        /// assert_eq!(count.available, 3);
        /// ```
        fn new(available: i64, total: i64) -> Self {
            Self { available, total }
        }
    }
}

impl Snapshot {
    /// True if the lock has a holder.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let lock = client.lock("report");
    /// assert!(!lock.inspect().await?.is_locked());
    /// let guard = lock.acquire().await?;
    /// assert!(lock.inspect().await?.is_locked());
    /// # Ok(()) }
    /// ```
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }

    /// The owners that hold the lock.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        self.holders.iter().map(|holder| &*holder.owner)
    }

    /// Whether this owner is one of the holders.
    pub(crate) fn has_owner(&self, owner: &str) -> bool {
        self.owners().any(|holder| holder == owner)
    }

    /// Whether the lock is held as in this snapshot: by nobody else, with the same newest token. `holders`, `token`: those
    /// of now. See [`Operate::force_release`](crate::store::Operate::force_release).
    pub(crate) fn is_of(
        &self,
        holders: &mut dyn Iterator<Item = &str>,
        token: Option<u64>,
    ) -> bool {
        let mut is_held = false;
        for owner in holders {
            if !self.has_owner(owner) {
                return false;
            }
            is_held = true;
        }
        is_held && (self.token.is_none() || self.token.map(FencingToken::get) == token)
    }
}

/// The mode in which a holder holds a lock.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::Mode;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let prices = client.read_write_lock("prices");
/// let readers = [prices.read().acquire().await?, prices.read().acquire().await?];
/// let seen = prices.read().inspect().await?;
/// assert_eq!(seen.holders.len(), 2);
/// assert!(seen.holders.iter().all(|holder| holder.mode == Mode::Read));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Mode {
    /// Exclusive hold of a lock without read and write sides.
    Exclusive,
    /// The read side of a read-write lock, shared with other readers.
    Read,
    /// The write side of a read-write lock, exclusive.
    Write,
    /// Permits of a semaphore.
    Permits,
    /// An upgradeable reader of a read-write lock, shared with plain readers.
    UpgradeableRead,
}

impl From<LockKind> for Mode {
    fn from(kind: LockKind) -> Self {
        match kind {
            LockKind::Mutex
            | LockKind::Fenced
            | LockKind::Fair
            | LockKind::FairFenced
            | LockKind::Spin
            | LockKind::SpinFenced => Self::Exclusive,
            LockKind::Read | LockKind::ReadFenced => Self::Read,
            LockKind::Write | LockKind::WriteFenced => Self::Write,
            LockKind::Permits(_) => Self::Permits,
            LockKind::UpgradeableRead | LockKind::UpgradeableReadFenced => Self::UpgradeableRead,
        }
    }
}

/// One holder of a lock.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("report").acquire().await?;
/// let seen = client.lock("report").inspect().await?;
/// assert_eq!(seen.holders[0].owner, guard.owner_id());
/// assert_eq!(seen.holders[0].holds, 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// The owner as written in the store: `uuid:n` for tidelock and for Redisson.
    pub owner: String,
    /// The mode of the hold. It determines which other holders are possible.
    pub mode: Mode,
    /// Hold count in the store. It is 1 for tidelock, which counts re-entries in the process, and any number for
    /// Redisson. 0: the stored value is no count. Of a semaphore, how many permits the acquisition has.
    pub holds: u64,
    /// The process of the holder, if it has published its details. Redisson publishes none.
    pub client: Option<ClientInfo>,
}

impl Holder {
    for_stores! {
        /// Creates an exclusive holder, without details.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Holder, Snapshot};
        ///
        /// let mut seen = Snapshot::free("report");
        /// seen.holders.push(Holder::new("0c7e…:1", 1));
        /// assert!(seen.is_locked());
        /// ```
        fn new(owner: impl Into<String>, holds: u64) -> Self {
            Self {
                owner: owner.into(),
                mode: Mode::Exclusive,
                holds,
                client: None,
            }
        }
    }
}

/// The process of a client.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("report").acquire().await?;
/// let seen = client.lock("report").inspect().await?;
/// if let Some(process) = &seen.holders[0].client {
///     println!("{} ({}) on {}", process.program, process.pid, process.host);
///     assert_eq!(process.pid, std::process::id());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientInfo {
    /// Host name.
    pub host: String,
    /// Process id on that host.
    pub pid: u32,
    /// File name of the program.
    pub program: String,
    /// The user of the operating system who runs the program, if the client publishes the user
    /// ([`os_user`](crate::ClientBuilder::os_user)). The `tidelock` command does.
    pub user: Option<String>,
    /// When the client connected, by its own wall clock.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::time"))]
    pub since: SystemTime,
}

impl ClientInfo {
    for_stores! {
        /// Creates the details of a client. For stores, when they read back stored details.
        ///
        /// # Examples
        /// ```
        /// use std::time::SystemTime;
        /// use tidelock::{ClientInfo, Holder};
        ///
        /// let mut holder = Holder::new("0c7e…:1", 1);
        /// holder.client = Some(ClientInfo::new("web-1", 4711, "shop", SystemTime::now()));
        /// ```
        fn new(
            host: impl Into<String>,
            pid: u32,
            program: impl Into<String>,
            since: SystemTime,
        ) -> Self {
            Self {
                host: host.into(),
                pid,
                program: program.into(),
                user: None,
                since,
            }
        }
    }

    for_stores! {
        /// Sets the user of the operating system. An empty name is none.
        ///
        /// # Examples
        /// ```
        /// use std::time::SystemTime;
        /// use tidelock::ClientInfo;
        ///
        /// let info = ClientInfo::new("web-1", 4711, "shop", SystemTime::now()).run_by(Some("deploy"));
        /// assert_eq!(info.user.as_deref(), Some("deploy"));
        /// assert_eq!(info.run_by(Some("")).user, None);
        /// ```
        #[must_use]
        fn run_by(mut self, user: Option<impl Into<String>>) -> Self {
            self.user = user.map(Into::into).filter(|user| !user.is_empty());
            self
        }
    }
}

/// A name that a store keeps as one line of several.
#[cfg(any(feature = "etcd", feature = "memcached"))]
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// Converts stored milliseconds since 1970. Anybody may have written the value, so we cap it at the end of the year
/// 9999: formatters do not support years with more than four digits, and Windows cannot represent every value.
pub(crate) fn since_epoch(millis: u64) -> SystemTime {
    // The last millisecond of the year 9999.
    const END: u64 = 253_402_300_799_999;
    UNIX_EPOCH + Duration::from_millis(millis.min(END))
}

pub(crate) fn millis_since_epoch(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis()
}

/// How much a [`Finding`] matters to a lock.
///
/// # Examples
/// ```
/// use tidelock::Severity;
///
/// assert!(Severity::Danger > Severity::Advice && Severity::Advice > Severity::Good);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Severity {
    /// No problem.
    Good,
    /// Locks work, but one guarantee is weaker than it could be.
    Advice,
    /// Locks can be lost or stop working.
    Danger,
}

/// One result of [`Client::diagnose`](crate::Client::diagnose): the observation, its meaning for a lock, and the remedy.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::Severity;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// for finding in client.diagnose().await? {
///     if finding.severity == Severity::Danger {
///         eprintln!("{}: {}, {}", finding.subject, finding.found, finding.meaning);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The subject in one or two words: `persistence`, `eviction policy`.
    pub subject: String,
    /// The observation.
    pub found: String,
    /// The meaning for a lock.
    pub meaning: String,
    /// The remedy. `None`: no change needed.
    pub advice: Option<String>,
}

impl Finding {
    for_stores! {
        /// Creates a finding.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Finding, Severity};
        ///
        /// let finding = Finding::new(Severity::Good, "persistence", "appendfsync always", "no lock is forgotten");
        /// assert!(finding.advice.is_none());
        /// ```
        fn new(
            severity: Severity,
            subject: impl Into<String>,
            found: impl Into<String>,
            meaning: impl Into<String>,
        ) -> Self {
            Self {
                severity,
                subject: subject.into(),
                found: found.into(),
                meaning: meaning.into(),
                advice: None,
            }
        }
    }

    for_stores! {
        /// Sets the remedy.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Finding, Severity};
        ///
        /// let finding = Finding::new(Severity::Danger, "eviction policy", "allkeys-lru", "locks can vanish");
        /// let finding = finding.advise("set maxmemory-policy to noeviction");
        /// assert!(finding.advice.is_some());
        /// ```
        #[must_use]
        fn advise(mut self, advice: impl Into<String>) -> Self {
            self.advice = Some(advice.into());
            self
        }
    }
}

impl Snapshot {
    for_stores! {
        /// Creates the snapshot of a free lock. For stores, which fill in the details.
        ///
        /// # Examples
        /// ```
        /// use tidelock::Snapshot;
        ///
        /// let seen = Snapshot::free("report");
        /// assert!(!seen.is_locked() && seen.expires_in.is_none());
        /// ```
        fn free(name: impl Into<String>) -> Self {
            Self {
                name: name.into(),
                holders: Vec::new(),
                expires_in: None,
                token: None,
                waiters: None,
                queue: Vec::new(),
                permits: None,
                latch: None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(owners: &[&str], token: Option<u64>) -> Snapshot {
        let mut seen = Snapshot::free("a");
        seen.holders = owners.iter().map(|owner| Holder::new(*owner, 1)).collect();
        seen.token = token.map(FencingToken::new);
        seen
    }

    /// A forced release of what an operator has seen must spare a hold that has begun since.
    #[test]
    fn a_lock_is_held_as_seen_by_those_owners_with_that_token_only() {
        let seen = held_by(&["a:1", "b:2"], Some(7));
        let untold = held_by(&["a:1"], None);
        for (seen, now, token, is_same) in [
            (&seen, &["a:1", "b:2"][..], Some(7), true),
            (&seen, &["b:2"], Some(7), true), // one has left
            (&seen, &["b:2", "c:3"], Some(7), false),
            (&seen, &["a:1"], Some(8), false), // granted once more
            (&seen, &["a:1"], None, false),
            (&seen, &[], Some(7), false),
            (&untold, &["a:1"], Some(8), true),
            (&untold, &["a:1"], None, true),
            (&untold, &["b:2"], None, false),
            (&untold, &[], None, false),
        ] {
            let held = seen.is_of(&mut now.iter().copied(), token);
            assert_eq!(held, is_same, "{now:?} with {token:?} after {seen}");
        }
    }

    #[test]
    fn a_snapshot_knows_its_holders() {
        let (seen, free) = (held_by(&["a:1", "b:2"], None), Snapshot::free("a"));
        assert!(seen.is_locked() && !free.is_locked());
        assert_eq!(seen.owners().collect::<Vec<_>>(), ["a:1", "b:2"]);
        assert!(seen.has_owner("a:1") && seen.has_owner("b:2"));
        assert!(!seen.has_owner("a:") && !free.has_owner("a:1"));
    }

    /// Other clients write these times, by clocks that nobody has checked.
    #[test]
    fn a_time_out_of_bounds_becomes_the_nearest_that_can_be_written() {
        let last = since_epoch(u64::MAX);
        assert_eq!(
            humantime::format_rfc3339_seconds(last).to_string(),
            "9999-12-31T23:59:59Z"
        );
        assert_eq!(
            since_epoch(1_500),
            UNIX_EPOCH + Duration::from_millis(1_500)
        );
        assert_eq!(millis_since_epoch(since_epoch(1_500)), 1_500);
        let early = UNIX_EPOCH.checked_sub(Duration::from_secs(1));
        assert_eq!(early.map(millis_since_epoch), Some(0));
    }

    #[cfg(any(feature = "etcd", feature = "memcached"))]
    #[test]
    fn a_text_of_several_lines_becomes_one() {
        assert_eq!(one_line("shop\n1\n"), "shop 1 ");
    }
}
