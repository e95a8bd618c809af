//! Turns between processes: a process that has had the lock lets waiters elsewhere ask first.
//!
//! The next task of the process that releases is always faster than a message to another process, so without a rule one
//! process would keep the lock. Of the processes that one message wakes the fastest would get it, not the one that has waited
//! longest: so a process asks the later the fewer releases it has heard of since its own turn.
//!
//! Each process learns how long other clients of tidelock need: a distant one needs several times as long as a neighbour. When
//! a waiter did not come, the next pause is four times as long, up to a quarter of the last turn; when that was in vain too,
//! the process starts again with the shortest pause. A pause that is longer than needed costs nothing while others come.
//! Waiters that are not clients of tidelock need more, see [`debt`](super::debt).
//!
//! This state belongs to the name and not to a task that waits: a task may give up after a few milliseconds, and the next one
//! must still let the others go first.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{Heard, Moment, Name};
use crate::core::debt::{Debt, Ended, MOST, PLACES};

/// A pause is no longer than this part of the last turn, unless the shortest pause is longer.
const PART: u32 = 4;
/// A pause in which a waiter did not come is followed by one this many times as long.
const LONGER: u32 = 4;
/// We remember for this long how much time others need.
const REMEMBERED: Duration = Duration::from_secs(1);

/// How long a process holds back for other clients of tidelock.
#[derive(Debug, Clone, Copy, Default)]
struct Courtesy {
    /// This many other processes have a turn before the next one of ours.
    before: u32,
    /// The time each of them gets to ask.
    step: Duration,
    /// The time all of them get together.
    most: Duration,
    /// How many times the step was made longer.
    longer: u32,
    is_longest: bool,
    /// This process got the lock again before all of them had had it.
    missed: bool,
}

impl Courtesy {
    fn after(ended: &Ended, last: Option<&Self>) -> Self {
        let shortest = ended.shortest();
        let most = (ended.kept / PART).clamp(shortest, MOST);
        let longer = last.map_or(0, Self::next);
        let step = (shortest * LONGER.pow(longer)).min(most);
        let before = ended.awaited.kin().min(PLACES);
        Self {
            before,
            step,
            most: most.max((shortest * before).min(MOST)),
            longer,
            is_longest: step == most,
            missed: false,
        }
    }

    /// How many times the next step is made longer.
    fn next(&self) -> u32 {
        match (self.missed, self.is_longest) {
            (false, _) => self.longer,
            (true, false) => self.longer + 1,
            (true, true) => 0,
        }
    }

    /// Do not ask before this: `seen` others have had their turn, and the rest get time.
    fn end(&self, free_since: Moment, seen: u32) -> Moment {
        match (self.before.saturating_sub(seen), seen) {
            (0, _) => Moment(0),
            (_, 0) => free_since + self.step,
            (rest, _) => free_since + (self.step * rest).min(self.most),
        }
    }
}

/// What we know of the others that want one name.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// The last turn of this process.
    last: Ended,
    courtesy: Courtesy,
    debt: Debt,
}

impl Account {
    /// A turn of this process has ended. `old`: what was known before.
    fn after(ended: &Ended, old: Option<&Self>) -> Self {
        let last = old.filter(|old| old.is_remembered(ended.now));
        let last = last.map(|old| &old.courtesy);
        let mut debt = old.map(|old| old.debt).unwrap_or_default();
        debt.add(ended);
        Self {
            last: *ended,
            courtesy: Courtesy::after(ended, last),
            debt,
        }
    }

    /// How many turns others have had since ours. `None`: this process does not hear of them.
    fn seen(&self, heard: Option<Heard>) -> Option<u32> {
        let count = heard?.count.saturating_sub(self.last.awaited.heard);
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn pause(&self, now: Moment, heard: Option<Heard>) -> Duration {
        let ended = self.last.now;
        let seen = self.seen(heard);
        let last = heard.map(|heard| heard.last);
        // Others had the lock after us, as far as that was heard.
        let free_since = last.filter(|_| seen > Some(0)).unwrap_or(ended);
        let free_since = free_since.max(ended);
        let courtesy = self.courtesy.end(free_since, seen.unwrap_or(0));
        let debt = self.debt.end(ended, now, free_since, seen);
        courtesy.max(debt).since(now)
    }

    fn granted(&mut self, now: Moment, heard: Option<Heard>) {
        let seen = self.seen(heard);
        self.courtesy.missed |= self.courtesy.before > seen.unwrap_or(0);
        let elapsed = now.since(self.last.now);
        self.debt.granted(elapsed, self.last.awaited.kin(), seen);
        // The rest of it belongs to the turn that ends next.
        self.courtesy.before = 0;
    }

    fn is_remembered(&self, now: Moment) -> bool {
        now < self.last.now + REMEMBERED
    }
}

/// The names that others want elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Courtesies {
    each: HashMap<Name, Account>,
    /// At this number we look for accounts that can go.
    many: usize,
}

impl Courtesies {
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    pub(super) fn knows(&self, name: &Name) -> bool {
        self.each.contains_key(name)
    }

    /// How long this process must not ask for the lock yet.
    pub(super) fn pause(&self, name: &Name, now: Moment, heard: Option<Heard>) -> Duration {
        let account = self.each.get(name);
        account.map_or(Duration::ZERO, |account| account.pause(now, heard))
    }

    /// This process has released the lock.
    pub(super) fn ended(&mut self, name: &Name, ended: &Ended) {
        if let Some(account) = self.each.get_mut(name) {
            *account = Account::after(ended, Some(account));
        } else if ended.awaited.is_anybody() {
            self.make_room(ended.now);
            let account = Account::after(ended, None);
            self.each.insert(name.clone(), account);
        }
    }

    /// This process has got the lock.
    pub(super) fn granted(&mut self, name: &Name, now: Moment, heard: Option<Heard>) {
        if let Some(account) = self.each.get_mut(name) {
            account.granted(now, heard);
        }
    }

    fn make_room(&mut self, now: Moment) {
        if self.each.len() >= self.many {
            self.each.retain(|_, account| account.is_remembered(now));
            self.many = (self.each.len() * 2).max(16);
        }
    }
}

#[cfg(test)]
mod tests;
