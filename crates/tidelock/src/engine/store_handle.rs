//! The store handle: a store, or a set of stores that act as one, and what this process keeps for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::engine::lease::guests::SetHosts;
use crate::engine::lease::leader_term::Queues;
use crate::engine::store_health::StoreHealth;
use crate::error::{Error, ErrorKind, Result};
use crate::store::kinds::{no_counts, unsupported};
use crate::store::{
    Awaited, Backend, Clock, CountKind, Counts, LockKind, Name, PermitCounter, ReleasesSeen, Store,
    Timers, WakeChannels,
};

/// What a set needs to know of its members and of their clients.
#[derive(Debug)]
pub(crate) struct SetMembers {
    /// The clients of the members, without the one that made the set.
    pub(crate) hosts: SetHosts,
    /// The health of each member's store, as its client sees it.
    pub(crate) healths: Vec<Arc<StoreHealth>>,
    /// How many members must grant a lock.
    pub(crate) needed: usize,
    /// The longest `connect_within` of the clients.
    pub(crate) connect_within: Duration,
    /// How long the set waits for the answer of its slowest member.
    pub(crate) slowest: Duration,
}

/// A store, and what this process keeps for it. Everything that handles a ticket carries the handle of the ticket's
/// store, because one client can have tickets in several stores.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    store: Store,
    /// Text that identifies a set of stores and its locks, or another layout of the locks of one store. `None`: the
    /// client's own store in its own layout.
    set: Option<Arc<str>>,
    /// The waiters that poll, for a store that does not wake them. Created at first use.
    polls: OnceLock<WakeChannels>,
    /// The local queues, which hear of every release. `None`: a set of stores, whose waiters each ask for themselves. A lock
    /// may have none although its store has some: that for permits.
    queues: Option<Arc<dyn Queues>>,
    /// The members of a set. `None`: the client's own store.
    members: Option<SetMembers>,
    /// The plain layout of a store shares it with the store's own layout.
    health: Arc<StoreHealth>,
}

impl StoreHandle {
    pub(crate) fn new(
        store: Store,
        set: Option<Arc<str>>,
        queues: Option<Arc<dyn Queues>>,
        health: Arc<StoreHealth>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            set,
            polls: OnceLock::new(),
            queues,
            members: None,
            health,
        })
    }

    /// A set of stores, identified by that text.
    pub(crate) fn of_set(
        store: Store,
        set: Arc<str>,
        members: SetMembers,
        clock: Clock,
    ) -> Arc<Self> {
        let healths = members.healths.clone();
        let health = StoreHealth::of_set(clock, healths, members.needed);
        Arc::new(Self {
            store,
            set: Some(set),
            polls: OnceLock::new(),
            queues: None,
            members: Some(members),
            health: Arc::new(health),
        })
    }

    /// Both the front and the back.
    pub(crate) fn sides(&self) -> &Store {
        &self.store
    }

    /// The backend for the callers' tasks.
    pub(crate) fn front(&self) -> &dyn Backend {
        &*self.store.front
    }

    /// The backend for the steward's thread.
    pub(crate) fn back(&self) -> &dyn Backend {
        &*self.store.back
    }

    pub(crate) fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    /// A request for this lock has ended.
    pub(crate) fn heard<T>(&self, name: &Name, result: &Result<T>) {
        self.heard_or(name, result.as_ref().err());
    }

    /// A request for this lock has ended, perhaps with this error.
    pub(crate) fn heard_or(&self, name: &Name, error: Option<&Error>) {
        self.health
            .heard(name, |name| self.back().lane(name), error);
    }

    /// A request that only a viewer sends has ended, for this name or for all. A failure is left to the caller: nothing else
    /// asks for that name, so the outage of its lane might never end.
    pub(crate) fn heard_answer<T>(&self, name: &Name, result: &Result<T>) {
        if result.is_ok() {
            self.heard(name, result);
        }
    }

    /// The releases of this lock that this client has noticed. `None`: the store does not tell, or nobody listens.
    pub(crate) fn releases_seen(&self, name: &Name) -> Option<ReleasesSeen> {
        self.front().extensions().releases?.seen(name)
    }

    /// The clients of the other members of a set. `None`: the client's own store.
    pub(crate) fn hosts(&self) -> Option<&SetHosts> {
        self.members.as_ref().map(|members| &members.hosts)
    }

    /// How long an acquire waits for the clients of the members of a set to connect. Zero: the client's own store, for which
    /// its settings say it.
    pub(crate) fn members_connect_within(&self) -> Duration {
        let members = self.members.as_ref();
        members.map_or(Duration::ZERO, |members| members.connect_within)
    }

    /// How long a set waits for the answer of its slowest member. Zero: the client's own store, which has the response timeout of
    /// the client.
    pub(crate) fn slowest(&self) -> Duration {
        let members = self.members.as_ref();
        members.map_or(Duration::ZERO, |members| members.slowest)
    }

    /// The text that distinguishes a set from a single lock of the same name, and from other sets. Two
    /// sets that were made the same way have the same text.
    pub(crate) fn set(&self) -> Option<&Arc<str>> {
        self.set.as_ref()
    }

    /// Refuses a kind of lock that the store does not have.
    pub(crate) fn need(&self, kind: LockKind) -> Result<()> {
        if self.front().capabilities().has(kind) {
            return Ok(());
        }
        Err(unsupported(kind))
    }

    /// Refuses a lock-delay that the store cannot keep.
    pub(crate) fn need_delay(&self, kind: LockKind, delay: Option<Duration>) -> Result<()> {
        // Only a lock with one holder can have a delay. Each of several holders would leave one that bars the others.
        let has = self.front().capabilities().delays && kind.is_exclusive();
        if has || delay.is_none_or(|delay| delay.is_zero()) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported).because("this store has no lock_delay"))
    }

    /// What changes the number of permits of a semaphore.
    ///
    /// # Errors
    /// `Unsupported` if the store has no semaphores.
    pub(crate) fn permit_counter(&self) -> Result<&dyn PermitCounter> {
        let counter = self.front().extensions().permit_counter;
        counter.ok_or_else(|| unsupported(LockKind::Permits(1)))
    }

    /// The latches or counting semaphores of the store.
    ///
    /// # Errors
    /// `Unsupported` if the store has none.
    pub(crate) fn counts(&self, kind: CountKind) -> Result<&dyn Counts> {
        let counts = self.front().extensions().counts;
        counts.ok_or_else(|| no_counts(kind))
    }

    /// Whether the store keeps a queue position for each waiter of such a lock. Such a waiter bypasses the local queue,
    /// and gives up its position by a withdrawal of its ticket.
    pub(crate) fn queues_in_store(&self, kind: LockKind) -> bool {
        kind.is_queued() || self.front().capabilities().queues || self.queues_permits(kind)
    }

    fn queues_permits(&self, kind: LockKind) -> bool {
        kind.is_permits()
            && self
                .front()
                .extensions()
                .permit_counter
                .is_some_and(PermitCounter::queues)
    }

    /// The waiters of this process that poll, for a store that does not wake them.
    pub(crate) fn polls(&self, timers: &Timers) -> &WakeChannels {
        self.polls
            .get_or_init(|| WakeChannels::new(timers.clone(), |_| {}))
    }

    /// This process has released a lock: wakes one waiter that polls for it, which then need not wait for its next
    /// poll, and tells the local queues. `trip` is how long the release took; `kept` is how long the lock was held.
    pub(crate) fn freed(&self, name: &Name, awaited: Awaited, trip: Duration, kept: Duration) {
        if let Some(polls) = self.polls.get() {
            polls.wake_one(name.as_str());
        }
        if let Some(queues) = &self.queues {
            queues.freed(name, awaited, trip, kept);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
