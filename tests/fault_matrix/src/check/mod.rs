//! Checks the histories of a run against the promises of the library.

pub(crate) mod exclusion;
mod loss;
mod slots;
mod tokens;
mod waits;
mod wake;

use std::fmt;
use std::time::Duration;

use crate::acquisition::Histories;
use crate::notes::Notes;

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// One holder at a time.
    Exclusion,
    /// Tokens grow with every grant.
    Tokens,
    /// A slot of a job is not run again after it was done.
    Slots,
    /// A free lock goes to a waiter.
    Wake,
    /// A wait fails only because of the store.
    Wait,
    /// A holder learns of a loss in time.
    Loss,
    /// No lock is lost without need.
    Need,
    /// Nothing stays behind in the store or in a process.
    Leaks,
    /// After a fault every process gets its locks again within the bound.
    Recovery,
    /// A run begins and comes to its end: the fault can be made, no process ends by itself, and all stop in order.
    Run,
}

/// A broken promise, with a description.
#[derive(Debug, Clone)]
pub(crate) struct Breach {
    pub(crate) promise: Promise,
    pub(crate) how: String,
    /// Whether a machine that is too busy can be the reason.
    pub(crate) timing: bool,
}

impl Breach {
    pub(crate) fn new(promise: Promise, how: String) -> Self {
        // The kind of a failed wait tells whether time can be the reason, so its checker decides.
        let timing = matches!(promise, Promise::Wake | Promise::Need | Promise::Recovery);
        Self {
            promise,
            how,
            timing,
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.how)
    }
}

/// The promises of one run.
#[derive(Debug, Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they have nothing to do with each other"
)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// How long after the lease of a vanished holder the store may take to grant the lock again.
    pub(crate) grace: Duration,
    /// The time within which a holder learns that the store forgot its lock.
    pub(crate) told_within: Duration,
    /// Whether the run must lose no lock.
    pub(crate) keeps: bool,
    /// The bound on the median time that a released lock is free while somebody waits. `None`: the run had faults.
    pub(crate) typical_wake: Option<Duration>,
    /// Whether tasks ask in short waits, which may end before the answer comes.
    pub(crate) short_waits: bool,
    /// Whether every grant must carry a token.
    pub(crate) tokens: bool,
    /// Whether the store keeps the waiters in a queue, in which a dead one stays until its lease ends.
    pub(crate) queues: bool,
}

/// The bound on scheduling delay that we always allow for a thread that is ready to run.
const LATE: Duration = Duration::from_millis(100);

/// The tolerance on every time bound. Other programs use the machine too, so we add twice the longest stall that our
/// processes measured; otherwise a busy machine would look like a broken lock.
fn slack(history: &Histories, notes: &Notes) -> Duration {
    slack_after(longest_stall(history, notes))
}

/// The tolerance of a run with this longest stall.
pub(crate) fn slack_after(stall: Duration) -> Duration {
    LATE + stall * 2
}

/// The longest time for which a process did not run although nobody had frozen it.
pub(crate) fn longest_stall(history: &Histories, notes: &Notes) -> Duration {
    let unfrozen = history.stalls.iter().filter(|stall| {
        let begun = stall.end.saturating_sub(stall.time);
        !notes.stood_still(stall.process, begun, stall.end)
    });
    unfrozen.map(|stall| stall.time).max().unwrap_or_default()
}

/// All breaches that the histories show. [`leaks`] checks the remains in the store.
pub(crate) fn all(history: &Histories, notes: &Notes, terms: &Terms) -> Vec<Breach> {
    let slack = slack(history, notes);
    let mut found = exclusion::check(history, notes, terms, slack);
    found.extend(tokens::check(history, notes, terms, slack));
    found.extend(slots::check(history, notes));
    found.extend(wake::check(history, notes, terms, slack));
    found.extend(waits::check(history, notes, terms));
    found.extend(loss::check(history, notes, terms, slack));
    found
}

/// Everything that is still in the store after every lease must have ended.
pub(crate) fn leaks(left: &[String]) -> Vec<Breach> {
    let leaked = |left: &String| Breach::new(Promise::Leaks, format!("left in the store: {left}"));
    left.iter().map(leaked).collect()
}

#[cfg(test)]
mod tests;
