//! Time passes: samples are taken, and who was frozen for a while wakes up.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::process;

use crate::crew::Crew;
use crate::witness::{micros, now};

/// A process of tidelock that stood still: what it tells late meanwhile, it could not tell earlier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freeze {
    slot: usize,
    from: u64,
    until: u64,
}

impl Freeze {
    /// Whether it explains something that was told at that time.
    pub(crate) fn explains(&self, slot: usize, at: u64) -> bool {
        // It has a second's work to do when it wakes.
        self.slot == slot && (self.from..self.until + 1_000_000).contains(&at)
    }
}

/// Who has to be woken when.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    thaws: Vec<(Instant, u32)>,
    pub(crate) freezes: Vec<Freeze>,
}

impl Agenda {
    /// Freezes a process, if it is not frozen already.
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

    /// That process has gone.
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
    /// Lets so much time pass, whatever state everything is in.
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

    /// Nobody is frozen any more.
    pub(crate) fn wake_all(&mut self) -> Result<()> {
        self.agenda.thaw(true)
    }
}
