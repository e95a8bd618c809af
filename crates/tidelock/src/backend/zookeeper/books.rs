//! What this client has in the store: a node for each ticket that asked with effect.
//!
//! Whatever changes a ticket's node is sent while these books are locked, and the session keeps the order. So a ticket
//! that was withdrawn sends no create any more, and one that was sent before is seen by the withdrawal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::entry::{Ended, Entry, How, Left, Node, Standing, Watch};
use super::link::{Link, Session};
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

impl Books {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link on which the ticket has asked for a node.
    pub(super) fn link(&self, owner: &OwnerId) -> Option<Arc<Link>> {
        let inner = self.lock();
        inner
            .entries
            .get(owner)
            .map(|entry| Arc::clone(&entry.link))
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

    /// A mark is about to be written for that node.
    pub(super) fn marks(&self, owner: &OwnerId, node: &Node) {
        if let Some(entry) = self.lock().at(owner, node) {
            entry.marked = true;
        }
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
        let node = (entry.granted && entry.session == session).then(|| entry.node.clone());
        node.flatten()
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

    /// Strikes out every node whose time is up, and sends what removes it: an attempt that is sent later finds it gone.
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
                entry.ends = Moment::FAR; // until it has been found out
            } else {
                watches.extend(inner.entries.remove(&owner).and_then(|entry| entry.watch));
            }
            ended.push(Ended { ticket, how });
        }
        drop(inner);
        ended
    }

    /// When the keeper is to look next: when the first node ends, or a session is to be heard from.
    pub(super) fn next_look(&self) -> Moment {
        let mut inner = self.lock();
        let next = inner.entries.values().map(|entry| {
            let sign = entry.sign().map_or(Moment::FAR, |(at, _)| at);
            entry.ends.min(sign)
        });
        inner.looks_at = next.min().unwrap_or(Moment::FAR);
        inner.looks_at
    }

    /// The sessions that are to be heard from now.
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
