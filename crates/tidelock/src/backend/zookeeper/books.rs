//! The node registry: which node each ticket has in the store.
//!
//! Each request that changes a ticket's node is sent while the registry is locked, and the session keeps the order of
//! requests. So a withdrawn ticket sends no further create, and a withdrawal finds every create that was sent before
//! it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::entry::{Ended, Entry, How, Left, Node, Standing, Watch};
use super::link::{Link, Session};
use crate::backend::{Moment, OwnerId, Ticket};
use crate::error::{Error, ErrorKind, Result};

/// Bounds how long a withdrawn ticket is remembered. Its late attempts run in this process; only the scheduler delays
/// them.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Books {
    inner: Mutex<Inner>,
    /// Notified when a node ends before the lease task would wake.
    pub(super) bell: Arc<Notify>,
}

#[derive(Debug)]
struct Inner {
    entries: HashMap<OwnerId, Entry>,
    withdrawn: HashMap<OwnerId, Moment>,
    /// When expired entries of `withdrawn` are removed next.
    sweep_at: Moment,
    /// The number of the latest create.
    creates: u64,
    /// When the lease task wakes. It may be earlier than the first end, never later.
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

impl Books {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection on which the ticket has sent a create.
    pub(super) fn link(&self, owner: &OwnerId) -> Option<Arc<Link>> {
        let inner = self.lock();
        inner
            .entries
            .get(owner)
            .map(|entry| Arc::clone(&entry.link))
    }

    /// Which node the ticket has in that session. Fails with `Cancelled` if the ticket was withdrawn.
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

    /// Sends a create for the ticket, and returns its number. `None`: another attempt of the ticket has already sent
    /// one.
    pub(super) fn create<T>(
        &self,
        ticket: &Ticket,
        (link, session): (&Arc<Link>, i64),
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
            link: Arc::clone(link),
            session,
            create,
            node: None,
            granted: false,
            marked: false,
            ends,
            ticket: ticket.clone(),
            path: path.to_owned(),
            watch: None,
        };
        // We register the ticket and send the create under one lock. Otherwise a withdrawal between the two would
        // miss the node.
        inner.entries.insert(ticket.owner.clone(), entry);
        let request = send();
        self.look_by(inner, ends);
        Ok(Some((create, request)))
    }

    /// Records that the create has succeeded.
    pub(super) fn created(&self, owner: &OwnerId, create: u64, node: Node) {
        if let Some(entry) = self.lock().of_create(owner, create) {
            entry.node = Some(node);
        }
    }

    /// Records that the create has made no node, or that its node was deleted.
    pub(super) fn gone(&self, owner: &OwnerId, create: u64) {
        let mut inner = self.lock();
        if inner.of_create(owner, create).is_some() {
            inner.entries.remove(owner);
        }
    }

    /// Records that the node has gone.
    pub(super) fn lost(&self, owner: &OwnerId, node: &Node) {
        let mut inner = self.lock();
        let known = inner.entries.get(owner);
        if known.is_some_and(|entry| entry.node.as_ref() == Some(node)) {
            inner.entries.remove(owner);
        }
    }

    /// Records that the ticket waits with that node. False: it has lost the node meanwhile.
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
        drop(old); // after the unlock, because this may drop a task
        true
    }

    /// Records that a delay node is about to be written for that node.
    pub(super) fn marks(&self, owner: &OwnerId, node: &Node) {
        if let Some(entry) = self.lock().at(owner, node) {
            entry.marked = true;
        }
    }

    /// Records that the ticket holds the lock until `ends`, and wakes the lease task by `sign` for a keep-alive.
    /// False: the ticket was withdrawn or has lost the node meanwhile.
    pub(super) fn grant(&self, owner: &OwnerId, node: &Node, ends: Moment, sign: Moment) -> bool {
        let mut inner = self.lock();
        if inner.withdrawn.contains_key(owner) {
            return false;
        }
        let Some(entry) = inner.at(owner, node) else {
            return false;
        };
        // The time limit of a waiting node may be longer than the lease.
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

    /// The node that holds the ticket's lock in that session.
    pub(super) fn held(&self, owner: &OwnerId, session: i64) -> Option<Node> {
        let inner = self.lock();
        let entry = inner.entries.get(owner)?;
        let node = (entry.granted && entry.session == session).then(|| entry.node.clone());
        node.flatten()
    }

    /// When that node ends unless it is renewed. `None`: it holds no lock of this client.
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

    /// Extends a hold. False: the node no longer holds the lock.
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

    /// What the ticket has in the store. If it is `withdrawn`, no attempt of it takes effect from now on.
    pub(super) fn leave(&self, owner: &OwnerId, now: Moment, withdrawn: bool) -> Option<Left> {
        let mut inner = self.lock();
        if withdrawn {
            inner.withdraw(owner, now);
        }
        let entry = inner.entries.get_mut(owner)?;
        let watch = entry.watch.take();
        let left = Left {
            link: Arc::clone(&entry.link),
            create: entry.create,
            node: entry.node.clone(),
            granted: entry.granted,
            marked: entry.marked,
        };
        drop(inner);
        drop(watch);
        Some(left)
    }

    /// Forgets every node that has run out of time, and sends the request that deletes it under the same lock. So an
    /// attempt that is sent later finds the node gone.
    pub(super) fn end<T>(
        &self,
        now: Moment,
        mut remove: impl FnMut(&Session, &str) -> T,
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
            let (ticket, session) = (entry.ticket.clone(), entry.session());
            let how = match (&entry.node, session) {
                (Some(node), Some(session)) => {
                    let path = format!("{}/{}", entry.path, node.name);
                    let request = remove(&session, &path);
                    How::Asked(session, path, request)
                }
                (Some(_), None) => How::Over,
                (None, _) => How::Unknown,
            };
            if matches!(how, How::Unknown) {
                entry.ends = Moment::FAR; // a withdrawal settles this ticket
            } else {
                watches.extend(inner.entries.remove(&owner).and_then(|entry| entry.watch));
            }
            ended.push(Ended { ticket, how });
        }
        drop(inner);
        ended
    }

    /// When the lease task must wake next: when the first node ends, or when a session needs a keep-alive.
    pub(super) fn next_look(&self) -> Moment {
        let mut inner = self.lock();
        let next = inner.entries.values().map(|entry| {
            let sign = entry.sign().map_or(Moment::FAR, |(at, _)| at);
            entry.ends.min(sign)
        });
        inner.looks_at = next.min().unwrap_or(Moment::FAR);
        inner.looks_at
    }

    /// The sessions that need a keep-alive now.
    pub(super) fn silent(&self, now: Moment) -> Vec<Arc<Session>> {
        let inner = self.lock();
        let signs = inner.entries.values().filter_map(Entry::sign);
        let mut silent: Vec<Arc<Session>> = Vec::new();
        for (at, session) in signs {
            if at <= now && !silent.iter().any(|known| Arc::ptr_eq(known, &session)) {
                silent.push(session);
            }
        }
        silent
    }

    /// Forgets all nodes, because the session was closed.
    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut self.lock().entries);
        drop(entries);
    }

    /// Wakes the lease task if it would sleep past `ends`.
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
