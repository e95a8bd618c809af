//! What is remembered of the replicas a server had.
//!
//! A primary that is cut off, or that another is just replacing, sees its replicas go: then by its own count the rest is all
//! there is, or nobody, and it says yes to everything. While a lease that one of them acknowledged could still stand
//! elsewhere, its word alone renews nothing; and who wants all of them does not take fewer for all at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Moment;

/// Servers that are remembered: a limit, so that it cannot grow without end.
const MOST: usize = 100;

/// How long a replica that has gone is still one of all. Sentinels promote a replica first, and tell the old primary some
/// ten seconds later; what it grants meanwhile with the rest of its replicas is lost.
const MISSED: Duration = Duration::from_secs(30);

/// By replication id: that of a promoted replica is new.
#[derive(Debug, Default)]
pub(in super::super) struct Company {
    servers: Mutex<HashMap<Arc<str>, Seen>>,
    /// One of them had a replica. Where none ever had, nothing is to be remembered for each request.
    ever: AtomicBool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    acknowledged: Option<Moment>,
    /// The most replicas it had, and since when it is known to have fewer.
    most: u32,
    fewer_since: Option<Moment>,
}

impl Company {
    /// The server has said how many replicas it has, and how many of them have heard of something.
    pub(super) fn note(&self, server: &Arc<str>, count: u32, reached: u32, now: Moment) {
        if count == 0 && !self.ever.load(Ordering::SeqCst) {
            return;
        }
        self.ever.store(true, Ordering::SeqCst);
        let mut all = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST && !all.contains_key(server) {
            all.clear();
        }
        let seen = all.entry(Arc::clone(server)).or_default();
        if reached > 0 {
            seen.acknowledged = Some(now);
        }
        let missed_for = seen.fewer_since.map(|since| now.since(since));
        if count >= seen.most || missed_for.is_some_and(|time| time >= MISSED) {
            (seen.most, seen.fewer_since) = (count, None);
        } else {
            seen.fewer_since.get_or_insert(now);
        }
    }

    /// One of its replicas has acknowledged something within that time.
    pub(super) fn had_any(&self, server: &str, now: Moment, within: Duration) -> bool {
        if !self.ever.load(Ordering::SeqCst) {
            return false;
        }
        let seen = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seen.get(server).and_then(|seen| seen.acknowledged);
        at.is_some_and(|at| now.since(at) < within)
    }

    /// How many replicas are all of them, with those that have only just gone.
    pub(super) fn all_of(&self, server: &str) -> u32 {
        if !self.ever.load(Ordering::SeqCst) {
            return 0;
        }
        let seen = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(server).map_or(0, |seen| seen.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Moment {
        Moment::from_nanos(1)
    }

    #[test]
    fn a_server_is_remembered_for_as_long_as_a_lease_may_stand() {
        let (company, server) = (Company::default(), Arc::from("a"));
        let second = Duration::from_secs(1);
        company.note(&server, 1, 1, start());
        company.note(&server, 0, 0, start() + second / 4);
        assert!(company.had_any("a", start() + second / 2, second));
        assert!(!company.had_any("a", start() + second, second));
        assert!(!company.had_any("b", start(), second));
    }

    #[test]
    fn a_replica_that_has_just_gone_is_still_one_of_all() {
        let (company, server) = (Company::default(), Arc::from("a"));
        company.note(&server, 2, 2, start());
        // Nobody looked for an hour: when it went is not known, so it has gone now.
        let noticed = start() + Duration::from_secs(3600);
        for (after, all) in [(0, 2), (29, 2), (30, 1)] {
            company.note(&server, 1, 1, noticed + Duration::from_secs(after));
            assert_eq!(company.all_of("a"), all, "{after} s later");
        }
        company.note(&server, 3, 3, noticed + Duration::from_secs(31));
        assert_eq!(company.all_of("a"), 3);
        assert_eq!(company.all_of("b"), 0);
    }
}
