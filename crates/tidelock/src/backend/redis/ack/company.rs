//! What is remembered of the replicas a server had.
//!
//! A primary that is cut off, or that another is just replacing, sees its replicas go: then by its own count the rest is all
//! there is, or nobody, and it says yes to everything. While a lease that one of them acknowledged could still stand
//! elsewhere, its word alone renews nothing; and who wants all of them does not take fewer for all at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Purpose;
use super::standing::Replicas;
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

#[derive(Debug, Default)]
struct Seen {
    /// When one of them acknowledged something last.
    acknowledged: Option<Moment>,
    /// Those it had, by address.
    known: HashMap<Arc<str>, Known>,
}

/// A replica that a server had.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// It has been in sync: what was acknowledged then may be on it.
    had_all: bool,
    /// When it was noticed that it is in sync no more.
    out_of_sync: Option<Moment>,
    /// When it was noticed that it is not connected any more.
    gone: Option<Moment>,
}

impl Company {
    /// The server has said which replicas it has, and how many of them have heard of something.
    pub(super) fn note(&self, server: &Arc<str>, replicas: &Replicas, reached: u32, now: Moment) {
        if replicas.count == 0 && !self.ever.load(Ordering::SeqCst) {
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
        for (addr, known) in &mut seen.known {
            if !replicas.online.contains(addr) {
                known.out_of_sync.get_or_insert(now);
                if !replicas.copying.contains(addr) {
                    known.gone.get_or_insert(now);
                }
            }
        }
        for addr in replicas.copying.iter() {
            seen.known.entry(Arc::clone(addr)).or_default().gone = None;
        }
        for addr in replicas.online.iter() {
            let known = Known {
                had_all: true,
                ..Known::default()
            };
            seen.known.insert(Arc::clone(addr), known);
        }
        seen.known
            .retain(|_, known| known.gone.is_none_or(|at| now.since(at) < MISSED));
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

    /// How many of those it had have only just gone. For a renewal those count that were in sync, and are so no more.
    pub(super) fn missed(&self, server: &str, purpose: Purpose, now: Moment) -> u32 {
        if !self.ever.load(Ordering::SeqCst) {
            return 0;
        }
        let seen = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(server).map_or(0, |seen| seen.missed(purpose, now))
    }

    /// Which ones these are, for who is to look after them.
    pub(super) fn who_left(&self, server: &str, purpose: Purpose, now: Moment) -> String {
        let seen = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = seen.get(server).into_iter();
        let mut left: Vec<&str> = left
            .flat_map(|seen| seen.left(purpose, now))
            .map(|addr| &**addr)
            .collect();
        left.sort_unstable();
        left.join(", ")
    }

    /// As [`missed`](Self::missed), of the server that misses most. Asked for each request: where no server ever had one, the clock is left
    /// alone.
    pub(super) fn most_missed(&self, purpose: Purpose, now: impl FnOnce() -> Moment) -> u32 {
        if !self.ever.load(Ordering::SeqCst) {
            return 0;
        }
        let seen = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        let missed = seen.values().map(|seen| seen.missed(purpose, now));
        missed.max().unwrap_or(0)
    }
}

impl Seen {
    /// Looks at the clock too: a server that has been replaced is never heard of again.
    fn left(&self, purpose: Purpose, now: Moment) -> impl Iterator<Item = &Arc<str>> {
        let left = self.known.iter().filter(move |(_, known)| {
            let since = match purpose {
                Purpose::Acquire => known.gone,
                Purpose::Renew => known.out_of_sync.filter(|_| known.had_all),
            };
            since.is_some_and(|at| now.since(at) < MISSED)
        });
        left.map(|(addr, _)| addr)
    }

    fn missed(&self, purpose: Purpose, now: Moment) -> u32 {
        u32::try_from(self.left(purpose, now).count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Moment {
        Moment::from_nanos(1)
    }

    fn with(online: &[&str], copying: &[&str]) -> Replicas {
        let all = |some: &[&str]| some.iter().map(|addr| Arc::from(*addr)).collect();
        Replicas {
            count: u32::try_from(online.len() + copying.len()).unwrap(),
            online: all(online),
            copying: all(copying),
            server: None,
        }
    }

    #[test]
    fn a_server_is_remembered_for_as_long_as_a_lease_may_stand() {
        let (company, server) = (Company::default(), Arc::from("a"));
        let second = Duration::from_secs(1);
        company.note(&server, &with(&["b"], &[]), 1, start());
        company.note(&server, &with(&[], &[]), 0, start() + second / 4);
        assert!(company.had_any("a", start() + second / 2, second));
        assert!(!company.had_any("a", start() + second, second));
        assert!(!company.had_any("b", start(), second));
    }

    #[test]
    fn a_replica_that_has_just_gone_is_still_one_of_all() {
        let (company, server) = (Company::default(), Arc::from("a"));
        company.note(&server, &with(&["b", "c"], &[]), 2, start());
        // Nobody looked for an hour: when it went is not known, so it has gone now.
        let noticed = start() + Duration::from_secs(3600);
        for (after, missed) in [(0, 1), (29, 1), (30, 0)] {
            let at = noticed + Duration::from_secs(after);
            company.note(&server, &with(&["c"], &[]), 1, at);
            assert_eq!(
                company.missed("a", Purpose::Acquire, at),
                missed,
                "{after} s later"
            );
        }
        assert_eq!(company.missed("b", Purpose::Acquire, noticed), 0);
    }

    #[test]
    fn a_newcomer_does_not_stand_for_one_that_has_gone() {
        let (company, server) = (Company::default(), Arc::from("a"));
        company.note(&server, &with(&["b", "c"], &[]), 2, start());
        let missed = || {
            [Purpose::Acquire, Purpose::Renew].map(|purpose| company.missed("a", purpose, start()))
        };
        company.note(&server, &with(&["c", "d"], &[]), 2, start());
        assert_eq!(missed(), [1, 1], "b");
        assert_eq!(company.who_left("a", Purpose::Renew, start()), "b");
        company.note(&server, &with(&["c", "d"], &["b"]), 2, start());
        assert_eq!(missed(), [0, 1], "b copies the data again: it is connected");
        company.note(&server, &with(&["b", "c", "d"], &[]), 3, start());
        assert_eq!(missed(), [0, 0]);
    }

    #[test]
    fn one_that_goes_while_it_copies_is_one_of_all() {
        let (company, server) = (Company::default(), Arc::from("a"));
        company.note(&server, &with(&[], &["b"]), 0, start());
        company.note(&server, &with(&[], &[]), 0, start());
        assert_eq!(company.missed("a", Purpose::Acquire, start()), 1);
        assert_eq!(
            company.missed("a", Purpose::Renew, start()),
            0,
            "it had nothing to keep"
        );
    }
}
