//! The fairness delay for waiters that are not clients of tidelock.
//!
//! A client of tidelock asks within a fraction of a millisecond after a release. A Java service needs several times as
//! long, and a client that polls needs its whole interval. Without a longer delay the next task of the process that has
//! just released would always be faster, and the others would starve. The algorithm, for each name:
//!
//! 1. For each hold of one of its tasks this process owes the others one turn, or twice its duration; more if several
//!    of them wait. Until they had the turns or the time, it waits for `patience` each time the lock is free.
//! 2. `patience` grows if no other client comes within it, up to `MAX_FAIRNESS_DELAY`.
//! 3. The lock lies idle in that time. A client that never comes (a stopped JVM keeps its subscription) must not cost
//!    throughput, so we subtract idle time from a credit, which grows with the time for which this process holds the
//!    lock. Without enough credit there is no delay. If the longest delay was in vain too, the debt is cancelled and
//!    the credit grows more slowly.
//!
//! The debt belongs to the name. A task that gives up after three milliseconds leaves the rest to the next task.

use std::time::Duration;

use crate::store::{Awaited, BootInstant};

/// Bounds the shortest delay from below: a task that is woken may need this long until it runs.
const MIN_FAIRNESS_DELAY: Duration = Duration::from_micros(300);
/// Bounds one delay, and the credit: a frozen subscriber must not stop this process.
pub(crate) const MAX_FAIRNESS_DELAY: Duration = Duration::from_millis(20);
/// Bounds the number of other processes that we count.
pub(crate) const PLACES: u32 = 8;
/// The factor between a delay in which no client came and the next delay.
const DELAY_GROWTH: u32 = 4;
/// The lock may lie idle for 1/`IDLE_DIVISOR` of the time for which it was held. Each longest delay in vain divides that by
/// `IDLE_DIVISOR` again, up to `MAX_IDLE_DIVISIONS` times.
const IDLE_DIVISOR: u32 = 2;
/// Bounds how often the allowed idle time is divided.
const MAX_IDLE_DIVISIONS: u32 = 3;
/// Bounds the time of a debt: a waiter of this process may wait that much longer.
const MAX_DEBT: Duration = Duration::from_millis(100);

/// A turn of this process that has ended: from a grant of the store to the release in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedTurn {
    /// When it ended.
    pub(crate) now: BootInstant,
    /// How long the process held the lock.
    pub(crate) kept: Duration,
    /// How many of its tasks held it in that time.
    pub(crate) turns: u32,
    /// How long the release took.
    pub(crate) trip: Duration,
    /// The waiters of other processes.
    pub(crate) awaited: Awaited,
}

impl EndedTurn {
    /// The shortest delay. The message must reach the others and their request must reach the store, which takes about
    /// as long as the release took. They get twice that, because their tasks must be scheduled first.
    pub(crate) fn shortest(&self) -> Duration {
        (self.trip * 2).clamp(MIN_FAIRNESS_DELAY, MAX_FAIRNESS_DELAY)
    }
}

/// The debt of this process for one name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FairnessDebt {
    /// How many turns the others may still have before this process asks without delay.
    turns: u32,
    /// Bounds the time in which they may have them. Never more than `MAX_DEBT`.
    time: Duration,
    /// The delay each time the lock is free. Never more than `MAX_FAIRNESS_DELAY`.
    patience: Duration,
    /// How long the lock may lie idle in vain. Never more than `MAX_FAIRNESS_DELAY`.
    credit: Duration,
    /// How many longest delays were in vain since another client came. Never more than `MAX_IDLE_DIVISIONS`.
    vain: u32,
}

impl FairnessDebt {
    /// Adds the debt of a turn that has ended. No other client waits: cancels the debt.
    pub(crate) fn add(&mut self, ended: &EndedTurn) {
        let Awaited {
            foreign, polled, ..
        } = ended.awaited;
        if foreign == 0 && !polled {
            (self.turns, self.time, self.vain) = (0, Duration::ZERO, 0);
            return;
        }
        let peers = ended.awaited.peers().min(PLACES);
        // Each other tidelock process gets one turn. The other clients together get as many as all tidelock processes,
        // this one included, but at most twice their own number. All clients that poll count as one, because the store
        // cannot count them.
        let share = (peers + 1).min(foreign.saturating_mul(2).max(u32::from(polled)));
        let turns = ended.turns.saturating_mul(share).saturating_add(peers);
        self.turns = self.turns.saturating_add(turns);
        let time = ended.kept.saturating_mul(2 * share + peers);
        self.time = self.time.saturating_add(time).min(MAX_DEBT);
        self.patience = self.patience.clamp(ended.shortest(), MAX_FAIRNESS_DELAY);
        // A client that polls comes by chance, so a delay in vain proves little. It had the lock a short time ago, so
        // we know that it exists.
        let vain = if polled { 0 } else { self.vain };
        let earned = ended.kept / IDLE_DIVISOR.pow(1 + vain);
        self.credit = self.credit.saturating_add(earned).min(MAX_FAIRNESS_DELAY);
    }

    /// Whether the debt is still open.
    fn is_open(&self, elapsed: Duration, seen: u32) -> bool {
        self.turns > seen && elapsed < self.time
    }

    /// The delay that the others get now. Zero without enough credit. A process that does not hear of their turns waits
    /// for the longest delay once, because it cannot know when another client has come.
    fn given(&self, hears: bool) -> Duration {
        let wish = if hears {
            self.patience
        } else {
            MAX_FAIRNESS_DELAY
        };
        let wish = wish.min(self.time);
        if wish <= self.credit {
            wish
        } else {
            Duration::ZERO
        }
    }

    /// The instant before which this process does not ask. `seen` is how many turns others have had since `ended`, the
    /// end of the last turn of this process; `None` if it does not hear of them. The lock has been free since
    /// `free_since`.
    pub(crate) fn end(
        &self,
        ended: BootInstant,
        now: BootInstant,
        free_since: BootInstant,
        seen: Option<u32>,
    ) -> BootInstant {
        let given = self.given(seen.is_some());
        if given.is_zero() || !self.is_open(now.since(ended), seen.unwrap_or(0)) {
            return BootInstant(0);
        }
        (free_since + given).min(ended + self.time)
    }

    /// This process has the lock again: reduces the debt, or makes the next delay longer.
    pub(crate) fn granted(&mut self, elapsed: Duration, peers: u32, seen: Option<u32>) {
        let turns = seen.unwrap_or(0);
        let is_open = self.is_open(elapsed, turns);
        self.turns = self.turns.saturating_sub(turns);
        // We cannot tell whose turns we saw. So we take the first `peers` turns for those of other tidelock processes,
        // and only a further one shows that another client came.
        if turns > peers {
            self.paid(elapsed, is_open);
        } else if self.turns > 0 {
            self.waited_in_vain(seen.is_some());
        }
    }

    /// Another client came: restores the credit.
    fn paid(&mut self, elapsed: Duration, is_open: bool) {
        (self.credit, self.vain) = (MAX_FAIRNESS_DELAY, 0);
        if is_open {
            // Another client came, but the debt is still open: the delay is too short for some of them.
            self.time = self.time.saturating_sub(elapsed);
            self.patience = (self.patience * 2).min(MAX_FAIRNESS_DELAY);
        } else {
            (self.turns, self.time) = (0, Duration::ZERO);
        }
    }

    /// No other client came: subtracts the idle time from the credit. The debt stays until the longest delay was in
    /// vain.
    fn waited_in_vain(&mut self, hears: bool) {
        let given = self.given(hears);
        if given.is_zero() {
            return;
        }
        self.credit = self.credit.saturating_sub(given);
        if hears && self.patience < MAX_FAIRNESS_DELAY {
            self.patience = (self.patience * DELAY_GROWTH).min(MAX_FAIRNESS_DELAY);
            return;
        }
        self.vain = (self.vain + 1).min(MAX_IDLE_DIVISIONS);
        (self.turns, self.time) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests;
