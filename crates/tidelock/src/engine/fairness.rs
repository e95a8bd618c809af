//! The fairness delay: after a process has released a lock, waiters of other processes ask the store first.
//!
//! A *turn* of a process lasts from a grant of the store to the release in the store; the lock may pass through many
//! tasks of the process in that time. Without a delay, the next task of the releasing process would always be faster
//! than a message to another process, and one process would keep the lock. One message wakes several processes, and the
//! fastest of them would get the lock, not the one that has waited longest. The algorithm, for each name:
//!
//! 1. After a turn, `before` is the number of other tidelock processes that wait, and `step` is the time that each of
//!    them gets: twice the duration of the release (300 µs to 20 ms), because a message and a request must travel.
//! 2. The process counts the releases it hears of since its turn. It asks once it has heard of `before` releases. Until
//!    then it waits one `step` for each that is missing, counted from the last release, and `most` in all. If it has
//!    heard of none, it waits a single `step`. So a process that has seen fewer releases asks later.
//! 3. If it gets the lock again before it has heard of `before` releases, some waiter did not come in time. The next
//!    `step` is four times as long, up to a quarter of the last turn, at most 20 ms: a distant process needs several
//!    times as long as a neighbour. If the longest step was in vain too, the next one is the shortest again: the other
//!    client may be frozen or gone.
//!
//! A delay that is longer than needed costs nothing while others come, because their releases end it. Clients other
//! than tidelock need longer delays; see [`debt`](crate::engine::fairness::debt).
//!
//! The state belongs to the name and not to a waiting task. A task may give up after a few milliseconds, and the next
//! one must still wait for the other processes.

pub(crate) mod debt;

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::fairness::debt::{EndedTurn, FairnessDebt, MAX_FAIRNESS_DELAY, PLACES};
use crate::store::{BootInstant, Name, ReleasesSeen};

/// Bounds the delay to this fraction (1/`DELAY_DIVISOR`) of the last turn, unless the shortest delay is longer.
const DELAY_DIVISOR: u32 = 4;
/// The factor between a step in which a waiter did not come and the next step.
const DELAY_GROWTH: u32 = 4;
/// Bounds how long after a turn its step still determines the next one, and how long we must keep its account.
const ACCOUNT_TTL: Duration = Duration::from_secs(1);

/// The delay of this process for other clients of tidelock.
#[derive(Debug, Clone, Copy, Default)]
struct FairnessDelay {
    /// How many other processes have a turn before this process asks again.
    before: u32,
    /// The time that each of them gets.
    step: Duration,
    /// Bounds the time that all of them get together.
    most: Duration,
    /// How many times the step was multiplied by `DELAY_GROWTH`.
    longer: u32,
    /// The step has reached its bound.
    is_longest: bool,
    /// This process got the lock again before all of them had a turn.
    missed: bool,
}

impl FairnessDelay {
    fn after(ended: &EndedTurn, last: Option<&Self>) -> Self {
        let shortest = ended.shortest();
        let most = (ended.kept / DELAY_DIVISOR).clamp(shortest, MAX_FAIRNESS_DELAY);
        let longer = last.map_or(0, Self::next);
        let step = (shortest * DELAY_GROWTH.pow(longer)).min(most);
        let before = ended.awaited.peers().min(PLACES);
        Self {
            before,
            step,
            most: most.max((shortest * before).min(MAX_FAIRNESS_DELAY)),
            longer,
            is_longest: step == most,
            missed: false,
        }
    }

    /// How many times the next step is multiplied by `DELAY_GROWTH`.
    fn next(&self) -> u32 {
        match (self.missed, self.is_longest) {
            (false, _) => self.longer,
            (true, false) => self.longer + 1,
            (true, true) => 0,
        }
    }

    /// The instant before which this process does not ask. `seen` others have had a turn; the rest get time from
    /// `free_since`.
    fn end(&self, free_since: BootInstant, seen: u32) -> BootInstant {
        match (self.before.saturating_sub(seen), seen) {
            (0, _) => BootInstant(0),
            (_, 0) => free_since + self.step,
            (rest, _) => free_since + (self.step * rest).min(self.most),
        }
    }
}

/// What this process knows about the other processes that wait for a name.
#[derive(Debug, Clone, Copy)]
struct FairnessAccount {
    /// The last turn of this process.
    last: EndedTurn,
    delay: FairnessDelay,
    debt: FairnessDebt,
}

impl FairnessAccount {
    /// The account after a turn of this process. `old`: the account before it.
    fn after(ended: &EndedTurn, old: Option<&Self>) -> Self {
        let last = old.filter(|old| old.is_remembered(ended.now));
        let last = last.map(|old| &old.delay);
        let mut debt = old.map(|old| old.debt).unwrap_or_default();
        debt.add(ended);
        Self {
            last: *ended,
            delay: FairnessDelay::after(ended, last),
            debt,
        }
    }

    /// How many turns other processes have had since ours. `None`: the store does not report them.
    fn seen(&self, releases_seen: Option<ReleasesSeen>) -> Option<u32> {
        let count = releases_seen?
            .count
            .saturating_sub(self.last.awaited.releases_seen);
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// How much longer this process must not ask.
    fn pause(&self, now: BootInstant, releases_seen: Option<ReleasesSeen>) -> Duration {
        let ended = self.last.now;
        let seen = self.seen(releases_seen);
        let last = releases_seen.map(|releases_seen| releases_seen.last);
        // If others had the lock after us, it has been free since the last release that we heard of.
        let free_since = last.filter(|_| seen > Some(0)).unwrap_or(ended);
        let free_since = free_since.max(ended);
        let delay = self.delay.end(free_since, seen.unwrap_or(0));
        let debt = self.debt.end(ended, now, free_since, seen);
        delay.max(debt).since(now)
    }

    /// This process has the lock again: notes whether the others had their turns.
    fn granted(&mut self, now: BootInstant, releases_seen: Option<ReleasesSeen>) {
        let seen = self.seen(releases_seen);
        self.delay.missed |= self.delay.before > seen.unwrap_or(0);
        let elapsed = now.since(self.last.now);
        self.debt.granted(elapsed, self.last.awaited.peers(), seen);
        // Any further delay follows from the end of this new turn.
        self.delay.before = 0;
    }

    fn is_remembered(&self, now: BootInstant) -> bool {
        now < self.last.now + ACCOUNT_TTL
    }
}

/// The accounts of all names for which other processes wait.
#[derive(Debug, Default)]
pub(crate) struct FairnessDelays {
    each: HashMap<Name, FairnessAccount>,
    /// The number of accounts at which we remove old ones.
    many: usize,
}

impl FairnessDelays {
    pub(crate) fn knows(&self, name: &Name) -> bool {
        self.each.contains_key(name)
    }

    /// How much longer this process must not ask for the lock.
    pub(crate) fn pause(
        &self,
        name: &Name,
        now: BootInstant,
        releases_seen: Option<ReleasesSeen>,
    ) -> Duration {
        let account = self.each.get(name);
        account.map_or(Duration::ZERO, |account| account.pause(now, releases_seen))
    }

    /// This process has released the lock.
    pub(crate) fn ended(&mut self, name: &Name, ended: &EndedTurn) {
        if let Some(account) = self.each.get_mut(name) {
            *account = FairnessAccount::after(ended, Some(account));
        } else if ended.awaited.is_anybody() {
            self.make_room(ended.now);
            let account = FairnessAccount::after(ended, None);
            self.each.insert(name.clone(), account);
        }
    }

    /// This process has got the lock.
    pub(crate) fn granted(
        &mut self,
        name: &Name,
        now: BootInstant,
        releases_seen: Option<ReleasesSeen>,
    ) {
        if let Some(account) = self.each.get_mut(name) {
            account.granted(now, releases_seen);
        }
    }

    /// Removes old accounts, once their number has doubled. Otherwise every name ever used would stay in memory.
    fn make_room(&mut self, now: BootInstant) {
        if self.each.len() >= self.many {
            self.each.retain(|_, account| account.is_remembered(now));
            self.many = (self.each.len() * 2).max(16);
        }
    }
}

#[cfg(test)]
mod tests;
