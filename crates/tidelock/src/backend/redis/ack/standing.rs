//! The replication status: the replicas of a server, as `INFO replication` reports them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::conn::Conn;
use super::super::errors::forbids;
use super::super::reply::{Reply, Trouble};
use super::super::request::Request;
use super::{Demand, LOOK_AGAIN, Purpose};
use crate::backend::{Acknowledge, Moment, Timers};
use crate::error::Error;

/// The last status that one connection has read, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Standing {
    seen: Mutex<Option<(View, Moment)>>,
    /// Until this moment, in nanoseconds, we trust that the server has no replicas; zero: it has some, or we do not
    /// know. Every request checks this, so it is an atomic and needs no lock.
    alone_until: AtomicU64,
}

/// The replicas that are connected to a server.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Replicas {
    pub(super) count: u32,
    /// The replicas that are in sync, by address.
    pub(super) online: Arc<[Arc<str>]>,
    /// The replicas that still copy the data and cannot acknowledge yet, by address.
    pub(super) copying: Arc<[Arc<str>]>,
    /// The server's replication id, if it reports one.
    pub(super) server: Option<Arc<str>>,
}

impl Replicas {
    pub(super) fn in_sync(&self) -> u32 {
        u32::try_from(self.online.len()).unwrap_or(u32::MAX)
    }

    /// How many replicas must acknowledge. `Any` and renewals ignore replicas that are not in sync:
    ///
    /// - For `Any`, a replica's first copy of the data, which may take minutes, would otherwise block every acquire.
    /// - If an empty replica is promoted, the lock is lost whatever the renewal reports. A renewal that waits for that
    ///   replica would only lose the lock earlier.
    pub(super) fn needed(&self, policy: Acknowledge, purpose: Purpose) -> u32 {
        policy.needed(self.counted(policy, purpose))
    }

    fn counted(&self, policy: Acknowledge, purpose: Purpose) -> u32 {
        match (policy, purpose) {
            (Acknowledge::Any, _) | (_, Purpose::Renew) => self.in_sync(),
            (_, Purpose::Acquire) => self.count,
        }
    }

    /// The number of replicas for `WAIT`. Replicas that left recently count towards the majority, so this may exceed a
    /// majority of the rest. We must ask for the full number, because the server stops counting once it is reached.
    pub(super) fn awaited(&self, demand: &Demand) -> u32 {
        let counted = self.counted(demand.policy, demand.purpose);
        match demand.policy {
            Acknowledge::Off | Acknowledge::Any => demand.policy.needed(counted),
            policy => policy.needed(counted + demand.missed).min(counted),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum View {
    Replicas(Replicas),
    /// The server forbids `INFO`.
    Forbidden(Arc<Error>),
}

impl Standing {
    /// The last status. `None`: not read yet, or the server did not report it.
    pub(super) fn view(&self) -> Option<(View, Moment)> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether a recent check found no replicas. `deadline - limit` is the moment of the request, so this reads no
    /// clock.
    pub(super) fn is_alone(&self, deadline: Moment, limit: Duration) -> bool {
        let until = Moment(self.alone_until.load(Ordering::Relaxed));
        until > Moment(0) && deadline < until + limit
    }

    pub(super) fn set(&self, view: View, at: Moment) {
        let alone = matches!(&view, View::Replicas(replicas) if replicas.count == 0);
        let until = if alone { (at + LOOK_AGAIN).0 } else { 0 };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some((view, at));
        // Under the lock. Otherwise two concurrent calls could leave the view of one and the moment of the other.
        self.alone_until.store(until, Ordering::Relaxed);
    }

    /// Records a reply to [`question`].
    pub(super) fn note(&self, answer: &Result<Reply, Trouble>, at: Moment) {
        let view = match answer {
            Ok(reply) => reply.text().and_then(replicas).map(View::Replicas),
            Err(Trouble::Complaint(complaint)) => {
                forbids(complaint).map(|error| View::Forbidden(Arc::new(error)))
            }
            Err(Trouble::Broken(_)) => None,
        };
        if let Some(view) = view {
            self.set(view, at);
        }
    }
}

pub(super) fn question() -> Request {
    Request::new("INFO").arg("replication")
}

/// Reads the status with one round trip. The caller sets the timeout. Without a reply the status stays as it was.
pub(in super::super) async fn look(conn: &Conn, timers: &Timers) {
    let at = timers.now();
    let answer = conn.ask(&question()).await;
    conn.standing.note(&answer, at);
}

/// Entry point of the fuzzer, for arbitrary text.
#[cfg(feature = "fuzzing")]
pub(in super::super) fn has_replicas(info: &str) -> bool {
    replicas(info).is_some_and(|replicas| replicas.in_sync() > 0)
}

fn replicas(info: &str) -> Option<Replicas> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    Some(Replicas {
        count: field("connected_slaves:")?.trim().parse().ok()?,
        online: addresses(info, true),
        copying: addresses(info, false),
        server: field("master_replid:").map(|id| Arc::from(id.trim())),
    })
}

/// The addresses in lines such as `slave0:ip=…,port=…,state=online,…`.
fn addresses(info: &str, in_sync: bool) -> Arc<[Arc<str>]> {
    let replicas = info.lines().filter_map(|line| {
        let (_, replica) = line.strip_prefix("slave")?.split_once(':')?;
        replica.split_once(",state=")
    });
    replicas
        .filter(|(_, rest)| rest.starts_with("online,") == in_sync)
        .map(|(addr, _)| Arc::from(addr.replacen("ip=", "", 1).replacen(",port=", ":", 1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_by_the_primary() {
        let info = "role:master\r\nconnected_slaves:2\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nslave1:ip=h,port=2,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:ab12\r\n";
        let seen = replicas(info).unwrap();
        assert_eq!((seen.count, seen.in_sync()), (2, 1));
        assert_eq!(&*seen.online[0], "h:1");
        assert_eq!(&*seen.copying[0], "h:2");
        assert_eq!(seen.server.as_deref(), Some("ab12"));
        let needed = |purpose| seen.needed(Acknowledge::All, purpose);
        assert_eq!(
            needed(Purpose::Acquire),
            2,
            "one that copies the data counts"
        );
        assert_eq!(
            needed(Purpose::Renew),
            1,
            "a renewal cannot wait for its copy"
        );
        let unnamed = replicas("connected_slaves:0\r\n").unwrap();
        assert_eq!((unnamed.count, unnamed.server), (0, None));
        assert_eq!(replicas("# Replication\r\nrole:master\r\n"), None);
    }
}
