//! Turns between processes: whoever has had one lets those go first who wait elsewhere.
//!
//! The next in line of a process that releases is always faster than a message to another one, so without this a process
//! would keep a lock for ever. And of those that are woken by one message the fastest would have it, not the one that has
//! waited longest: so a process asks the later the fewer releases it has seen since its own turn.
//!
//! How long others need to come is learned: a Java service needs several times as long as a neighbour in Rust. Where
//! somebody who waits has not come, the next pause is four times as long, up to a quarter of the time this process has just
//! had the lock; where that was not enough either, they are thought to be gone, and it begins anew. A pause that is longer
//! than needed costs nothing while others come.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{Moment, Name};

/// Less than this a task that was woken may need to run at all.
const LEAST: Duration = Duration::from_micros(300);
/// Who listens and does not come, because it is frozen, costs no more than this at each turn.
const MOST: Duration = Duration::from_millis(20);
/// And no more than this part of the turn, where the least is not more.
const PART: u32 = 4;
/// So many times as long is the next one, where somebody has not come.
const LONGER: u32 = 4;
/// More than so many are not told apart.
const PLACES: u32 = 8;
/// For so long it is remembered how long others need.
const REMEMBERED: Duration = Duration::from_secs(1);

/// How long a process holds back after its turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Courtesy {
    /// Not to be asked for before.
    pub(super) first: Moment,
    /// How many are to have their turn before.
    before: u32,
    /// What each of them is given to ask.
    step: Duration,
    /// What all of them together are given, unless the least is more.
    most: Duration,
    /// How often the step was made longer.
    longer: u32,
    is_longest: bool,
    /// This process had the lock again before all of them had had it.
    missed: bool,
}

impl Courtesy {
    /// After a release that took that long, of a lock that was kept for so long, with so many others waiting. The message
    /// has to reach them and their question the store, which takes about as long as a release; they have twice that at
    /// least, because they must be woken first.
    pub(super) fn after(
        now: Moment,
        others: u32,
        trip: Duration,
        kept: Duration,
        last: Option<&Self>,
    ) -> Self {
        let shortest = (trip * 2).clamp(LEAST, MOST);
        let most = (kept / PART).clamp(shortest, MOST);
        let longer = last.map_or(0, Self::next);
        let step = (shortest * LONGER.pow(longer)).min(most);
        let before = others.min(PLACES);
        Self {
            first: now + step,
            before,
            step,
            most: most.max((shortest * before).min(MOST)),
            longer,
            is_longest: step == most,
            missed: false,
        }
    }

    /// How often the next step is made longer.
    fn next(&self) -> u32 {
        match (self.missed, self.is_longest) {
            (false, _) => self.longer,
            (true, false) => self.longer + 1,
            (true, true) => 0,
        }
    }

    /// There is still somebody to wait for.
    pub(super) fn stands(&self, now: Moment) -> bool {
        now < self.first + (self.step * self.before).min(self.most)
    }

    /// There is still something to be learned from it.
    pub(super) fn is_remembered(&self, now: Moment) -> bool {
        self.stands(now) || now < self.first + REMEMBERED
    }

    /// Another one has had its turn: for how long the others are still to be waited for.
    pub(super) fn woken(&mut self) -> Duration {
        self.before = self.before.saturating_sub(1);
        (self.step * self.before).min(self.most)
    }

    /// Not all who were to go before have gone.
    pub(super) fn misses_somebody(&self) -> bool {
        self.before > 0
    }
}

/// Of names that we have released a while ago, and that others waited for elsewhere.
#[derive(Default)]
pub(super) struct Courtesies {
    each: HashMap<Name, Courtesy>,
    /// When there are so many, it is looked which are over.
    many: usize,
}

impl Courtesies {
    /// What is still to be waited for.
    pub(super) fn standing(&self, name: &Name, now: impl FnOnce() -> Moment) -> Option<Courtesy> {
        let courtesy = self.each.get(name)?;
        courtesy.stands(now()).then_some(*courtesy)
    }

    /// The lock was released: `after` says what follows, from what was last.
    pub(super) fn put(
        &mut self,
        name: &Name,
        now: Moment,
        after: impl FnOnce(Option<&Courtesy>) -> Courtesy,
    ) {
        let last = self.each.get(name).filter(|last| last.is_remembered(now));
        let next = after(last);
        if self.each.len() >= self.many {
            self.each.retain(|_, courtesy| courtesy.is_remembered(now));
            self.many = (self.each.len() * 2).max(16);
        }
        self.each.insert(name.clone(), next);
    }

    /// Not all who were to go before had gone when this process had the lock again.
    pub(super) fn miss(&mut self, name: &Name) {
        if let Some(courtesy) = self.each.get_mut(name) {
            courtesy.missed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_has_seen_the_others_go_holds_back_no_more() {
        let mut courtesy = Courtesy::after(Moment(0), 3, ms(1), LONG, None);
        assert_eq!(courtesy.first, Moment(0) + ms(2));
        let waits: Vec<Duration> = (0..4).map(|_| courtesy.woken()).collect();
        assert_eq!(waits, [ms(4), ms(2), ms(0), ms(0)]);
        assert!(!courtesy.misses_somebody());
        let mut crowd = Courtesy::after(Moment(0), 1000, ms(900), LONG, None);
        assert_eq!(crowd.woken(), MOST);
    }

    /// The pauses after turns of that length, as long as somebody does not come in any of them.
    fn pauses(kept: Duration, times: usize) -> Vec<Duration> {
        let mut last = None;
        let pause = |_| {
            let mut courtesy = Courtesy::after(Moment(0), 1, ms(1), kept, last.as_ref());
            courtesy.missed = true;
            last = Some(courtesy);
            courtesy.first.since(Moment(0))
        };
        (0..times).map(pause).collect()
    }

    #[test]
    fn who_does_not_come_is_given_longer_and_then_given_up() {
        assert_eq!(pauses(ms(40), 6), [2, 8, 10, 2, 8, 10].map(ms));
        // However long it takes, no more than a part of the turn is spent on it.
        assert_eq!(pauses(ms(4), 2), [2, 2].map(ms));
        let shortest = pauses(Duration::ZERO, 1);
        assert_eq!(shortest, [ms(2)], "a trip there and a trip back");
        assert!(pauses(LONG, 100).iter().all(|pause| *pause <= MOST));
    }

    #[test]
    fn what_was_enough_stays() {
        let kept = ms(40);
        let mut first = Courtesy::after(Moment(0), 1, ms(1), kept, None);
        first.missed = true;
        let mut last = Courtesy::after(Moment(0), 1, ms(1), kept, Some(&first));
        for _ in 0..3 {
            assert_eq!(last.first, Moment(0) + ms(8));
            last = Courtesy::after(Moment(0), 1, ms(1), kept, Some(&last));
        }
        assert!(last.is_remembered(Moment(0) + ms(900)));
        assert!(!last.is_remembered(Moment(0) + ms(1100)));
    }
}
