//! The passage of time: takes samples, and thaws frozen processes when they are due.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::process;

use crate::crew::Crew;
use crate::witness::{micros, now};

/// A period in which a tidelock process was frozen. The process could not report a loss during it, so a late report is
/// no fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freeze {
    slot: usize,
    from: u64,
    until: u64,
}

impl Freeze {
    /// True if a late report from `slot` at time `at` falls into this freeze.
    pub(crate) fn explains(&self, slot: usize, at: u64) -> bool {
        // After the thaw a process may need up to a second to catch up.
        self.slot == slot && (self.from..self.until + 1_000_000).contains(&at)
    }
}

/// The frozen processes and the time at which each is due to be thawed.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    thaws: Vec<(Instant, u32)>,
    pub(crate) freezes: Vec<Freeze>,
}

impl Agenda {
    /// Freezes a process. No effect if it is frozen already.
    pub(crate) fn freeze(&mut self, slot: usize, pid: u32, time: Duration) -> Result<()> {
        if self.thaws.iter().any(|(_, frozen)| *frozen == pid) {
            return Ok(());
        }
        let from = now();
        process::freeze(pid)?;
        self.thaws.push((Instant::now() + time, pid));
        self.freezes.push(Freeze {
            slot,
            from,
            until: from + micros(time) + 100_000,
        });
        Ok(())
    }

    /// Removes a process that has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.thaws.retain(|(_, frozen)| *frozen != pid);
    }

    fn thaw(&mut self, everybody: bool) -> Result<()> {
        let now = Instant::now();
        let due = |at: Instant| everybody || at <= now;
        for (_, pid) in self.thaws.iter().filter(|(at, _)| due(*at)) {
            process::thaw(*pid)?;
        }
        self.thaws.retain(|(at, _)| !due(*at));
        Ok(())
    }
}

impl Crew {
    /// Waits for this time, and takes samples and thaws processes meanwhile. The faults in effect do not change.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.agenda.thaw(false)?;
            self.look()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Thaws all processes.
    pub(crate) fn wake_all(&mut self) -> Result<()> {
        self.agenda.thaw(true)
    }
}
