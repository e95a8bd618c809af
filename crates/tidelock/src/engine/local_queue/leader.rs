//! The leader of a local queue: a task that asks the store for all waiters. Its grant begins a
//! [leader term](LeaderTerm).
//!
//! The drop of either passes leadership to the next waiter, so no queue is left without a leader. Each has a number. If
//! the queue has a newer leader, an old number has no effect.

use std::sync::Arc;

use crate::engine::lease::leader_term::LeaderTerm;
use crate::engine::local_queue::queue::{LocalQueues, TermLimits};
use crate::engine::local_queue::waiter::AcquireTerms;
use crate::error::Error;
use crate::store::{Grant, Name, Wake};

/// The leader role of a task: it asks the store for all waiters of the queue. Dropping it calls the next waiter to
/// lead.
pub(crate) struct Leader {
    /// `None`: the role was given up, and the drop does nothing.
    queues: Option<Arc<LocalQueues>>,
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
        queues: Option<Arc<LocalQueues>>,
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
    pub(crate) fn of_new_queue(queues: Arc<LocalQueues>, name: &Name, number: u64) -> Self {
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
        queues.map_or(0, |queues| queues.asks(&self.name))
    }

    /// The store has refused the attempt: another owner holds the lock.
    pub(crate) fn refused(&self) {
        if let Some(queues) = &self.queues {
            queues.refused(&self.name);
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
            queues.last_error(&self.name, error);
        }
    }

    /// Ends the waits of all waiters with this error: the store has not answered for too long.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(queues) = &self.queues {
            queues.dismiss(&self.name, error);
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
        let now = queues.timers.now();
        let mut inner = queues.lock();
        inner.next += 1;
        let number = inner.next;
        let Some(queue) = inner
            .queues
            .get_mut(&self.name)
            .filter(|queue| queue.is_led_by(self.number))
        else {
            // Another task has taken leadership.
            drop(inner);
            return None;
        };
        queue.moves(now);
        queue.term = Some(TermLimits {
            number,
            terms,
            since: now,
            left: if terms.renewed { queues.rules.times } else { 0 },
            until: now + queues.rules.within,
            tokens: grant.token.map(|token| (token.next(), grant.more)),
        });
        let unused = queue.pass_wake(wake);
        drop(inner);
        drop(unused);
        Some(LeaderTerm::new(queues, self.name.clone(), number))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(queues) = self.queues.take() else {
            return;
        };
        let mut inner = queues.lock();
        let led = inner
            .queues
            .get_mut(&self.name)
            .filter(|queue| queue.is_led_by(self.number));
        let Some(queue) = led else {
            drop(inner);
            return;
        };
        // Kept in a variable until `call_next` has released the lock: its drop may wake a task.
        let unused = queue.pass_wake(self.wake.take());
        queues.call_next(inner, &self.name);
        drop(unused);
    }
}
