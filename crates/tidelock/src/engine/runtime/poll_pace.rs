//! The pauses of a process that asks a store again and again, because the store wakes nobody. A pause grows as long as
//! nothing changes.

use std::time::Duration;

use crate::engine::runtime::backoff::{ExponentialBackoff, with_jitter};

/// The pauses of a process with nobody ahead, without their random part. Each is longer than the one before: a waiter that
/// has waited long can wait a little longer. On average half of the longest pause passes between a release and the next
/// poll, and one process sends about 18 polls per second for a name.
const PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(8), Duration::from_millis(64)).growth(1.3);
/// The random part of a pause.
const JITTER: f64 = 0.25;

/// How often one process asks about one name.
#[derive(Debug, Default)]
pub(crate) struct PollPace {
    ahead: u32,
    /// How many pauses have begun since `ahead` changed.
    unchanged: u32,
}

impl PollPace {
    /// The pause before the next poll, with so many others ahead: `times` as long as with nobody ahead. When `ahead`
    /// changes, the lock has changed hands or soon may, and the pauses begin again with the shortest.
    pub(crate) fn pause(&mut self, ahead: u32, times: f64) -> Duration {
        if ahead != self.ahead {
            (self.ahead, self.unchanged) = (ahead, 0);
        }
        let pause = jittered(PAUSES.pause(self.unchanged)).mul_f64(times);
        self.unchanged = self.unchanged.saturating_add(1);
        pause
    }
}

/// The pause with its random part.
pub(crate) fn jittered(pause: Duration) -> Duration {
    with_jitter(pause, JITTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_begins_with_the_shortest_pause() {
        let mut pace = PollPace::default();
        let shortest = Duration::from_millis(8);
        assert!(pace.pause(0, 1.0) <= shortest);
        for _ in 0..20 {
            pace.pause(0, 1.0);
        }
        assert!(pace.pause(0, 1.0) > shortest * 5);
        assert!(pace.pause(3, 2.5) <= shortest.mul_f64(2.5));
        assert!(pace.pause(3, 2.5) > shortest.mul_f64(1.5));
    }
}
