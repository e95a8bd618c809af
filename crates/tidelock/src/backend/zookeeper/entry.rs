//! What the books say about one ticket.

use std::sync::Arc;

use futures_util::future::AbortHandle;

use super::link::{Link, Session};
use crate::backend::{Moment, Ticket};

/// What is known of one ticket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    /// Which session made the node: in another one it is not ours (CURATOR-604).
    pub(super) session: i64,
    /// Which create this is about.
    pub(super) create: u64,
    pub(super) node: Option<Node>,
    pub(super) granted: bool,
    /// A mark of it may stand: a release removes it too.
    pub(super) marked: bool,
    /// When the node is removed unless somebody asks for it or renews it.
    pub(super) ends: Moment,
    pub(super) ticket: Ticket,
    /// The lock's.
    pub(super) path: String,
    pub(super) watch: Option<Watch>,
}

/// A node that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name under the lock.
    pub(super) name: String,
    /// The transaction that made it.
    pub(super) zxid: i64,
}

/// A task that waits for the node before this one to go. It ends with this value.
#[derive(Debug)]
pub(super) struct Watch(pub(super) AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where a ticket stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has no node, and none is on its way.
    Nowhere,
    /// A node was asked for with that create, and no reply has come.
    Unknown(u64),
    /// It has this node.
    At(Node),
}

/// What has to be removed for a ticket.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) link: Arc<Link>,
    pub(super) create: u64,
    pub(super) node: Option<Node>,
    pub(super) granted: bool,
    pub(super) marked: bool,
}

/// A node whose time is up.
pub(super) struct Ended<T> {
    pub(super) ticket: Ticket,
    pub(super) how: How<T>,
}

/// How it is removed.
pub(super) enum How<T> {
    /// By this request, for this path.
    Asked(Arc<Session>, String, T),
    /// It went with its session.
    Over,
    /// Its name is not known.
    Unknown,
}

impl Entry {
    /// The session that made the node, unless it has ended.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        let session = self.link.current();
        session.filter(|session| session.id() == self.session)
    }

    /// When its session is to be heard from, for its sake.
    pub(super) fn sign(&self) -> Option<(Moment, Arc<Session>)> {
        let session = self.granted.then(|| self.session()).flatten()?;
        Some((session.next_sign(self.ends), session))
    }
}
