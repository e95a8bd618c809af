//! How long a process holds back for waiters elsewhere that are not clients of tidelock.
//!
//! A client of tidelock asks within a fraction of a millisecond after a release. A Java service needs several times as long,
//! and a client that polls needs its whole interval. Without a rule the next task of the process that has just released is
//! always faster, and the others starve.
//!
//! The rule: for each turn of this process the others get one turn, or twice its time. Until then this process does not ask
//! as soon as the lock is free; it waits a moment first. The moment grows until somebody comes within it. A client that never
//! comes (a stopped JVM keeps its subscription) must not cost throughput, so the idle time is paid from a credit, which grows
//! with the time for which this process holds the lock.
//!
//! The debt belongs to the name: a task that gives up after three milliseconds leaves the rest to the next task.

use std::time::Duration;

use crate::backend::{Awaited, Moment};

/// A task that was woken may need this long to run at all.
const LEAST: Duration = Duration::from_micros(300);
/// The lock lies idle no longer than this in a row, so that a frozen subscriber does not stop this process.
pub(super) const MOST: Duration = Duration::from_millis(20);
/// With more processes than this we do not tell the number of turns apart.
pub(super) const PLACES: u32 = 8;
/// A moment in which nobody came is followed by one this many times as long.
const LONGER: u32 = 4;
/// One part in `PART` of the time for which the lock was held may be spent idle. Each of the longest moments that is in vain
/// makes it that much less again, `TRIES` times at most.
const PART: u32 = 2;
const TRIES: u32 = 3;
/// The debt for one name is never longer than this, because a waiter of this process may wait that much longer.
const LONGEST: Duration = Duration::from_millis(100);

/// A turn of this process that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) now: Moment,
    /// For how long the process held the lock, and how many of its tasks had it in that time.
    pub(crate) kept: Duration,
    pub(crate) turns: u32,
    /// How long the release took.
    pub(crate) trip: Duration,
    /// Who waits elsewhere.
    pub(crate) awaited: Awaited,
}

impl Ended {
    /// The message has to reach the others and their request the store, which takes about one trip. They get two at least,
    /// because they have to wake up first.
    pub(super) fn shortest(&self) -> Duration {
        (self.trip * 2).clamp(LEAST, MOST)
    }
}

/// What this process owes for one name since its last turn ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Debt {
    /// The turns that others have not had yet.
    turns: u32,
    /// The time in which they may have them.
    time: Duration,
    /// The moment that others get to come, each time the lock is free.
    patience: Duration,
    /// For how long the lock may lie idle in vain.
    credit: Duration,
    /// How many of the longest moments were in vain since somebody came.
    vain: u32,
}

impl Debt {
    /// A turn of this process has ended.
    pub(super) fn add(&mut self, ended: &Ended) {
        let Awaited {
            strangers, polled, ..
        } = ended.awaited;
        if strangers == 0 && !polled {
            (self.turns, self.time, self.vain) = (0, Duration::ZERO, 0);
            return;
        }
        let kin = ended.awaited.kin().min(PLACES);
        // One turn for each other tidelock process, then as many for the strangers together. Few strangers get twice their
        // number at most. All clients that poll count as one, because the store cannot count them.
        let share = (kin + 1).min(strangers.saturating_mul(2).max(u32::from(polled)));
        let turns = ended.turns.saturating_mul(share).saturating_add(kin);
        self.turns = self.turns.saturating_add(turns);
        let time = ended.kept.saturating_mul(2 * share + kin);
        self.time = self.time.saturating_add(time).min(LONGEST);
        self.patience = self.patience.clamp(ended.shortest(), MOST);
        // A client that polls comes by chance, so a moment in vain says little. It held the lock a short time ago: it is there.
        let vain = if polled { 0 } else { self.vain };
        let earned = ended.kept / PART.pow(1 + vain);
        self.credit = self.credit.saturating_add(earned).min(MOST);
    }

    fn stands(&self, elapsed: Duration, seen: u32) -> bool {
        self.turns > seen && elapsed < self.time
    }

    /// The moment that others get. A process that does not hear of their turns gives the longest one once, because it cannot
    /// know when somebody has come.
    fn given(&self, hears: bool) -> Duration {
        let wish = if hears { self.patience } else { MOST };
        let wish = wish.min(self.time);
        if wish <= self.credit {
            wish
        } else {
            Duration::ZERO
        }
    }

    /// Do not ask before this. `seen` is how many turns others have had since `ended`, when this process had its last; `None`
    /// if it does not hear of them. The lock has been free since `free_since`.
    pub(super) fn end(
        &self,
        ended: Moment,
        now: Moment,
        free_since: Moment,
        seen: Option<u32>,
    ) -> Moment {
        let given = self.given(seen.is_some());
        if given.is_zero() || !self.stands(now.since(ended), seen.unwrap_or(0)) {
            return Moment(0);
        }
        (free_since + given).min(ended + self.time)
    }

    /// This process has the lock again.
    pub(super) fn granted(&mut self, elapsed: Duration, kin: u32, seen: Option<u32>) {
        let turns = seen.unwrap_or(0);
        let stands = self.stands(elapsed, turns);
        self.turns = self.turns.saturating_sub(turns);
        // The other tidelock processes have one turn each before any stranger counts as come.
        if turns > kin {
            self.paid(elapsed, stands);
        } else if self.turns > 0 {
            self.waited_in_vain(seen.is_some());
        }
    }

    fn paid(&mut self, elapsed: Duration, stands: bool) {
        (self.credit, self.vain) = (MOST, 0);
        if stands {
            // Somebody came, but not every time: the moment is too short for some of them.
            self.time = self.time.saturating_sub(elapsed);
            self.patience = (self.patience * 2).min(MOST);
        } else {
            (self.turns, self.time) = (0, Duration::ZERO);
        }
    }

    /// Time in which nobody came pays nothing, so the debt stays.
    fn waited_in_vain(&mut self, hears: bool) {
        let given = self.given(hears);
        if given.is_zero() {
            return;
        }
        self.credit = self.credit.saturating_sub(given);
        if hears && self.patience < MOST {
            self.patience = (self.patience * LONGER).min(MOST);
            return;
        }
        self.vain = (self.vain + 1).min(TRIES);
        (self.turns, self.time) = (0, Duration::ZERO);
    }
}
