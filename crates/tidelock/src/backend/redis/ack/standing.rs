//! How many replicas a server has, as it says itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::conn::{Conn, Request};
use super::super::errors::forbids;
use super::super::reply::{Reply, Trouble};
use super::LOOK_AGAIN;
use crate::backend::{Acknowledge, Moment, Timers};
use crate::error::Error;

/// What was seen on one connection, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Standing {
    seen: Mutex<Option<(View, Moment)>>,
    /// Until then the server is known to have no replicas, in nanoseconds. What every request asks needs no lock so.
    alone_until: AtomicU64,
}

/// The replicas that are connected to a server.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Replicas {
    pub(super) count: u32,
    /// How many of them are in sync: the others cannot acknowledge yet.
    pub(super) online: u32,
    /// The server's replication id, where it says it.
    pub(super) server: Option<Arc<str>>,
}

impl Replicas {
    /// How many must acknowledge. `Any` does without those that cannot: else a replica's first copy of the data, which
    /// may take minutes, would be an outage for everybody.
    pub(super) fn needed(&self, policy: Acknowledge) -> u32 {
        policy.needed(match policy {
            Acknowledge::Any => self.online,
            _ => self.count,
        })
    }
}

#[derive(Debug, Clone)]
pub(super) enum View {
    Replicas(Replicas),
    /// We may not look.
    Forbidden(Arc<Error>),
}

impl Standing {
    /// `None`: nobody has looked yet, or the server did not say.
    pub(super) fn view(&self) -> Option<(View, Moment)> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The server has no replicas, and that was looked at not long ago.
    pub(super) fn is_alone(&self, now: Moment) -> bool {
        now.0 < self.alone_until.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, view: View, at: Moment) {
        let alone = matches!(&view, View::Replicas(replicas) if replicas.count == 0);
        let until = if alone { (at + LOOK_AGAIN).0 } else { 0 };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some((view, at));
        self.alone_until.store(until, Ordering::Relaxed);
    }

    /// Writes down an answer to the [`question`].
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

/// Looks, with one trip. The caller bounds the time. Without an answer it is looked again when it is needed.
pub(in super::super) async fn look(conn: &Conn, timers: &Timers) {
    let at = timers.now();
    let answer = conn.ask(&question()).await;
    conn.standing.note(&answer, at);
}

fn replicas(info: &str) -> Option<Replicas> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    Some(Replicas {
        count: field("connected_slaves:")?.trim().parse().ok()?,
        online: u32::try_from(info.matches(",state=online,").count()).unwrap_or(u32::MAX),
        server: field("master_replid:").map(|id| Arc::from(id.trim())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_by_the_primary() {
        let info = "role:master\r\nconnected_slaves:2\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nslave1:ip=h,port=2,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:ab12\r\n";
        let seen = replicas(info).unwrap();
        assert_eq!((seen.count, seen.online), (2, 1));
        assert_eq!(seen.server.as_deref(), Some("ab12"));
        assert_eq!(
            seen.needed(Acknowledge::All),
            2,
            "one that copies the data counts"
        );
        let unnamed = replicas("connected_slaves:0\r\n").unwrap();
        assert_eq!((unnamed.count, unnamed.server), (0, None));
        assert_eq!(replicas("# Replication\r\nrole:master\r\n"), None);
    }
}
