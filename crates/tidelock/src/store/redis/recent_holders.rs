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
