//! The leader of a local queue: first a task that asks the store, then the leader term that its grant begins.
//!
//! The drop of either passes leadership to the next waiter, so no queue is left without a leader. Each has a number. If
//! the queue has a newer leader, an old number has no effect.

use std::sync::Arc;

use crate::engine::local_queue::queue::{HandOffTarget, HolderTerm, LocalQueues};
use crate::engine::local_queue::waiter::AcquireTerms;
use crate::error::Error;
use crate::store::{BootInstant, Grant, Name, Wake};

/// The leader role of a task: it asks the store for all waiters of the queue. Dropping it calls the next waiter to
/// lead.
pub(crate) struct Leader(Option<LeaderState>);

/// The contents of a leader role.
pub(crate) struct LeaderState {
    pub(crate) queues: Arc<LocalQueues>,
    pub(crate) name: Name,
    /// An old number has no effect on the queue.
    pub(crate) number: u64,
    /// The wake of the former leader.
    pub(crate) wake: Option<Wake>,
    /// This role is new and has not asked yet, so we assume that no waiter has joined.
    pub(crate) alone: bool,
}

impl Leader {
    pub(crate) fn of(leading: LeaderState) -> Self {
        Self(Some(leading))
    }

    /// Gives up the role without a call to the next waiter, and returns the wake.
    pub(crate) fn into_wake(mut self) -> Option<Wake> {
        self.0.take()?.wake
    }

    /// How many fencing tokens to reserve for hand-offs. The first call for a new queue returns 0 without taking the
    /// lock: most locks have no waiter, and the queue was empty a moment ago.
    pub(crate) fn followers(&mut self) -> u32 {
        let Some(LeaderState {
            queues,
            name,
            alone,
            ..
        }) = &mut self.0
        else {
            return 0;
        };
        if std::mem::take(alone) {
            return 0;
        }
        queues.followers(name)
    }

    /// Whether no attempt was sent since the queue began, so that no waiter can know of an error.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.as_ref().is_none_or(|leading| leading.alone)
    }

    /// Takes the wake of the former leader.
    pub(crate) fn take_wake(&mut self) -> Option<Wake> {
        self.0.as_mut()?.wake.take()
    }

    /// Gives the waiters the error that keeps the store from answering. `None`: the store answers again.
    pub(crate) fn last_error(&self, error: Option<&Error>) {
        if let Some(LeaderState { queues, name, .. }) = &self.0 {
            queues.last_error(name, error);
        }
    }

    /// Ends the waits of all waiters with this error: the store has not answered for too long.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(LeaderState { queues, name, .. }) = &self.0 {
            queues.dismiss(name, error);
        }
    }

    /// The store has granted the lock: begins a leader term. The queue keeps the wake for the next leader. `None`:
    /// another task leads by now, so the hold is not handed off.
    pub(crate) fn begin(
        mut self,
        terms: AcquireTerms,
        grant: &Grant,
        wake: Option<Wake>,
    ) -> Option<LeaderTerm> {
        let LeaderState {
            queues,
            name,
            number: own,
            ..
        } = self.0.take()?;
        let now = queues.timers.now();
        let mut inner = queues.lock();
        inner.next += 1;
        let number = inner.next;
        let Some(queue) = inner
            .queues
            .get_mut(&name)
            .filter(|queue| queue.is_led_by(own))
        else {
            // Another task has taken leadership.
            drop(inner);
            return None;
        };
        queue.moves(now);
        let passes = terms.renewed;
        queue.term = Some(HolderTerm {
            number,
            terms,
            since: now,
            left: if passes { queues.rules.times } else { 0 },
            until: now + queues.rules.within,
            tokens: grant.token.map(|token| (token.next(), grant.more)),
        });
        let unused = queue.pass_wake(wake);
        drop(inner);
        drop(unused);
        Some(LeaderTerm(Arc::new(TermId {
            queues,
            name,
            number,
        })))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if let Some(LeaderState {
            queues,
            name,
            number,
            wake,
            ..
        }) = self.0.take()
        {
            let mut inner = queues.lock();
            let led = inner
                .queues
                .get_mut(&name)
                .filter(|queue| queue.is_led_by(number));
            let Some(queue) = led else {
                drop(inner);
                return;
            };
            // Kept in a variable until `call_next` has released the lock: its drop may wake a task.
            let unused = queue.pass_wake(wake);
            queues.call_next(inner, &name);
            drop(unused);
        }
    }
}

/// The leader term of a hold. Drop it after the store was asked to release the hold: the drop calls the next waiter to
/// lead.
#[derive(Debug)]
pub(crate) struct LeaderTerm(Arc<TermId>);

/// Identifies a leader term: the queue and the number. The status of the hold has it too, to end the term on a loss.
#[derive(Debug)]
pub(crate) struct TermId {
    queues: Arc<LocalQueues>,
    name: Name,
    number: u64,
}

impl LeaderTerm {
    /// Takes the next waiter for a hand-off.
    pub(crate) fn next_holder(&self, now: BootInstant) -> Option<HandOffTarget> {
        self.0.queues.next_holder(self, now)
    }

    pub(crate) fn name(&self) -> &Name {
        &self.0.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    pub(crate) fn term_id(&self) -> &Arc<TermId> {
        &self.0
    }
}

impl TermId {
    /// Ends the term and calls the next waiter to lead. Does nothing if the term has ended before.
    pub(crate) fn over(&self) {
        self.queues.over(&self.name, self.number);
    }
}

impl Drop for LeaderTerm {
    fn drop(&mut self) {
        self.0.over();
    }
}
