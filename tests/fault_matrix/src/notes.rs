//! The faults of a run and their times. The checkers need them to tell an excused failure from a bug.

use std::time::Duration;

/// A period of time.
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

/// The store forgot or freed locks at some moment of this period.
#[derive(Debug, Clone)]
pub(crate) struct Harm {
    pub(crate) when: Span,
    /// `None`: all locks.
    pub(crate) name: Option<String>,
    /// Whether the store also forgot its token counters.
    pub(crate) tokens: bool,
    /// `true`: it certainly did. `false`: it may have.
    pub(crate) sure: bool,
}

impl Harm {
    pub(crate) fn concerns(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|harmed| harmed == name)
    }
}

/// A period in which the store was unavailable or slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) when: Span,
    /// The store sent nothing at all to any client.
    pub(crate) mute: bool,
}

/// The leases of a process ended in the store before it could know, by at most this time: its clock and the store's run
/// at rates that differ by more than the drift.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Early {
    pub(crate) process: u32,
    pub(crate) when: Span,
    pub(crate) by: Duration,
}

/// All faults of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) harms: Vec<Harm>,
    pub(crate) outages: Vec<Outage>,
    /// Frozen processes, by number.
    pub(crate) frozen: Vec<(u32, Span)>,
    pub(crate) killed: Vec<(u32, Duration)>,
    /// When the store forgot the marks of jobs, and nothing else.
    pub(crate) marks_forgotten: Vec<Span>,
    /// Processes, by number, to which no server could confirm anything in that time.
    pub(crate) deaf: Vec<(u32, Span)>,
    /// Processes, by number, that were cut off while the store was well.
    pub(crate) cut_off: Vec<(u32, Span)>,
    pub(crate) early: Vec<Early>,
    /// The time of the partition of the network.
    pub(crate) parted: Option<Span>,
    /// How long after its end every process had its locks again.
    pub(crate) served_after: Option<Duration>,
    /// Whether the servers chose a new leader although nothing was cut.
    pub(crate) disturbed: bool,
    /// The time at which the processes were told to stop.
    pub(crate) ended: Duration,
}

impl Notes {
    /// Whether this process was frozen at some moment of the period, or killed before its end.
    pub(crate) fn stood_still(&self, process: u32, from: Duration, to: Duration) -> bool {
        let froze = |(number, when): &(u32, Span)| *number == process && when.meets(from, to);
        self.frozen.iter().any(froze) || self.killed_before(process, to)
    }

    /// Whether this process was cut off at some moment of the period.
    pub(crate) fn was_cut_off(&self, process: u32, from: Duration, to: Duration) -> bool {
        let met = |(number, when): &(u32, Span)| *number == process && when.meets(from, to);
        self.cut_off.iter().any(met)
    }

    pub(crate) fn killed_before(&self, process: u32, at: Duration) -> bool {
        let dead = |(number, when): &(u32, Duration)| *number == process && *when <= at;
        self.killed.iter().any(dead)
    }

    /// The end of the last outage that overlaps this period.
    pub(crate) fn outage_until(&self, from: Duration, to: Duration) -> Option<Duration> {
        let met = self
            .outages
            .iter()
            .filter(|outage| outage.when.meets(from, to));
        met.map(|outage| outage.when.to).max()
    }
}
