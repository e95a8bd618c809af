//! The replica history: which replicas each server had, and when they left.
//!
//! A primary that is partitioned, or that is being replaced, sees its replicas disconnect. It then counts
//! only the rest, or none, so every write seems to satisfy the ack policy. The history prevents two failures:
//!
//! - The old primary renews a lease while the new one grants the lock to another owner. If a replica has acknowledged
//!   something within the lease, the primary alone cannot renew.
//! - `Majority` and `All` shrink to the remaining replicas. A replica that left recently still counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::store::BootInstant;
use crate::store::redis::replicas::demand::Purpose;
use crate::store::redis::topology::replication::Replicas;

/// The most servers in the history. At the limit we clear it, so that it cannot grow without bound.
const MAX_SERVERS: usize = 100;

/// How long a replica counts after it has disconnected. Sentinels promote a replica first and reconfigure the old
/// primary some ten seconds later. Locks that the old primary grants in that time are lost, even if its
/// remaining replicas acknowledge them.
const DISCONNECTED_REPLICA_TTL: Duration = Duration::from_secs(30);

/// The history by replication id. A promoted replica has a new id.
#[derive(Debug, Default)]
pub(crate) struct ReplicaHistory {
    servers: Mutex<HashMap<Arc<str>, ServerReplicas>>,
    /// Whether any server ever had a replica. While false, requests skip the lock.
    ever: AtomicBool,
}

#[derive(Debug, Default)]
struct ServerReplicas {
    /// When a replica last acknowledged a write.
    acknowledged: Option<BootInstant>,
    /// The replicas by address.
    known: HashMap<Arc<str>, KnownReplica>,
}

/// The history of one replica.
#[derive(Debug, Clone, Copy, Default)]
struct KnownReplica {
    /// It has been in sync, so it may hold the writes that were acknowledged then.
    had_all: bool,
    /// When we noticed that it is no longer in sync.
    out_of_sync: Option<BootInstant>,
    /// When we noticed that it is no longer connected.
    gone: Option<BootInstant>,
}

impl ReplicaHistory {
    /// Records the server's replicas, and how many of them acknowledged a write.
    pub(crate) fn note(
        &self,
        server: &Arc<str>,
        replicas: &Replicas,
        reached: u32,
        now: BootInstant,
    ) {
        if replicas.count == 0 && !self.ever.load(Ordering::SeqCst) {
            return;
        }
        self.ever.store(true, Ordering::SeqCst);
        let mut all = self.servers.lock();
        if all.len() >= MAX_SERVERS && !all.contains_key(server) {
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
            let known = KnownReplica {
                had_all: true,
                ..KnownReplica::default()
            };
            seen.known.insert(Arc::clone(addr), known);
        }
        seen.known.retain(|_, known| {
            known
                .gone
                .is_none_or(|at| now.since(at) < DISCONNECTED_REPLICA_TTL)
        });
    }

    /// Whether a replica of that server has acknowledged a write within that time.
    pub(crate) fn had_any(&self, server: &str, now: BootInstant, within: Duration) -> bool {
        if !self.ever.load(Ordering::SeqCst) {
            return false;
        }
        let seen = self.servers.lock();
        let at = seen.get(server).and_then(|seen| seen.acknowledged);
        at.is_some_and(|at| now.since(at) < within)
    }

    /// How many replicas have left recently. For an acquire request these are the disconnected ones; for a renewal, the
    /// ones that were in sync and no longer are.
    pub(crate) fn missed(&self, server: &str, purpose: Purpose, now: BootInstant) -> u32 {
        if !self.ever.load(Ordering::SeqCst) {
            return 0;
        }
        let seen = self.servers.lock();
        seen.get(server).map_or(0, |seen| seen.missed(purpose, now))
    }

    /// The addresses of these replicas, for the error message.
    pub(crate) fn who_left(&self, server: &str, purpose: Purpose, now: BootInstant) -> String {
        let seen = self.servers.lock();
        let left = seen.get(server).into_iter();
        let mut left: Vec<&str> = left
            .flat_map(|seen| seen.left(purpose, now))
            .map(|addr| &**addr)
            .collect();
        left.sort_unstable();
        left.join(", ")
    }

    /// As [`missed`](Self::missed), for the server that misses most. Every request calls this, so we read the clock
    /// only if some server ever had a replica.
    pub(crate) fn most_missed(&self, purpose: Purpose, now: impl FnOnce() -> BootInstant) -> u32 {
        if !self.ever.load(Ordering::SeqCst) {
            return 0;
        }
        let seen = self.servers.lock();
        let now = now();
        let missed = seen.values().map(|seen| seen.missed(purpose, now));
        missed.max().unwrap_or(0)
    }
}

impl ServerReplicas {
    /// Compares with the clock as well. `note` expires entries, but nobody calls it again for a server that was
    /// replaced.
    fn left(&self, purpose: Purpose, now: BootInstant) -> impl Iterator<Item = &Arc<str>> {
        let left = self.known.iter().filter(move |(_, known)| {
            let since = match purpose {
                Purpose::Acquire => known.gone,
                Purpose::Renew => known.out_of_sync.filter(|_| known.had_all),
            };
            since.is_some_and(|at| now.since(at) < DISCONNECTED_REPLICA_TTL)
        });
        left.map(|(addr, _)| addr)
    }

    fn missed(&self, purpose: Purpose, now: BootInstant) -> u32 {
        u32::try_from(self.left(purpose, now).count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> BootInstant {
        BootInstant::from_nanos(1)
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
        let (replica_history, server) = (ReplicaHistory::default(), Arc::from("a"));
        let second = Duration::from_secs(1);
        replica_history.note(&server, &with(&["b"], &[]), 1, start());
        replica_history.note(&server, &with(&[], &[]), 0, start() + second / 4);
        assert!(replica_history.had_any("a", start() + second / 2, second));
        assert!(!replica_history.had_any("a", start() + second, second));
        assert!(!replica_history.had_any("b", start(), second));
    }

    #[test]
    fn a_replica_that_has_just_gone_is_still_one_of_all() {
        let (replica_history, server) = (ReplicaHistory::default(), Arc::from("a"));
        replica_history.note(&server, &with(&["b", "c"], &[]), 2, start());
        // No report for an hour: we do not know when the replica left, so we count from now.
        let noticed = start() + Duration::from_secs(3600);
        for (after, missed) in [(0, 1), (29, 1), (30, 0)] {
            let at = noticed + Duration::from_secs(after);
            replica_history.note(&server, &with(&["c"], &[]), 1, at);
            assert_eq!(
                replica_history.missed("a", Purpose::Acquire, at),
                missed,
                "{after} s later"
            );
        }
        assert_eq!(replica_history.missed("b", Purpose::Acquire, noticed), 0);
    }

    #[test]
    fn a_new_replica_does_not_replace_a_disconnected_one() {
        let (replica_history, server) = (ReplicaHistory::default(), Arc::from("a"));
        replica_history.note(&server, &with(&["b", "c"], &[]), 2, start());
        let missed = || {
            [Purpose::Acquire, Purpose::Renew]
                .map(|purpose| replica_history.missed("a", purpose, start()))
        };
        replica_history.note(&server, &with(&["c", "d"], &[]), 2, start());
        assert_eq!(missed(), [1, 1], "b");
        assert_eq!(replica_history.who_left("a", Purpose::Renew, start()), "b");
        replica_history.note(&server, &with(&["c", "d"], &["b"]), 2, start());
        assert_eq!(missed(), [0, 1], "b copies the data again: it is connected");
        replica_history.note(&server, &with(&["b", "c", "d"], &[]), 3, start());
        assert_eq!(missed(), [0, 0]);
    }

    #[test]
    fn one_that_goes_while_it_copies_is_one_of_all() {
        let (replica_history, server) = (ReplicaHistory::default(), Arc::from("a"));
        replica_history.note(&server, &with(&[], &["b"]), 0, start());
        replica_history.note(&server, &with(&[], &[]), 0, start());
        assert_eq!(replica_history.missed("a", Purpose::Acquire, start()), 1);
        assert_eq!(
            replica_history.missed("a", Purpose::Renew, start()),
            0,
            "it had nothing to keep"
        );
    }

    /// A server that nobody asks any more, because another one has replaced it.
    #[test]
    fn a_replica_is_forgotten_also_if_nobody_reports_any_more() {
        let (replica_history, server) = (ReplicaHistory::default(), Arc::from("a"));
        replica_history.note(&server, &with(&["b"], &[]), 0, start());
        assert!(!replica_history.had_any("a", start(), DISCONNECTED_REPLICA_TTL));
        replica_history.note(&server, &with(&[], &[]), 0, start());
        for purpose in [Purpose::Acquire, Purpose::Renew] {
            let missed = |after| {
                let at = start() + Duration::from_secs(after);
                let who = replica_history.who_left("a", purpose, at);
                assert_eq!(who, if after < 30 { "b" } else { "" });
                replica_history.missed("a", purpose, at)
            };
            assert_eq!((missed(29), missed(30)), (1, 0), "{purpose:?}");
        }
    }

    #[test]
    fn the_server_that_misses_most_decides() {
        let replica_history = ReplicaHistory::default();
        let most = |after| {
            let at = || start() + Duration::from_secs(after);
            replica_history.most_missed(Purpose::Acquire, at)
        };
        let unread = || -> BootInstant { panic!("no server had replicas") };
        assert_eq!(replica_history.most_missed(Purpose::Acquire, unread), 0);
        let alone = Arc::from("alone");
        replica_history.note(&alone, &with(&[], &[]), 0, start());
        assert_eq!(replica_history.most_missed(Purpose::Acquire, unread), 0);
        for (server, replicas) in [("a", &["b"][..]), ("c", &["d", "e", "f"][..])] {
            let server = Arc::from(server);
            replica_history.note(&server, &with(replicas, &[]), 1, start());
            replica_history.note(&server, &with(&[], &[]), 0, start());
        }
        assert_eq!((most(29), most(30)), (3, 0));
    }

    /// A client that meets a new server again and again, as behind a changing address, does not grow.
    #[test]
    fn at_the_limit_a_new_server_makes_room_and_a_known_one_does_not() {
        let replica_history = ReplicaHistory::default();
        let notes = |number: usize, online: &[&str]| {
            let server = Arc::from(number.to_string());
            replica_history.note(&server, &with(online, &[]), 0, start());
        };
        let missed = || replica_history.missed("0", Purpose::Acquire, start());
        notes(0, &["b"]);
        notes(0, &[]);
        for number in 1..MAX_SERVERS {
            notes(number, &["b"]);
        }
        notes(7, &["b"]);
        assert_eq!(missed(), 1);
        notes(MAX_SERVERS, &["b"]);
        assert_eq!(missed(), 0);
        assert_eq!(replica_history.servers.lock().len(), 1);
    }
}
