//! What was done to the processes and the store of a run, and when: the checkers judge by it.

use std::time::Duration;

/// From one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Span {
    pub(crate) fn meets(self, from: Duration, to: Duration) -> bool {
        self.from <= to && from <= self.to
    }
}

/// The store forgot locks, or gave them away, at some moment of this time.
#[derive(Debug, Clone)]
pub(crate) struct Harm {
    pub(crate) when: Span,
    /// `None`: all of them.
    pub(crate) name: Option<String>,
    /// The counters of the tokens are forgotten, too.
    pub(crate) tokens: bool,
    /// It has; without this it only may have.
    pub(crate) sure: bool,
}

impl Harm {
    pub(crate) fn concerns(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|harmed| harmed == name)
    }
}

/// The store could not be used, or not quickly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) when: Span,
    /// Nothing at all came from it, to anybody.
    pub(crate) mute: bool,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) harms: Vec<Harm>,
    pub(crate) outages: Vec<Outage>,
    /// Which process stood still.
    pub(crate) frozen: Vec<(u32, Span)>,
    pub(crate) killed: Vec<(u32, Duration)>,
    /// When the processes were asked to end.
    pub(crate) ended: Duration,
}

impl Notes {
    /// Whether this process did nothing at some moment of that time.
    pub(crate) fn stood_still(&self, process: u32, from: Duration, to: Duration) -> bool {
        let froze = |(number, when): &(u32, Span)| *number == process && when.meets(from, to);
        self.frozen.iter().any(froze) || self.killed_before(process, to)
    }

    pub(crate) fn killed_before(&self, process: u32, at: Duration) -> bool {
        let dead = |(number, when): &(u32, Duration)| *number == process && *when <= at;
        self.killed.iter().any(dead)
    }

    /// The end of the last outage that a wait of that time met with.
    pub(crate) fn outage_until(&self, from: Duration, to: Duration) -> Option<Duration> {
        let met = self
            .outages
            .iter()
            .filter(|outage| outage.when.meets(from, to));
        met.map(|outage| outage.when.to).max()
    }
}
