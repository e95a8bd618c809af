//! What the node registry stores for one ticket.

use std::sync::Arc;

use futures_util::future::AbortHandle;

use super::link::{Link, Session};
use crate::backend::{Moment, Ticket};

/// The state of one ticket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    /// The session that created the node. In a later session the node is not ours (CURATOR-604).
    pub(super) session: i64,
    /// The number of the create this entry stands for. A late reply to an older create must not change the entry.
    pub(super) create: u64,
    pub(super) node: Option<Node>,
    pub(super) granted: bool,
    /// A delay node may exist for this hold, so a release must delete it too.
    pub(super) marked: bool,
    /// When the lease task deletes the node, unless the ticket is polled or renewed before.
    pub(super) ends: Moment,
    pub(super) ticket: Ticket,
    /// The path of the lock.
    pub(super) path: String,
    pub(super) watch: Option<Watch>,
}

/// A node that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name under the lock's path.
    pub(super) name: String,
    /// The transaction that created it.
    pub(super) zxid: i64,
}

/// The task that waits for the blocking node to go. Dropping this value aborts the task.
#[derive(Debug)]
pub(super) struct Watch(pub(super) AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which node a ticket has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has no node, and no create is in flight.
    Nowhere,
    /// This create was sent, and its reply has not arrived.
    Unknown(u64),
    /// It has this node.
    At(Node),
}

/// What a release must delete.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) link: Arc<Link>,
    pub(super) create: u64,
    pub(super) node: Option<Node>,
    pub(super) granted: bool,
    pub(super) marked: bool,
}

/// A ticket whose node has run out of time.
pub(super) struct Ended<T> {
    pub(super) ticket: Ticket,
    pub(super) how: How<T>,
}

/// How its node is deleted.
pub(super) enum How<T> {
    /// By this request, for this path.
    Asked(Arc<Session>, String, T),
    /// It went with its session.
    Over,
    /// Its name is unknown, because the reply to its create has not arrived.
    Unknown,
}

impl Entry {
    /// The session that created the node. `None`: it has ended.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        let session = self.link.current();
        session.filter(|session| session.id() == self.session)
    }

    /// When this hold needs a keep-alive of its session. `None`: it is no live hold.
    pub(super) fn sign(&self) -> Option<(Moment, Arc<Session>)> {
        let session = self.granted.then(|| self.session()).flatten()?;
        Some((session.next_sign(self.ends), session))
    }
}
