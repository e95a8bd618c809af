//! Turns between processes: whoever has had one lets those go first who wait elsewhere.
//!
//! The next in line of a process that releases is always faster than a message to another one, so without this a process
//! would keep a lock for ever. And of those that are woken by one message the fastest would have it, not the one that has
//! waited longest: so a process asks the later the fewer releases it has seen since its own turn.

use std::time::Duration;

use crate::backend::Moment;

/// Less than this a task that was woken may need to run at all.
const LEAST: Duration = Duration::from_micros(300);
/// Who listens and does not come, because it is frozen, costs this much at each turn.
const MOST: Duration = Duration::from_millis(20);
/// More than so many are not told apart.
const PLACES: u32 = 8;

/// How long a process holds back after its turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Courtesy {
    /// Not to be asked for before.
    pub(super) first: Moment,
    /// How many are to have their turn before.
    before: u32,
    /// What each of them is given to ask.
    step: Duration,
}

impl Courtesy {
    /// After a release that took that long, with so many others waiting. The message has to reach them and their question
    /// the store, which takes about as long; they have twice that, because they must be woken first.
    pub(super) fn after(now: Moment, others: u32, trip: Duration) -> Self {
        let step = (trip * 2).clamp(LEAST, MOST);
        Self {
            first: now + step,
            before: others.min(PLACES),
            step,
        }
    }

    /// There is still somebody to wait for.
    pub(super) fn stands(&self, now: Moment) -> bool {
        now < self.first + self.step * self.before
    }

    /// Another one has had its turn: for how long the others are still to be waited for.
    pub(super) fn woken(&mut self) -> Duration {
        self.before = self.before.saturating_sub(1);
        (self.step * self.before).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_seen_the_others_go_holds_back_no_more() {
        let ms = Duration::from_millis;
        let mut courtesy = Courtesy::after(Moment(0), 3, ms(1));
        assert_eq!(courtesy.first, Moment(0) + ms(2));
        let waits: Vec<Duration> = (0..4).map(|_| courtesy.woken()).collect();
        assert_eq!(waits, [ms(4), ms(2), ms(0), ms(0)]);
        let mut crowd = Courtesy::after(Moment(0), 1000, ms(900));
        assert_eq!(crowd.woken(), MOST);
    }
}
