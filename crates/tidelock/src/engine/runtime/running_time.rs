//! Tells an outage of the store from a freeze of this process. A process that is frozen for longer than a lease gets no
//! answer either, and that says nothing about the store.

use std::time::Duration;

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::timers::Timers;

/// How much of the time between two failures counts as outage. One request and the pause before it take no longer than
/// `longest`. If far more time has passed, this process did not run. Such a round still counts a little. Otherwise a
/// machine on which every round is late would retry without end.
pub(crate) fn running_part(round: Duration, longest: Duration) -> Duration {
    if round > longest + longest / 2 {
        longest / 4
    } else {
        round
    }
}

/// The sum of these parts.
#[derive(Debug)]
pub(crate) struct RunningTime<'a> {
    timers: &'a Timers,
    since: BootInstant,
    sum: Duration,
}

impl<'a> RunningTime<'a> {
    pub(crate) fn start(timers: &'a Timers) -> Self {
        Self {
            timers,
            since: timers.now(),
            sum: Duration::ZERO,
        }
    }

    /// Ends a round, and returns what is left of the limit.
    pub(crate) fn left(&mut self, limit: Duration, longest: Duration) -> Duration {
        let now = self.timers.now();
        self.sum += running_part(now.since(self.since), longest);
        self.since = now;
        limit.saturating_sub(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::runtime::clock::Clock;

    #[test]
    fn time_in_which_the_process_was_frozen_is_no_outage() {
        let (second, longest) = (Duration::from_secs(1), Duration::from_secs(4));
        assert_eq!(running_part(second * 4, longest), second * 4);
        assert_eq!(running_part(second * 6, longest), second * 6, "it was busy");
        assert_eq!(running_part(second * 3600, longest), second);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_is_the_limit_without_the_time_that_ran() {
        let (second, timers) = (Duration::from_secs(1), Timers::new(Clock::Simulated));
        let mut time = RunningTime::start(&timers);
        let mut left = async |after| {
            tokio::time::advance(after).await;
            time.left(second * 10, second * 4)
        };
        assert_eq!(left(second * 2).await, second * 8);
        assert_eq!(left(second * 3).await, second * 5);
        assert_eq!(left(second * 3600).await, second * 4, "it was frozen");
        assert_eq!(left(second * 6).await, Duration::ZERO);
    }
}
