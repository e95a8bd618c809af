//! What this client has in the store: a node for each ticket that asked with effect.
//!
//! Whatever changes a ticket's node is sent while these books are locked, and the session keeps the order. So a ticket
//! that was withdrawn sends no create any more, and one that was sent before is seen by the withdrawal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::sync::Notify;

use crate::backend::{Moment, OwnerId, Ticket};
use crate::error::{Error, ErrorKind, Result};

/// How long a withdrawn ticket is remembered. Its late attempts are in this process, held up by nothing but its scheduler.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Books {
    inner: Mutex<Inner>,
    /// Rung when a node ends before the keeper would look.
    pub(super) bell: Arc<Notify>,
}

#[derive(Debug)]
struct Inner {
    entries: HashMap<OwnerId, Entry>,
    withdrawn: HashMap<OwnerId, Moment>,
    /// When withdrawn tickets are looked through again.
    sweep_at: Moment,
    creates: u64,
    /// When the keeper looks. It may be earlier than the first end, never later.
    looks_at: Moment,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            withdrawn: HashMap::new(),
            sweep_at: Moment(0),
            creates: 0,
            looks_at: Moment::FAR,
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// Which session made the node: in another one it is not ours (CURATOR-604).
    session: i64,
    /// Which create this is about.
    create: u64,
    node: Option<Node>,
    granted: bool,
    /// When the node is removed unless somebody asks for it or renews it.
    ends: Moment,
    ticket: Ticket,
    /// The lock's.
    path: String,
    watch: Option<Watch>,
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
    pub(super) create: u64,
    pub(super) node: Option<Node>,
    pub(super) granted: bool,
}

/// A node whose time is up.
#[derive(Debug)]
pub(super) struct Ended<T> {
    pub(super) ticket: Ticket,
    /// Of the request that was sent to remove it. `None`: its name is not known.
    pub(super) sent: Option<T>,
}

impl Books {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self, owner: &OwnerId, session: i64) -> Result<Standing> {
        let inner = self.lock();
        inner.refuse_withdrawn(owner)?;
        Ok(match inner.entries.get(owner) {
            Some(entry) if entry.session == session => match &entry.node {
                Some(node) => Standing::At(node.clone()),
                None => Standing::Unknown(entry.create),
            },
            _ => Standing::Nowhere,
        })
    }

    /// Sends a create for the ticket, unless another attempt of it has done so. What is returned names the create.
    pub(super) fn create<T>(
        &self,
        ticket: &Ticket,
        session: i64,
        path: &str,
        ends: Moment,
        send: impl FnOnce() -> T,
    ) -> Result<Option<(u64, T)>> {
        let mut inner = self.lock();
        inner.refuse_withdrawn(&ticket.owner)?;
        let known = inner.entries.get(&ticket.owner);
        if known.is_some_and(|entry| entry.session == session) {
            return Ok(None);
        }
        inner.creates += 1;
        let create = inner.creates;
        let entry = Entry {
            session,
            create,
            node: None,
            granted: false,
            ends,
            ticket: ticket.clone(),
            path: path.to_owned(),
            watch: None,
        };
        inner.entries.insert(ticket.owner.clone(), entry);
        let request = send();
        self.look_by(inner, ends);
        Ok(Some((create, request)))
    }

    /// The node of that create is there.
    pub(super) fn created(&self, owner: &OwnerId, create: u64, node: Node) {
        if let Some(entry) = self.lock().of_create(owner, create) {
            entry.node = Some(node);
        }
    }

    /// The node of that create is not there, and will not be.
    pub(super) fn gone(&self, owner: &OwnerId, create: u64) {
        let mut inner = self.lock();
        if inner.of_create(owner, create).is_some() {
            inner.entries.remove(owner);
        }
    }

    /// That node is not there any more.
    pub(super) fn lost(&self, owner: &OwnerId, node: &Node) {
        let mut inner = self.lock();
        let known = inner.entries.get(owner);
        if known.is_some_and(|entry| entry.node.as_ref() == Some(node)) {
            inner.entries.remove(owner);
        }
    }

    /// The ticket waits at that node. False: it has lost its place meanwhile.
    pub(super) fn waits(
        &self,
        owner: &OwnerId,
        node: &Node,
        ends: Moment,
        watch: Option<Watch>,
    ) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.at(owner, node) else {
            return false;
        };
        entry.ends = entry.ends.max(ends);
        let old = std::mem::replace(&mut entry.watch, watch);
        drop(inner);
        drop(old); // not under the lock: a task may be dropped with it
        true
    }

    /// The ticket holds the lock by that node, until then, and the keeper is to look for a `sign` of life by then. False: it was withdrawn or given up meanwhile.
    pub(super) fn grant(&self, owner: &OwnerId, node: &Node, ends: Moment, sign: Moment) -> bool {
        let mut inner = self.lock();
        if inner.withdrawn.contains_key(owner) {
            return false;
        }
        let Some(entry) = inner.at(owner, node) else {
            return false;
        };
        // A place in the queue may have had a longer time than the lease.
        entry.ends = if entry.granted {
            entry.ends.max(ends)
        } else {
            ends
        };
        entry.granted = true;
        let watch = entry.watch.take();
        let ends = entry.ends;
        self.look_by(inner, ends.min(sign));
        drop(watch);
        true
    }

    /// The node by which the ticket holds its lock in that session.
    pub(super) fn held(&self, owner: &OwnerId, session: i64) -> Option<Node> {
        let inner = self.lock();
        let entry = inner.entries.get(owner)?;
        (entry.granted && entry.session == session)
            .then(|| entry.node.clone())
            .flatten()
    }

    /// Until when the node stands unless it is renewed.
    pub(super) fn ends(&self, path: &str, node: &str) -> Option<Moment> {
        let inner = self.lock();
        let mut entries = inner.entries.values();
        let entry = entries.find(|entry| {
            entry.granted
                && entry.path == path
                && entry.node.as_ref().is_some_and(|own| own.name == node)
        })?;
        Some(entry.ends)
    }

    /// Gives a held node more time. False: it is not held any more.
    pub(super) fn extend(&self, owner: &OwnerId, node: &Node, ends: Moment, sign: Moment) -> bool {
        let mut inner = self.lock();
        match inner.at(owner, node) {
            Some(entry) if entry.granted => {
                entry.ends = entry.ends.max(ends);
                self.look_by(inner, sign);
                true
            }
            _ => false,
        }
    }

    /// What the ticket has. From now on no attempt of it takes effect, if it is `withdrawn`.
    pub(super) fn leave(&self, owner: &OwnerId, now: Moment, withdrawn: bool) -> Option<Left> {
        let mut inner = self.lock();
        if withdrawn {
            inner.withdraw(owner, now);
        }
        let entry = inner.entries.get_mut(owner)?;
        let watch = entry.watch.take();
        let left = Left {
            create: entry.create,
            node: entry.node.clone(),
            granted: entry.granted,
        };
        drop(inner);
        drop(watch);
        Some(left)
    }

    /// Strikes out every node whose time is up, and sends what removes it: an attempt that is sent later finds it gone.
    pub(super) fn end<T>(
        &self,
        now: Moment,
        mut remove: impl FnMut(&str, &Node, i64) -> T,
    ) -> Vec<Ended<T>> {
        let mut inner = self.lock();
        let due: Vec<OwnerId> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.ends <= now)
            .map(|(owner, _)| owner.clone())
            .collect();
        let mut ended = Vec::new();
        let mut watches = Vec::new();
        for owner in due {
            let Some(entry) = inner.entries.get_mut(&owner) else {
                continue;
            };
            let ticket = entry.ticket.clone();
            let sent = entry
                .node
                .as_ref()
                .map(|node| remove(&entry.path, node, entry.session));
            if sent.is_some() {
                watches.extend(inner.entries.remove(&owner).and_then(|entry| entry.watch));
            } else {
                entry.ends = Moment::FAR; // until it has been found out
            }
            ended.push(Ended { ticket, sent });
        }
        drop(inner);
        ended
    }

    /// When the keeper is to look next, given when the last of the held nodes ends: it looks at the first end, or at `also`.
    pub(super) fn next_look(&self, also: impl FnOnce(Option<Moment>) -> Moment) -> Moment {
        let mut inner = self.lock();
        let first = inner.entries.values().map(|entry| entry.ends).min();
        let held = inner.entries.values().filter(|entry| entry.granted);
        let also = also(held.map(|entry| entry.ends).max());
        inner.looks_at = first.unwrap_or(Moment::FAR).min(also);
        inner.looks_at
    }

    /// The session was closed: nothing of it is left.
    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut self.lock().entries);
        drop(entries);
    }

    fn look_by(&self, inner: MutexGuard<'_, Inner>, ends: Moment) {
        let late = ends < inner.looks_at;
        drop(inner);
        if late {
            self.bell.notify_one();
        }
    }
}

impl Inner {
    fn refuse_withdrawn(&self, owner: &OwnerId) -> Result<()> {
        if self.withdrawn.contains_key(owner) {
            return Err(Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn"));
        }
        Ok(())
    }

    fn withdraw(&mut self, owner: &OwnerId, now: Moment) {
        if now >= self.sweep_at {
            self.withdrawn.retain(|_, until| *until > now);
            self.sweep_at = now + REMEMBERED / 4;
        }
        self.withdrawn.insert(owner.clone(), now + REMEMBERED);
    }

    fn of_create(&mut self, owner: &OwnerId, create: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(owner)?;
        (entry.create == create).then_some(entry)
    }

    fn at(&mut self, owner: &OwnerId, node: &Node) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(owner)?;
        (entry.node.as_ref() == Some(node)).then_some(entry)
    }
}
