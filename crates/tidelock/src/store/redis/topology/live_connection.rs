//! A live connection, and what we learn of the server behind it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Timers;
use crate::store::redis::topology::replication::{ReplicaView, ReplicationStatus, question};
use crate::store::redis::topology::server_run::ServerRun;
use crate::store::redis::wire;

/// A live connection to a server that may have locks.
pub(crate) type LiveConnection = wire::live_connection::LiveConnection<ServerState>;

/// What one connection has learned of its server.
#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) number: ConnectionNumber,
    pub(crate) replication: ReplicationStatus,
    /// Read once, because a restart of the server ends the connection. It tells nothing of what was asked on another
    /// connection. `None`: the server does not report its run.
    pub(crate) run: OnceLock<Option<ServerRun>>,
}

/// The number of a connection among all of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionNumber(pub(crate) u64);

impl Default for ConnectionNumber {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl LiveConnection {
    /// Reads the replication status with one round trip. The caller sets the timeout. `None`: there was no status to
    /// read, and the last one stays.
    pub(crate) async fn read_replication(&self, timers: &Timers) -> Option<ReplicaView> {
        let at = timers.now();
        let answer = self.ask(&question()).await;
        self.server.replication.note(&answer, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::topology::tests::live;
    use crate::store::redis::wire::live_connection::peer::in_time;
    use crate::store::redis::wire::tests::replies::text;
    use crate::store::redis::wire::tests::simulated;

    #[tokio::test]
    async fn the_replicas_that_a_server_tells_are_kept_with_its_connection() {
        let ((conn, mut peer), (_, timers)) = (live().await, simulated());
        assert!(conn.server.replication.view().is_none());
        let talk = async {
            peer.expects(&["INFO replication"]).await;
            peer.says(text("role:slave\r\nconnected_slaves:0\r\n"))
                .await;
        };
        let reading = async { tokio::join!(conn.read_replication(&timers), talk) };
        let (view, ()) = in_time(reading).await;
        assert!(matches!(view, Some(ReplicaView::Replicas(none)) if none.count == 0));
        assert!(conn.server.replication.view().is_some());
        assert!(conn.server.replication.is_replica());
    }
}
