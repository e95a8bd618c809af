//! How many replicas a server has, as it says itself.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::conn::{Conn, Request};
use super::super::errors::forbids;
use super::super::reply::{Reply, Trouble};
use crate::backend::{Moment, Timers};
use crate::error::Error;

/// What was seen on one connection, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Standing(Mutex<Option<(View, Moment)>>);

#[derive(Debug, Clone)]
pub(super) enum View {
    /// So many are connected.
    Replicas(u32),
    /// We may not look.
    Forbidden(Arc<Error>),
}

impl Standing {
    /// `None`: nobody has looked yet, or the server did not say.
    pub(super) fn view(&self) -> Option<(View, Moment)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set(&self, view: View, at: Moment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((view, at));
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

fn replicas(info: &str) -> Option<u32> {
    let mut lines = info.lines();
    let count = lines.find_map(|line| line.strip_prefix("connected_slaves:"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_by_the_primary() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nslave0:ip=…\r\n";
        assert_eq!(replicas(info), Some(2));
        assert_eq!(replicas("# Replication\r\nrole:master\r\n"), None);
    }
}
