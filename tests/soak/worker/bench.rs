//! The way to the judge, and the claims of this process.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::Guard;

use crate::record::{Kind, Mode, Record, What, micros, now};

/// Tells the judge what this process does.
#[derive(Debug)]
pub(crate) struct Bench {
    pipe: File,
    slot: u16,
    generation: u32,
    claims: AtomicU32,
    /// The longest wait so far in microseconds, and for what.
    longest: Mutex<(u64, Kind)>,
}

impl Bench {
    pub(crate) fn open(path: &Path, slot: u16, generation: u32) -> Result<Self> {
        let pipe = OpenOptions::new().write(true).open(path);
        Ok(Self {
            pipe: pipe.with_context(|| path.display().to_string())?,
            slot,
            generation,
            claims: AtomicU32::new(0),
            longest: Mutex::new((0, Kind::Lock)),
        })
    }

    /// Returns when the record is in the pipe. Only then may the lock be released.
    pub(crate) fn tell(&self, mut record: Record) -> Result<()> {
        record.slot = self.slot;
        record.generation = self.generation;
        if record.from == 0 {
            record.from = now();
        }
        (&self.pipe)
            .write_all(&record.bytes())
            .context("the judge has gone")
    }

    pub(crate) fn waited(&self, kind: Kind, since: Instant) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = (micros(since.elapsed()), kind).max(*longest);
    }

    /// The longest wait so far in microseconds, and for what.
    pub(crate) fn longest(&self) -> (u64, Kind) {
        *self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim that is not told yet.
    pub(crate) fn claim(&self, kind: Kind, name: u16, mode: Mode, amount: u32) -> Claim<'_> {
        let mut record = Record::new(What::Enters, kind);
        record.name = name;
        record.mode = mode;
        record.amount = amount;
        record.claim = self.claims.fetch_add(1, Ordering::Relaxed);
        Claim {
            bench: self,
            record,
        }
    }
}

/// What a holder claims of one name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    bench: &'a Bench,
    record: Record,
}

impl Claim<'_> {
    pub(crate) fn token(mut self, token: u64) -> Self {
        self.record.token = token;
        self
    }

    pub(crate) fn mark(mut self, mark: u64) -> Self {
        self.record.mark = mark;
        self
    }

    /// Not the first part of its acquisition.
    pub(crate) fn part(mut self) -> Self {
        self.record.counted = false;
        self
    }

    /// Enters for as long as the guard is sure of its hold. We read the clock before the guard. Otherwise the claim could
    /// be longer than the truth.
    pub(crate) fn enter(&self, guard: &Guard) -> Result<()> {
        let from = now();
        self.enter_for(from, guard.valid_for())
    }

    pub(crate) fn enter_for(&self, from: u64, time: Duration) -> Result<()> {
        let mut record = self.record;
        record.from = from;
        record.until = from.saturating_add(micros(time));
        self.bench.tell(record)
    }

    /// Call this before the release, otherwise the next holder could enter while this claim still stands.
    pub(crate) fn leave(&self, guard: &Guard) -> Result<()> {
        let how = if guard.is_held() {
            What::Leaves
        } else {
            What::Loses
        };
        self.say(how)
    }

    /// The claim goes on, for as long as the guard is sure of its hold now.
    pub(crate) fn keep(&self, guard: &Guard) -> Result<()> {
        let from = now();
        let until = from.saturating_add(micros(guard.valid_for()));
        self.bench.tell(Record {
            what: What::Keeps,
            from,
            until,
            ..self.record
        })
    }

    /// The holder is alone from now on, for as long as this guard says.
    #[cfg(feature = "upgrades")]
    pub(crate) fn upgrade(&self, writer: &Guard) -> Result<()> {
        let from = now();
        let until = from.saturating_add(micros(writer.valid_for()));
        self.bench.tell(Record {
            what: What::Upgrades,
            from,
            until,
            ..self.record
        })
    }

    pub(crate) fn say(&self, what: What) -> Result<()> {
        self.bench.tell(Record {
            what,
            from: 0,
            ..self.record
        })
    }
}
