//! A live connection, and what we learn of the server behind it.

use std::sync::OnceLock;

use crate::store::Timers;
use crate::store::redis::topology::replication::{ReplicaView, ReplicationStatus, question};
use crate::store::redis::topology::server_run::ServerRun;
use crate::store::redis::wire;

/// A live connection to a server that may have locks.
pub(crate) type LiveConnection = wire::live_connection::LiveConnection<ServerState>;

/// What one connection has learned of its server.
#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) replication: ReplicationStatus,
    /// Read once, because a restart of the server ends the connection. It tells nothing of what was asked on another
    /// connection. `None`: the server does not report its run.
    pub(crate) run: OnceLock<Option<ServerRun>>,
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
