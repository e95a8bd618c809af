//! Which locks are awaited, and by whom: what the processes tell, joined with what the store itself shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use crate::client::Client;
use crate::engine::lease::process_info::records;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::processes::process::Process;
use crate::snapshot::{ClientInfo, Snapshot};

/// Bounds how many locks are listed.
const MOST: usize = 200;

/// How many locks are inspected at the same time.
const AT_ONCE: usize = 16;

/// A lock with waiters; [`Client::awaited`] lists them.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for lock in client.awaited().await? {
///     let more = if lock.is_lower_bound { "at least " } else { "" };
///     println!("{}: {more}{} wait", lock.snapshot, lock.waiters);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AwaitedLock {
    /// The lock, as [`Lock::inspect`](crate::Lock::inspect) sees it now.
    pub snapshot: Snapshot,
    /// For how long its first holder has held it, if the holder's process tells.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::serde_text::optional_duration")
    )]
    pub held_for: Option<Duration>,
    /// How many calls wait, as the processes told with their last records. If the store itself shows more, that number.
    pub waiters: u64,
    /// There may be more: the store shows waiting processes that have told nothing, such as a Java service. Each has one
    /// waiter or more. On Redis a process counts as waiting for a moment after its last wait.
    pub is_lower_bound: bool,
    /// For how long the first of them has waited, if a process tells.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::serde_text::optional_duration")
    )]
    pub longest: Option<Duration>,
    /// The processes that wait and tell it, the longest wait first.
    pub processes: Vec<WaitingProcess>,
}

/// A process that waits for an [`AwaitedLock`].
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for lock in client.awaited().await? {
///     for process in &lock.processes {
///         println!("{} has {} waiters", process.info, process.waiters);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitingProcess {
    /// Its [client](crate::Client::id).
    pub client: String,
    /// Host, process id and program.
    pub info: ClientInfo,
    /// How many of its calls wait.
    pub waiters: u64,
    /// For how long the first of them has waited.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub longest: Duration,
}

impl Client {
    /// The locks that somebody waits for, the longest wait first; at most 200. It joins what the
    /// [processes](Self::processes) tell with what the store shows: on Redis and Valkey the subscriptions to the channels of
    /// locks, so that locks for which only Java waits are listed too.
    ///
    /// It only reads, and asks for the channels and for each of the locks. With 100 000 channels Redis takes about 30 ms to
    /// list them. Do not call it more than once per second.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on stores that show no waiters: Memcached, PostgreSQL with session
    /// locks; [`Unavailable`](crate::ErrorKind::Unavailable), [`Closed`](crate::ErrorKind::Closed). If the store refuses
    /// to list the channels, locks that only the channels show are missing.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(client.awaited().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn awaited(&self) -> Result<Vec<AwaitedLock>> {
        let processes = match self.processes().await {
            Err(error) if error.kind() == ErrorKind::Refused => Vec::new(),
            processes => processes?,
        };
        let shown = match self.shown_as_awaited().await {
            Err(error) if error.kind() == ErrorKind::Refused => Vec::new(),
            shown => shown?,
        };
        let mut names: BTreeMap<String, Vec<WaitingProcess>> = BTreeMap::new();
        for process in processes.iter().filter(|process| !process.is_gone()) {
            for wait in &process.waits {
                names
                    .entry(wait.name.clone())
                    .or_default()
                    .push(WaitingProcess {
                        client: process.client.clone(),
                        info: process.info.clone(),
                        waiters: wait.waiters,
                        longest: wait.longest,
                    });
            }
        }
        let shown: BTreeSet<String> = shown.into_iter().take(MOST).collect();
        for name in &shown {
            names.entry(name.clone()).or_default();
        }
        let mut names: Vec<_> = names.into_iter().collect();
        for (_, waiting) in &mut names {
            waiting.sort_by_key(|one| std::cmp::Reverse(one.longest));
        }
        names.sort_by_key(|(_, waiting)| std::cmp::Reverse(waiting.first().map(|one| one.longest)));
        names.truncate(MOST);
        let looks = names.into_iter().map(|(name, waiting)| {
            let is_shown = shown.contains(&name);
            self.look(name, waiting, is_shown, &processes)
        });
        let looks: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        looks.into_iter().filter_map(Result::transpose).collect()
    }

    /// The locks for which the store itself shows waiters.
    async fn shown_as_awaited(&self) -> Result<Vec<String>> {
        let core = self.core();
        let store = &core.home.store;
        let Some(channels) = store.front().extensions().awaited else {
            return Ok(Vec::new());
        };
        let name = records()?;
        let asked = async {
            let shown = channels.awaited().await;
            store.heard_answer(&name, &shown);
            shown
        };
        let shown = core.steward.answered(asked).await;
        shown.map_err(Error::without_effect)
    }

    /// Inspects one lock. `None`: it is none, or nobody waits any more.
    async fn look(
        &self,
        name: String,
        processes: Vec<WaitingProcess>,
        is_shown: bool,
        all: &[Process],
    ) -> Result<Option<AwaitedLock>> {
        let Ok(name) = Name::new(name) else {
            return Ok(None); // anybody may have written it
        };
        let core = self.core();
        let store = &core.home.store;
        let asked = async {
            let seen = store.front().inspect(&name).await;
            store.heard(&name, &seen);
            seen
        };
        let snapshot = match core.steward.answered(asked).await {
            Ok(snapshot) => snapshot,
            Err(error) if is_of_the_lock(&error) => return Ok(None),
            Err(error) => return Err(error.without_effect()),
        };
        Ok(joined(snapshot, processes, is_shown, all))
    }
}

/// Whether another lock may be inspected after that error.
fn is_of_the_lock(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WrongType | ErrorKind::InvalidName | ErrorKind::Refused
    )
}

fn joined(
    snapshot: Snapshot,
    processes: Vec<WaitingProcess>,
    is_shown: bool,
    all: &[Process],
) -> Option<AwaitedLock> {
    let told: u64 = processes
        .iter()
        .map(|one| one.waiters)
        .fold(0, u64::saturating_add);
    // A channel with a subscriber shows one waiter, even if the store does not count them.
    let shown = snapshot.waiters.unwrap_or(0).max(u64::from(is_shown));
    let waiters = told.max(shown);
    // The store counts either processes or, in its own queues, each waiter.
    let is_lower_bound = shown > processes.len() as u64 && shown != told;
    let holder = snapshot.holders.first().and_then(|holder| {
        let client = holder.owner.split(':').next()?;
        let process = all.iter().find(|process| process.client == client)?;
        process.holds.iter().find(|hold| hold.name == snapshot.name)
    });
    (waiters > 0).then(|| AwaitedLock {
        held_for: holder.map(|hold| hold.held_for),
        waiters,
        is_lower_bound,
        longest: processes.first().map(|one| one.longest),
        processes,
        snapshot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::record::from_line;
    use crate::snapshot::Holder;

    fn waiting(waiters: &[u64]) -> Vec<WaitingProcess> {
        let info = ClientInfo::new("h", 1, "p", std::time::UNIX_EPOCH);
        let one = |waiters: &u64| WaitingProcess {
            client: "u".to_owned(),
            info: info.clone(),
            waiters: *waiters,
            longest: Duration::from_secs(1),
        };
        waiters.iter().map(one).collect()
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_the_process_of_its_holder_tells() {
        let line = "process1 host=h pid=7 hold=mutex,,5000,x hold=mutex,,9000,y";
        let told = |client: &str| from_line(client, line, std::time::UNIX_EPOCH).unwrap();
        let all = [told("other"), told("holder")];
        let held_for = |name: &str, owner: &str| {
            let mut snapshot = Snapshot::free(name);
            snapshot.holders.push(Holder::new(owner, 1));
            let seen = joined(snapshot, waiting(&[1, 2]), false, &all).unwrap();
            assert_eq!(seen.longest, Some(Duration::from_secs(1)));
            seen.held_for
        };
        assert_eq!(held_for("x", "holder:7"), Some(Duration::from_secs(5)));
        assert_eq!(held_for("y", "holder:7"), Some(Duration::from_secs(9)));
        assert_eq!(held_for("z", "holder:7"), None);
        assert_eq!(held_for("x", "stranger:7"), None);
        // Such an owner has no client: another library has written it.
        assert_eq!(held_for("x", ""), None);
    }

    #[test]
    fn an_error_of_one_lock_leaves_the_others_in_the_list() {
        for kind in [
            ErrorKind::WrongType,
            ErrorKind::InvalidName,
            ErrorKind::Refused,
        ] {
            assert!(is_of_the_lock(&Error::new(kind)), "{kind:?}");
        }
        for kind in [
            ErrorKind::Unavailable,
            ErrorKind::OutcomeUnknown,
            ErrorKind::Closed,
        ] {
            assert!(!is_of_the_lock(&Error::new(kind)), "{kind:?}");
        }
    }

    #[test]
    fn a_number_of_waiters_is_exact_or_a_lower_bound() {
        for (told, in_store, is_shown, expected) in [
            (&[5, 9][..], Some(2), true, Some((14, false))),
            (&[5, 9], Some(3), true, Some((14, true))), // a third process waits, and has told nothing
            (&[1], Some(4), true, Some((4, true))),
            (&[4], Some(4), false, Some((4, false))), // a queue of the store counts each waiter
            (&[4], None, false, Some((4, false))),
            (&[], Some(1), true, Some((1, true))),
            (&[], None, true, Some((1, true))),
            (&[], Some(0), false, None),
        ] {
            let mut snapshot = Snapshot::free("x");
            snapshot.waiters = in_store;
            let seen = joined(snapshot, waiting(told), is_shown, &[]);
            let seen = seen.map(|lock| (lock.waiters, lock.is_lower_bound));
            assert_eq!(seen, expected, "{told:?} {in_store:?} {is_shown}");
        }
    }
}
