//! The node registry: which node each ticket has in the store.
//!
//! Each request that changes a ticket's node is sent while the registry is locked, and the session keeps the order of
//! requests. So a withdrawn ticket sends no further create, and a withdrawal finds every create that was sent before
//! it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ticket_key::TicketKey;
use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::zookeeper::entry::{
    EndCause, Ended, Leftovers, NodePlace, NodePosition, QueueNode, TicketEntry, WatchTask,
};
use crate::store::{Attempt, AttemptReply, BootInstant, Name, OwnerId, Ticket};

/// Bounds how long a withdrawn ticket is remembered. Its late attempts run in this process; only the scheduler delays
/// them.
const WITHDRAWN_TTL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct NodeRegistry {
    inner: Mutex<NodeRegistryState>,
    /// Notified when a node ends before the lease task would wake.
    pub(crate) notify: Arc<Notify>,
}

/// Why a ticket was withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WithdrawalCause {
    ByCaller,
    /// The lease task did it, because the create had no answer for so long that its node has run out of time.
    Overdue,
}

#[derive(Debug)]
struct NodeRegistryState {
    entries: HashMap<TicketKey, TicketEntry>,
    /// Each with the instant until which it is remembered.
    withdrawn: HashMap<TicketKey, (WithdrawalCause, BootInstant)>,
    /// When expired entries of `withdrawn` are removed next.
    sweep_at: BootInstant,
    /// The number of the latest create.
    creates: u64,
    /// When the lease task wakes. It may be earlier than the first end, never later.
    next_check_at: BootInstant,
}

impl Default for NodeRegistryState {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            withdrawn: HashMap::new(),
            sweep_at: BootInstant(0),
            creates: 0,
            next_check_at: BootInstant::FAR,
        }
    }
}

impl NodeRegistry {
    fn lock(&self) -> MutexGuard<'_, NodeRegistryState> {
        self.inner.lock()
    }

    /// The connection on which the ticket has sent a create.
    pub(crate) fn connection(&self, ticket: &Ticket) -> Option<Arc<Connection>> {
        let inner = self.lock();
        inner
            .entries
            .get(&TicketKey::of(ticket))
            .map(|entry| Arc::clone(&entry.connection))
    }

    /// The session of the ticket's node. `None`: it has no node, or the session has ended and the node with it.
    pub(crate) fn session(&self, ticket: &Ticket) -> Option<Arc<ZooKeeperSession>> {
        let inner = self.lock();
        inner.entries.get(&TicketKey::of(ticket))?.session()
    }

    /// Which node the ticket has in that session. Fails with `Cancelled` if the ticket was withdrawn, and with
    /// `OutcomeUnknown` if the [lease task](Self::end) has withdrawn it.
    pub(crate) fn node_position(&self, ticket: &Ticket, session: i64) -> Result<NodePosition> {
        let inner = self.lock();
        inner.refuse_withdrawn(ticket)?;
        Ok(match inner.entries.get(&TicketKey::of(ticket)) {
            Some(entry) if entry.session == session => match &entry.node {
                Some(node) => NodePosition::At(node.clone()),
                None => NodePosition::Unknown(entry.create),
            },
            _ => NodePosition::Nowhere,
        })
    }

    /// Sends a create for the ticket, and returns its number. `None`: another attempt of the ticket has already sent
    /// one.
    pub(crate) fn create<T>(
        &self,
        ticket: &Ticket,
        (connection, session): (&Arc<Connection>, i64),
        place: &NodePlace,
        ends: BootInstant,
        send: impl FnOnce() -> T,
    ) -> Result<Option<(u64, T)>> {
        let mut inner = self.lock();
        inner.refuse_withdrawn(ticket)?;
        let known = inner.entries.get(&TicketKey::of(ticket));
        if known.is_some_and(|entry| entry.session == session) {
            return Ok(None);
        }
        inner.creates += 1;
        let create = inner.creates;
        let entry = TicketEntry {
            connection: Arc::clone(connection),
            session,
            create,
            node: None,
            granted: false,
            marked: false,
            ends,
            ticket: ticket.clone(),
            place: place.clone(),
            watch: None,
        };
        // We register the ticket and send the create under one lock. Otherwise a withdrawal between the two would
        // miss the node.
        inner.entries.insert(TicketKey::of(ticket), entry);
        let request = send();
        self.look_by(inner, ends);
        Ok(Some((create, request)))
    }

    /// Records that the create has succeeded.
    pub(crate) fn created(&self, ticket: &Ticket, create: u64, node: QueueNode) {
        if let Some(entry) = self.lock().of_create(ticket, create) {
            entry.node = Some(node);
        }
    }

    /// Records that the create has made no node, or that its node was deleted.
    pub(crate) fn gone(&self, ticket: &Ticket, create: u64) {
        let mut inner = self.lock();
        if inner.of_create(ticket, create).is_some() {
            inner.entries.remove(&TicketKey::of(ticket));
        }
    }

    /// Records that the node has gone.
    pub(crate) fn lost(&self, ticket: &Ticket, node: &QueueNode) {
        let mut inner = self.lock();
        let known = inner.entries.get(&TicketKey::of(ticket));
        if known.is_some_and(|entry| entry.node.as_ref() == Some(node)) {
            inner.entries.remove(&TicketKey::of(ticket));
        }
    }

    /// Records that the ticket waits with that node. False: it has lost the node meanwhile.
    pub(crate) fn waits(
        &self,
        ticket: &Ticket,
        node: &QueueNode,
        ends: BootInstant,
        watch: Option<WatchTask>,
    ) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.at(ticket, node) else {
            return false;
        };
        entry.ends = entry.ends.max(ends);
        let old = std::mem::replace(&mut entry.watch, watch);
        drop(inner);
        drop(old); // after the unlock, because this may drop a task
        true
    }

    /// Records that a delay node is about to be written for that node.
    pub(crate) fn marks(&self, ticket: &Ticket, node: &QueueNode) {
        if let Some(entry) = self.lock().at(ticket, node) {
            entry.marked = true;
        }
    }

    /// Records that the ticket holds the lock until `ends`, and wakes the lease task by `keep_alive_due` for a keep-alive.
    /// False: the ticket was withdrawn or has lost the node meanwhile.
    pub(crate) fn grant(
        &self,
        ticket: &Ticket,
        node: &QueueNode,
        ends: BootInstant,
        keep_alive_due: BootInstant,
    ) -> bool {
        let mut inner = self.lock();
        if inner.withdrawn.contains_key(&TicketKey::of(ticket)) {
            return false;
        }
        let Some(entry) = inner.at(ticket, node) else {
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
        self.look_by(inner, ends.min(keep_alive_due));
        drop(watch);
        true
    }

    /// The node that holds the ticket's lock in that session, and its path.
    pub(crate) fn held(&self, ticket: &Ticket, session: i64) -> Option<(QueueNode, String)> {
        let inner = self.lock();
        let entry = inner.entries.get(&TicketKey::of(ticket))?;
        let node = entry.node.as_ref();
        let node = node.filter(|_| entry.granted && entry.session == session)?;
        Some((node.clone(), entry.place.path(node)))
    }

    /// The node that holds this owner's lock of that name, in whichever session.
    pub(crate) fn holder(&self, name: &Name, owner: &OwnerId) -> Option<QueueNode> {
        let inner = self.lock();
        let key = TicketKey {
            owner: owner.clone(),
            name: name.clone(),
        };
        let entry = inner.entries.get(&key).filter(|entry| entry.granted)?;
        entry.node.clone()
    }

    /// When that node ends unless it is renewed. `None`: it holds no lock of this client.
    pub(crate) fn ends(&self, path: &str, node: &str) -> Option<BootInstant> {
        let inner = self.lock();
        let mut entries = inner.entries.values();
        let entry = entries.find(|entry| {
            entry.granted
                && entry.place.parent == path
                && entry.node.as_ref().is_some_and(|own| own.name == node)
        })?;
        Some(entry.ends)
    }

    /// Extends a hold. False: the node no longer holds the lock.
    pub(crate) fn extend(
        &self,
        ticket: &Ticket,
        node: &QueueNode,
        ends: BootInstant,
        keep_alive_due: BootInstant,
    ) -> bool {
        let mut inner = self.lock();
        match inner.at(ticket, node) {
            Some(entry) if entry.granted => {
                entry.ends = entry.ends.max(ends);
                self.look_by(inner, keep_alive_due);
                true
            }
            _ => false,
        }
    }

    /// What the ticket has in the store. If it is `withdrawn`, no attempt of it takes effect from now on.
    pub(crate) fn leave(
        &self,
        ticket: &Ticket,
        now: BootInstant,
        withdrawn: bool,
    ) -> Option<Leftovers> {
        let mut inner = self.lock();
        if withdrawn {
            inner.withdraw(ticket, WithdrawalCause::ByCaller, now);
        }
        let entry = inner.entries.get_mut(&TicketKey::of(ticket))?;
        let watch = entry.watch.take();
        let left = Leftovers {
            place: entry.place.clone(),
            connection: Arc::clone(&entry.connection),
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
    ///
    /// If the name of the node is unknown, the lease task finds and deletes it later. We withdraw the ticket right here;
    /// otherwise an attempt could find the node first, and the delete would take the lock from its holder.
    pub(crate) fn end<T>(
        &self,
        now: BootInstant,
        mut remove: impl FnMut(&ZooKeeperSession, &str) -> T,
    ) -> Vec<Ended<T>> {
        let mut inner = self.lock();
        let due: Vec<TicketKey> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.ends <= now)
            .map(|(key, _)| key.clone())
            .collect();
        let mut ended = Vec::new();
        let mut watches = Vec::new();
        for key in due {
            let Some(entry) = inner.entries.get_mut(&key) else {
                continue;
            };
            let (ticket, session) = (entry.ticket.clone(), entry.session());
            let how = match (&entry.node, session) {
                (Some(node), Some(session)) => {
                    let path = entry.place.path(node);
                    let request = remove(&session, &path);
                    EndCause::Delete(session, path, request)
                }
                (Some(_), None) => EndCause::SessionEnded,
                (None, _) => EndCause::Unknown,
            };
            if matches!(how, EndCause::Unknown) {
                entry.ends = BootInstant::FAR; // the delete settles this ticket
                inner.withdraw(&ticket, WithdrawalCause::Overdue, now);
            } else {
                watches.extend(inner.entries.remove(&key).and_then(|entry| entry.watch));
            }
            ended.push(Ended { ticket, how });
        }
        drop(inner);
        ended
    }

    /// The reply to an attempt of the ticket. If the lease task has withdrawn the ticket meanwhile, only a fresh one can be
    /// granted the lock, and a wake that came with a refusal would never arrive.
    pub(crate) fn reply(&self, ticket: &Ticket, outcome: Result<Attempt>) -> AttemptReply {
        let is_grant = matches!(outcome, Ok(Attempt::Acquired(_)));
        if is_grant || self.lock().withdrawal(ticket) != Some(WithdrawalCause::Overdue) {
            return outcome.into();
        }
        AttemptReply {
            outcome: Err(given_up()),
            in_doubt: true,
        }
    }

    /// When the lease task must wake next: when the first node ends, or when a session needs a keep-alive.
    pub(crate) fn next_check(&self) -> BootInstant {
        let mut inner = self.lock();
        let next = inner.entries.values().map(|entry| {
            let keep_alive_due = entry
                .keep_alive_due()
                .map_or(BootInstant::FAR, |(at, _)| at);
            entry.ends.min(keep_alive_due)
        });
        inner.next_check_at = next.min().unwrap_or(BootInstant::FAR);
        inner.next_check_at
    }

    /// The sessions that need a keep-alive now.
    pub(crate) fn silent(&self, now: BootInstant) -> Vec<Arc<ZooKeeperSession>> {
        let inner = self.lock();
        let signs = inner
            .entries
            .values()
            .filter_map(TicketEntry::keep_alive_due);
        let mut silent: Vec<Arc<ZooKeeperSession>> = Vec::new();
        for (at, session) in signs {
            if at <= now && !silent.iter().any(|known| Arc::ptr_eq(known, &session)) {
                silent.push(session);
            }
        }
        silent
    }

    /// Forgets all nodes, because the session was closed.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut self.lock().entries);
        drop(entries);
    }

    /// Wakes the lease task if it would sleep past `ends`.
    fn look_by(&self, inner: MutexGuard<'_, NodeRegistryState>, ends: BootInstant) {
        let late = ends < inner.next_check_at;
        drop(inner);
        if late {
            self.notify.notify_one();
        }
    }
}

impl NodeRegistryState {
    fn withdrawal(&self, ticket: &Ticket) -> Option<WithdrawalCause> {
        let (cause, _) = self.withdrawn.get(&TicketKey::of(ticket))?;
        Some(*cause)
    }

    fn refuse_withdrawn(&self, ticket: &Ticket) -> Result<()> {
        Err(match self.withdrawal(ticket) {
            None => return Ok(()),
            Some(WithdrawalCause::ByCaller) => {
                Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
            }
            Some(WithdrawalCause::Overdue) => given_up(),
        })
    }

    fn withdraw(&mut self, ticket: &Ticket, cause: WithdrawalCause, now: BootInstant) {
        if now >= self.sweep_at {
            self.withdrawn.retain(|_, (_, until)| *until > now);
            self.sweep_at = now + WITHDRAWN_TTL / 4;
        }
        // We keep the first cause. After the lease task has withdrawn a ticket, its sweep withdraws it once more.
        let known = self.withdrawn.entry(TicketKey::of(ticket));
        known.or_insert((cause, now)).1 = now + WITHDRAWN_TTL;
    }

    fn of_create(&mut self, ticket: &Ticket, create: u64) -> Option<&mut TicketEntry> {
        let entry = self.entries.get_mut(&TicketKey::of(ticket))?;
        (entry.create == create).then_some(entry)
    }

    fn at(&mut self, ticket: &Ticket, node: &QueueNode) -> Option<&mut TicketEntry> {
        let entry = self.entries.get_mut(&TicketKey::of(ticket))?;
        (entry.node.as_ref() == Some(node)).then_some(entry)
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::OutcomeUnknown)
        .because("the server did not answer for two leases; the request was withdrawn")
}

#[cfg(test)]
mod tests;
