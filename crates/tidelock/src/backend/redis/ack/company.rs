//! Which servers had replicas that acknowledged, and when.
//!
//! A primary that is cut off may see its replicas go: then it is, by its own count, a server without any, and says yes to
//! everything. While a lease that one of them acknowledged could still stand elsewhere, its word alone renews nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Moment;

/// Servers that are remembered: a limit, so that it cannot grow without end.
const MOST: usize = 100;

/// By replication id: that of a promoted replica is new.
#[derive(Debug, Default)]
pub(in super::super) struct Company(Mutex<HashMap<Arc<str>, Moment>>);

impl Company {
    /// A replica of that server has acknowledged something.
    pub(super) fn acknowledged(&self, server: &Arc<str>, now: Moment) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST && !seen.contains_key(server) {
            seen.clear();
        }
        seen.insert(Arc::clone(server), now);
    }

    /// One did so within that time.
    pub(super) fn had_any(&self, server: &str, now: Moment, within: Duration) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(server).is_some_and(|at| now.since(*at) < within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_remembered_for_as_long_as_a_lease_may_stand() {
        let (company, server) = (Company::default(), Arc::from("a"));
        let (start, second) = (Moment::from_nanos(1), Duration::from_secs(1));
        company.acknowledged(&server, start);
        assert!(company.had_any("a", start + second / 2, second));
        assert!(!company.had_any("a", start + second, second));
        assert!(!company.had_any("b", start, second));
    }
}
