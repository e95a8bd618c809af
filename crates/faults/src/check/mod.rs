//! Whether what was written down may have happened.

mod exclusion;
mod loss;
mod tokens;
mod waits;
mod wake;

use std::fmt;
use std::time::Duration;

use crate::acquisition::Histories;
use crate::notes::Notes;

/// What a broken promise is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// One holder at a time.
    Exclusion,
    /// Tokens grow with every grant.
    Tokens,
    /// A free lock is given to who waits for it.
    Wake,
    /// A wait fails only because of the store.
    Wait,
    /// A holder is told in time, and not without need.
    Loss,
    /// Nothing stays behind.
    Leaks,
}

/// A promise that was broken, and how.
#[derive(Debug, Clone)]
pub(crate) struct Breach {
    pub(crate) promise: Promise,
    pub(crate) how: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.how)
    }
}

fn breach(promise: Promise, how: String) -> Breach {
    Breach { promise, how }
}

/// What is promised in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// How much later than its lease the store gives a lock away whose holder has vanished.
    pub(crate) grace: Duration,
    /// A forgotten lock is told to its holder within this time.
    pub(crate) told_within: Duration,
    /// No lock may be lost.
    pub(crate) keeps: bool,
    /// How long a lock that was given back may be free while somebody waits, mostly. `None`: there were faults.
    pub(crate) typical_wake: Option<Duration>,
    /// A token is to come with every grant.
    pub(crate) tokens: bool,
}

/// What a thread that is told to run may be late at any time.
const LATE: Duration = Duration::from_millis(100);

/// How much later than a bound something may be: the machine has others to serve, and what it kept our processes waiting
/// was measured.
fn slack(history: &Histories, notes: &Notes) -> Duration {
    let unfrozen = history.stalls.iter().filter(|stall| {
        let begun = stall.end.saturating_sub(stall.time);
        !notes.stood_still(stall.process, begun, stall.end)
    });
    let longest = unfrozen.map(|stall| stall.time).max().unwrap_or_default();
    LATE + longest * 2
}

/// Everything that the histories show to be broken. What is left in the store is looked at by [`leaks`].
pub(crate) fn all(history: &Histories, notes: &Notes, terms: &Terms) -> Vec<Breach> {
    let slack = slack(history, notes);
    let mut found = exclusion::check(history, notes, terms, slack);
    found.extend(tokens::check(history, notes, terms, slack));
    found.extend(wake::check(history, notes, terms, slack));
    found.extend(waits::check(history, notes));
    found.extend(loss::check(history, notes, terms, slack));
    found
}

/// What is still in the store after every lease must have ended.
pub(crate) fn leaks(left: &[String]) -> Vec<Breach> {
    let leaked = |left: &String| breach(Promise::Leaks, format!("left in the store: {left}"));
    left.iter().map(leaked).collect()
}

#[cfg(test)]
mod tests;
