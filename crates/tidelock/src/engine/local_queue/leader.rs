//! The leader of a local queue: a task that asks the store for all waiters. Its grant begins a
//! [leader term](LeaderTerm).
//!
//! The drop of either passes leadership to the next waiter, so no queue is left without a leader. Each has a number. If
//! the queue has a newer leader, an old number has no effect.

use std::sync::Arc;
use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::engine::lease::leader_term::LeaderTerm;
use crate::error::Error;
use crate::store::{Grant, LockKind, Name, Wake};
use crate::types::FencingToken;

/// What was asked for. A hold is handed only to a waiter that asked for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcquireTerms {
    pub(crate) kind: LockKind,
    pub(crate) lease: Duration,
    pub(crate) renewed: bool,
    pub(crate) wish: ReplicaAck,
    /// How long no client gets the lock after the hold ends without a release.
    pub(crate) delay: Duration,
}

/// The local queues, as a leader and a waiter know them: both lie below the queues. The number of a leader that was
/// replaced has no effect: its waiters rely on the new one.
pub(crate) trait LeaderQueues: Send + Sync {
    /// The leader sends an attempt. Returns how many fencing tokens to reserve for hand-offs: zero if nobody waits now.
    fn asks(&self, name: &Name, leader: u64) -> u32;

    /// The store has refused the attempt of the leader: another owner holds the lock.
    fn refused(&self, name: &Name, leader: u64);

    /// Gives all waiters the error that keeps the store from answering: a wait that times out then reports the cause.
    /// `None`: the store answers again.
    fn last_error(&self, name: &Name, leader: u64, error: Option<&Error>);

    /// Ends all waits with this error: the store has not answered for too long.
    fn dismiss(&self, name: &Name, leader: u64, error: &Error);

    /// Begins a leader term, if the task with that number leads.
    fn begin(
        self: Arc<Self>,
        name: &Name,
        leader: u64,
        granted: GrantedTerm,
    ) -> Option<Arc<LeaderTerm>>;

    /// The task with that number leads no more: calls the next waiter to lead, with the wake. An old number has no
    /// effect.
    fn leave(&self, name: &Name, leader: u64, wake: Option<Wake>);

    /// Removes a waiter that has left.
    fn forget(&self, name: &Name, waiter: u64);
}

/// What a grant brings into a leader term.
pub(crate) struct GrantedTerm {
    pub(crate) terms: AcquireTerms,
    /// The first reserved fencing token, and how many are reserved. `None`: a lock without tokens.
    pub(crate) tokens: Option<(FencingToken, u32)>,
    /// The queue keeps it for the next leader.
    pub(crate) wake: Option<Wake>,
}

/// The leader role of a task: it asks the store for all waiters of the queue. Dropping it calls the next waiter to
/// lead.
pub(crate) struct Leader {
    /// `None`: the role was given up, and the drop does nothing.
    queues: Option<Arc<dyn LeaderQueues>>,
    name: Name,
    /// An old number has no effect on the queue.
    number: u64,
    /// The wake of the former leader.
    wake: Option<Wake>,
    /// This role is new and has not asked yet, so we assume that no waiter has joined.
    alone: bool,
}

impl Leader {
    pub(crate) fn new(
        queues: Option<Arc<dyn LeaderQueues>>,
        name: &Name,
        number: u64,
        wake: Option<Wake>,
    ) -> Self {
        Self {
            queues,
            name: name.clone(),
            number,
            wake,
            alone: false,
        }
    }

    /// The leader of a new queue, which has no waiter yet.
    pub(crate) fn of_new_queue(queues: Arc<dyn LeaderQueues>, name: &Name, number: u64) -> Self {
        let mut leader = Self::new(Some(queues), name, number, None);
        leader.alone = true;
        leader
    }

    /// Gives up the role without a call to the next waiter, and returns the wake.
    pub(crate) fn give_up(mut self) -> Option<Wake> {
        self.queues = None;
        self.wake.take()
    }

    /// Sends an attempt. Returns how many fencing tokens to reserve for hand-offs. The first call for a new queue
    /// returns 0 without taking the lock: most locks have no waiter, and the queue was empty a moment ago.
    pub(crate) fn asks(&mut self) -> u32 {
        if std::mem::take(&mut self.alone) {
            return 0;
        }
        let queues = self.queues.as_ref();
        queues.map_or(0, |queues| queues.asks(&self.name, self.number))
    }

    /// The store has refused the attempt: another owner holds the lock.
    pub(crate) fn refused(&self) {
        if let Some(queues) = &self.queues {
            queues.refused(&self.name, self.number);
        }
    }

    /// Whether no attempt was sent since the queue began, so that no waiter can know of an error.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Takes the wake of the former leader.
    pub(crate) fn take_wake(&mut self) -> Option<Wake> {
        self.wake.take()
    }

    /// Gives the waiters the error that keeps the store from answering. `None`: the store answers again.
    pub(crate) fn last_error(&self, error: Option<&Error>) {
        if let Some(queues) = &self.queues {
            queues.last_error(&self.name, self.number, error);
        }
    }

    /// Ends the waits of all waiters with this error: the store has not answered for too long.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(queues) = &self.queues {
            queues.dismiss(&self.name, self.number, error);
        }
    }

    /// The store has granted the lock: begins a leader term. The queue keeps the wake for the next leader. `None`:
    /// another task leads by now, so the hold is not handed off.
    pub(crate) fn begin(
        mut self,
        terms: AcquireTerms,
        grant: &Grant,
        wake: Option<Wake>,
    ) -> Option<Arc<LeaderTerm>> {
        let queues = self.queues.take()?;
        queues.begin(
            &self.name,
            self.number,
            GrantedTerm {
                terms,
                tokens: grant.token.map(|token| (token.next(), grant.more)),
                wake,
            },
        )
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(queues) = self.queues.take() else {
            return;
        };
        queues.leave(&self.name, self.number, self.wake.take());
    }
}
