//! What the store last said of a lock. It decides the error of a wait that ends: another owner holds the lock, or the
//! store does not answer.

use std::time::Duration;

use crate::store::BootInstant;

/// What the store last said to the attempts for a lock. `FAR`: nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastAnswer {
    /// When the lock was last known to be held by another owner.
    held_at: BootInstant,
    /// Since when an attempt has no answer.
    asked_at: BootInstant,
}

impl Default for LastAnswer {
    fn default() -> Self {
        Self {
            held_at: BootInstant::FAR,
            asked_at: BootInstant::FAR,
        }
    }
}

impl LastAnswer {
    /// An attempt is sent.
    pub(crate) fn asked(&mut self, now: BootInstant) {
        self.asked_at = now;
    }

    /// The attempt has ended: another owner holds the lock, or there was no usable answer.
    pub(crate) fn answered(&mut self, held: bool, now: BootInstant) {
        self.asked_at = BootInstant::FAR;
        self.held_at = if held { now } else { BootInstant::FAR };
    }

    /// What both together know.
    pub(crate) fn or(self, other: Self) -> Self {
        let latest = |a: BootInstant, b: BootInstant| match (a, b) {
            (BootInstant::FAR, at) | (at, BootInstant::FAR) => at,
            (a, b) => a.max(b),
        };
        Self {
            held_at: latest(self.held_at, other.held_at),
            asked_at: latest(self.asked_at, other.asked_at),
        }
    }

    /// Whether another owner is known to hold the lock: the last answer said so, and since then no attempt has been
    /// without an answer for longer than `tolerance`. An attempt that was sent a moment ago says nothing: a waiter
    /// that polls has one in flight much of the time.
    pub(crate) fn is_held(&self, now: BootInstant, tolerance: Duration) -> bool {
        let is_silent = self.asked_at != BootInstant::FAR && now.since(self.asked_at) > tolerance;
        self.held_at != BootInstant::FAR && !is_silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> BootInstant {
        BootInstant(0) + Duration::from_millis(ms)
    }

    #[test]
    fn only_an_answer_says_that_another_owner_holds_the_lock() {
        let mut last = LastAnswer::default();
        assert!(!last.is_held(at(0), TOLERANCE));
        last.asked(at(0));
        assert!(!last.is_held(at(1), TOLERANCE), "no answer yet");
        last.answered(true, at(2));
        assert!(last.is_held(at(1000), TOLERANCE));
        last.asked(at(1000));
        assert!(last.is_held(at(1010), TOLERANCE), "sent a moment ago");
        assert!(!last.is_held(at(1011), TOLERANCE), "the store is silent");
        last.answered(false, at(1012));
        assert!(!last.is_held(at(1012), TOLERANCE), "an error");
    }

    #[test]
    fn a_waiter_knows_what_its_queue_knows() {
        let (mut own, mut queue) = (LastAnswer::default(), LastAnswer::default());
        queue.answered(true, at(5));
        own.asked(at(6));
        assert!(own.or(queue).is_held(at(7), TOLERANCE));
        assert!(!own.or(queue).is_held(at(17), TOLERANCE));
        assert!(LastAnswer::default().or(queue).is_held(at(17), TOLERANCE));
    }
}
