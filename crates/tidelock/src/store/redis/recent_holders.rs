//! The names that another client held a short time ago. More such clients may ask for a name, and no server counts those
//! that ask again and again instead of listening.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::store::{BootInstant, Name, Timers};

/// How long we assume that others ask for a name after one of them held the lock.
const STAYS: Duration = Duration::from_secs(10);

/// The number of names at which we remove old ones for the first time.
const MANY: usize = 16;

#[derive(Debug)]
pub(crate) struct RecentHolders {
    timers: Timers,
    seen: Mutex<SeenHolders>,
}

#[derive(Debug, Default)]
struct SeenHolders {
    each: HashMap<Name, BootInstant>,
    /// The number of names at which we remove old ones. Looking through all of them at each refusal would take the longer
    /// the more names are waited for.
    many: usize,
}

impl RecentHolders {
    pub(crate) fn new(timers: Timers) -> Self {
        Self {
            timers,
            seen: Mutex::default(),
        }
    }

    /// A request has seen that another client holds the lock.
    pub(crate) fn saw(&self, name: &Name) {
        let now = self.timers.now();
        let mut seen = self.seen.lock();
        if seen.each.len() >= seen.many {
            seen.each.retain(|_, at| now.since(*at) < STAYS);
            seen.many = (seen.each.len() * 2).max(MANY);
        }
        seen.each.insert(name.clone(), now);
    }

    pub(crate) fn is_recent(&self, name: &Name) -> bool {
        let seen = self.seen.lock();
        let at = seen.each.get(name);
        at.is_some_and(|at| self.timers.now().since(*at) < STAYS)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::store::Clock;

    fn name(number: usize) -> Name {
        Name::new(format!("lock:{number}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_expected_for_a_while_after_the_last_one_was_seen() {
        let holders = RecentHolders::new(Timers::new(Clock::Simulated));
        assert!(!holders.is_recent(&name(1)));
        holders.saw(&name(1));
        advance(STAYS / 2).await;
        holders.saw(&name(1));
        advance(STAYS.saturating_sub(Duration::from_nanos(1))).await;
        assert!(holders.is_recent(&name(1)) && !holders.is_recent(&name(2)));
        advance(Duration::from_nanos(1)).await;
        assert!(!holders.is_recent(&name(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_are_not_recent_take_no_memory() {
        let holders = RecentHolders::new(Timers::new(Clock::Simulated));
        for number in 0..MANY {
            holders.saw(&name(number));
        }
        advance(STAYS).await;
        holders.saw(&name(MANY));
        assert_eq!(holders.seen.lock().each.len(), 1);
    }

    /// A process may wait for many names at once.
    #[tokio::test(start_paused = true)]
    async fn the_more_names_are_recent_the_less_often_all_are_looked_through() {
        let holders = RecentHolders::new(Timers::new(Clock::Simulated));
        for number in 0..=MANY * 2 {
            holders.saw(&name(number));
        }
        let seen = holders.seen.lock();
        assert_eq!((seen.each.len(), seen.many), (MANY * 2 + 1, MANY * 4));
    }
}
