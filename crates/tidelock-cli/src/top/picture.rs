//! One picture of a store, as `tidelock top` shows it.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::top::acquire_times::AcquireTimes;
use crate::top::leaders::{Task, TaskRow};

/// What was seen at one time.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    pub(crate) at: SystemTime,
    /// How long the store took to answer.
    pub(crate) latency: Duration,
    /// The most that the viewer costs the store, as a part of a core. `None`: it looks once.
    pub(crate) share: Option<f64>,
    /// How long the calls took that have got a lock: in the first picture since the processes connected, later in the
    /// last half minute or minute.
    pub(crate) acquire_times: AcquireTimes,
    /// The longest wait first, then the longest hold.
    pub(crate) locks: Vec<LockRow>,
    pub(crate) processes: Vec<ProcessRow>,
    /// Elections and jobs that run once, as the processes tell of them.
    pub(crate) tasks: Vec<TaskRow>,
    /// `None`: the keys of the store were not scanned.
    pub(crate) scan: Option<Scanned>,
}

/// How far a scan has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The locks that it has found.
    pub(crate) locks: usize,
    /// It has seen all of the store.
    pub(crate) is_whole: bool,
    /// Why it has not come further with this look. Not escaped.
    pub(crate) failed: Option<String>,
}

/// A lock that is held or awaited.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockRow {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Empty: it is free.
    pub(crate) holders: Vec<HolderCell>,
    pub(crate) held_for: Option<Duration>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) token: Option<u64>,
    pub(crate) waiters: u64,
    /// There may be more waiters.
    pub(crate) is_lower_bound: bool,
    pub(crate) longest: Option<Duration>,
    pub(crate) waiting: Vec<WaiterCell>,
    /// Only a scan has seen it, so long ago. `None`: this look has.
    pub(crate) seen_ago: Option<Duration>,
}

/// A holder of a lock.
#[derive(Debug, Clone)]
pub(crate) struct HolderCell {
    /// The program with its process, or the owner.
    pub(crate) who: String,
    pub(crate) owner: Option<String>,
    /// Its process has told nothing for three beats.
    pub(crate) is_gone: bool,
}

/// A process that waits for a lock.
#[derive(Debug, Clone)]
pub(crate) struct WaiterCell {
    pub(crate) who: String,
    pub(crate) client: String,
    pub(crate) waiters: u64,
    pub(crate) longest: Duration,
}

/// A process that uses the store.
#[derive(Debug, Clone)]
pub(crate) struct ProcessRow {
    pub(crate) who: String,
    pub(crate) client: String,
    pub(crate) since: SystemTime,
    pub(crate) age: Duration,
    pub(crate) is_gone: bool,
    pub(crate) latency: Duration,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) acquired: u64,
    pub(crate) timed_out: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
}

/// A sum, and whether there may be more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) u64, pub(crate) bool);

impl Picture {
    fn living(&self) -> impl Iterator<Item = &ProcessRow> {
        self.processes.iter().filter(|process| !process.is_gone)
    }

    /// The holds that the living processes tell. More if somebody holds a lock who tells nothing.
    pub(crate) fn held(&self) -> Sum {
        let told = total(self.living().map(|process| process.held));
        let holders = self.locks.iter().flat_map(|lock| &lock.holders);
        let mut owners = holders.filter_map(|holder| holder.owner.as_deref());
        let is_told = |owner: &str| {
            let client = owner.split(':').next().unwrap_or_default();
            self.living().any(|process| process.client == client)
        };
        Sum(told, owners.any(|owner| !is_told(owner)))
    }

    pub(crate) fn contended(&self) -> usize {
        self.locks.iter().filter(|lock| lock.waiters > 0).count()
    }

    pub(crate) fn waiters(&self) -> Sum {
        let waiters = total(self.locks.iter().map(|lock| lock.waiters));
        Sum(waiters, self.locks.iter().any(|lock| lock.is_lower_bound))
    }

    pub(crate) fn lost(&self) -> u64 {
        total(self.processes.iter().map(|process| process.lost))
    }

    pub(crate) fn gone(&self) -> usize {
        self.processes.len() - self.living().count()
    }

    pub(crate) fn as_json(&self) -> Value {
        let (held, waiters) = (self.held(), self.waiters());
        let is_job = |row: &&TaskRow| matches!(row.task, Task::Job { .. });
        let candidates = self.tasks.iter().filter(|row| !is_job(row));
        let jobs = self.tasks.iter().filter(is_job);
        json!({
            "at": humantime::format_rfc3339_millis(self.at).to_string(),
            "latency_ms": self.latency.as_secs_f64() * 1000.0,
            "viewer_share_of_a_core": self.share,
            "held": held.0,
            "held_is_lower_bound": held.1,
            "contended": self.contended(),
            "waiters": waiters.0,
            "waiters_is_lower_bound": waiters.1,
            "wait": self.acquire_times.as_json(),
            "lost": self.lost(),
            "locks": self.locks.iter().map(LockRow::as_json).collect::<Vec<_>>(),
            "processes": self.processes.iter().map(ProcessRow::as_json).collect::<Vec<_>>(),
            "elections": candidates.map(TaskRow::as_json).collect::<Vec<_>>(),
            "scan": self.scan.as_ref().map(Scanned::as_json),
            "jobs": jobs.map(TaskRow::as_json).collect::<Vec<_>>(),
        })
    }
}

impl Scanned {
    fn as_json(&self) -> Value {
        json!({ "locks": self.locks, "whole": self.is_whole, "failed": self.failed })
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl LockRow {
    /// A scan has seen it, and its lease would be over now. Either it has been renewed or the lock is free: nobody knows until
    /// the scan comes by again.
    pub(crate) fn is_overdue(&self) -> bool {
        self.seen_ago.is_some() && self.expires_in.is_some_and(|left| left.is_zero())
    }

    fn as_json(&self) -> Value {
        let holders = self.holders.iter().map(
            |holder| json!({ "who": holder.who, "owner": holder.owner, "gone": holder.is_gone }),
        );
        let waiting = self.waiting.iter().map(|one| {
            json!({
                "who": one.who, "client": one.client, "waiters": one.waiters,
                "longest_ms": millis(one.longest),
            })
        });
        json!({
            "name": self.name,
            "kind": self.kind,
            "holders": holders.collect::<Vec<_>>(),
            "held_for_ms": self.held_for.map(millis),
            "expires_in_ms": self.expires_in.map(millis),
            "token": self.token,
            "waiters": self.waiters,
            "waiters_is_lower_bound": self.is_lower_bound,
            "longest_ms": self.longest.map(millis),
            "waiting": waiting.collect::<Vec<_>>(),
            "seen_ago_ms": self.seen_ago.map(millis),
        })
    }
}

#[cfg(any(feature = "screen", feature = "web"))]
impl HolderCell {
    /// Whether this process holds it.
    pub(crate) fn is_of(&self, process: &ProcessRow) -> bool {
        match &self.owner {
            Some(owner) => owner.split(':').next() == Some(&*process.client),
            // It told of this hold itself.
            None => self.who == process.who,
        }
    }
}

impl ProcessRow {
    fn as_json(&self) -> Value {
        json!({
            "who": self.who,
            "client": self.client,
            "since": humantime::format_rfc3339_seconds(self.since).to_string(),
            "age_ms": millis(self.age),
            "gone": self.is_gone,
            "latency_ms": self.latency.as_secs_f64() * 1000.0,
            "held": self.held,
            "waiting": self.waiting,
            "acquired": self.acquired,
            "timed_out": self.timed_out,
            "failed": self.failed,
            "lost": self.lost,
        })
    }
}

/// The sum of numbers that anybody may have written.
fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}
