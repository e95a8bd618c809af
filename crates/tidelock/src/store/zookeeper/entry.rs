//! What the node registry stores for one ticket.

use std::sync::Arc;

use futures_util::future::AbortHandle;

use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::{BootInstant, Ticket};

/// The state of one ticket.
#[derive(Debug)]
pub(crate) struct TicketEntry {
    pub(crate) connection: Arc<Connection>,
    /// The session that created the node. In a later session the node is not ours (CURATOR-604).
    pub(crate) session: i64,
    /// The number of the create request that this entry records. A late reply to an older create must not change the entry.
    pub(crate) create: u64,
    pub(crate) node: Option<QueueNode>,
    pub(crate) granted: bool,
    /// A delay node may exist for this hold, so a release must delete it too.
    pub(crate) marked: bool,
    /// When the lease task deletes the node, unless the ticket is polled or renewed before.
    pub(crate) ends: BootInstant,
    pub(crate) ticket: Ticket,
    pub(crate) place: NodePlace,
    pub(crate) watch: Option<WatchTask>,
}

/// Where a ticket has its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodePlace {
    /// The path of the lock, or of the folder with the claims of a semaphore.
    pub(crate) parent: String,
    /// What only the nodes of this ticket begin with. The server appends the number.
    pub(crate) prefix: String,
}

impl NodePlace {
    /// The path of the ticket's node.
    pub(crate) fn path(&self, node: &QueueNode) -> String {
        format!("{}/{}", self.parent, node.name)
    }
}

/// A node that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueNode {
    /// Its name under the lock's path.
    pub(crate) name: String,
    /// The transaction that created it.
    pub(crate) zxid: i64,
}

/// The task that waits for the blocking node to go. Dropping this value aborts the task.
#[derive(Debug)]
pub(crate) struct WatchTask(pub(crate) AbortHandle);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which node a ticket has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NodePosition {
    /// It has no node, and no create is in flight.
    Nowhere,
    /// This create was sent, and its reply has not arrived.
    Unknown(u64),
    /// It has this node.
    At(QueueNode),
}

/// What a release must delete.
#[derive(Debug)]
pub(crate) struct Leftovers {
    pub(crate) place: NodePlace,
    pub(crate) connection: Arc<Connection>,
    pub(crate) create: u64,
    pub(crate) node: Option<QueueNode>,
    pub(crate) granted: bool,
    pub(crate) marked: bool,
}

/// A ticket whose node has run out of time.
pub(crate) struct Ended<T> {
    pub(crate) ticket: Ticket,
    pub(crate) how: EndCause<T>,
}

/// How its node ends.
pub(crate) enum EndCause<T> {
    /// We send this request for this path.
    Delete(Arc<ZooKeeperSession>, String, T),
    /// The server removed it with its session.
    SessionEnded,
    /// Its name is unknown, because the reply to its create has not arrived.
    Unknown,
}

impl TicketEntry {
    /// The session that created the node. `None`: it has ended.
    pub(crate) fn session(&self) -> Option<Arc<ZooKeeperSession>> {
        let session = self.connection.current();
        session.filter(|session| session.id() == self.session)
    }

    /// When this hold needs a keep-alive of its session. `None`: it is no live hold.
    pub(crate) fn keep_alive_due(&self) -> Option<(BootInstant, Arc<ZooKeeperSession>)> {
        let session = self.granted.then(|| self.session()).flatten()?;
        Some((session.next_keep_alive(self.ends), session))
    }
}
