//! What a leader and a waiter do to their queue, and what the waiters are told.
//!
//! Lock order: the lock of the local queues, then the lock of one waiter. We wake tasks and drop notifications that
//! were not taken after both are released: a dropped notification passes on the leader role or the hold in it, which
//! takes both again.

use std::sync::Arc;
use std::task::Waker;

use crate::engine::lease::leader_term::LeaderTerm;
use crate::engine::local_queue::leader::{GrantedTerm, LeaderQueues};
use crate::engine::local_queue::queue::{LocalQueue, LocalQueues, LocalQueuesState, TermLimits};
use crate::engine::local_queue::waiter::{Notification, QueuedRequest};
use crate::engine::runtime::wakers::wake_all;
use crate::error::Error;
use crate::store::{Name, Wake};

impl LeaderQueues for LocalQueues {
    fn asks(&self, name: &Name, leader: u64) -> u32 {
        let now = self.timers.now();
        let mut inner = self.lock();
        let Some(queue) = inner.led_by(name, leader) else {
            return 0;
        };
        queue.last_answer.asked(now);
        if queue.waits() { self.rules.times } else { 0 }
    }

    fn refused(&self, name: &Name, leader: u64) {
        let now = self.timers.now();
        if let Some(queue) = self.lock().led_by(name, leader) {
            queue.last_answer.answered(true, now);
        }
    }

    fn last_error(&self, name: &Name, leader: u64, error: Option<&Error>) {
        let now = self.timers.now();
        let mut inner = self.lock();
        let Some(queue) = inner.led_by(name, leader) else {
            return;
        };
        if error.is_some() {
            // For waiters that join before the next attempt.
            queue.last_answer.answered(false, now);
        }
        if let Some(waiters) = queue.waiters.as_mut()
            && (error.is_some() || waiters.troubled)
        {
            waiters.troubled = error.is_some();
            for request in waiters.waiting.values() {
                request.waiter().set_last_error(error.map(Error::retold));
            }
        }
    }

    fn dismiss(&self, name: &Name, leader: u64, error: &Error) {
        let mut inner = self.lock();
        let queue = inner.led_by(name, leader);
        let Some(waiters) = queue.and_then(|queue| queue.waiters.as_mut()) else {
            return;
        };
        let all = std::mem::take(&mut waiters.waiting);
        drop(inner);
        call_all(all.into_values(), || Notification::Failed(error.retold()));
    }

    fn begin(
        self: Arc<Self>,
        name: &Name,
        leader: u64,
        granted: GrantedTerm,
    ) -> Option<Arc<LeaderTerm>> {
        let GrantedTerm {
            terms,
            tokens,
            wake,
        } = granted;
        let now = self.timers.now();
        let mut inner = self.lock();
        let reached = |least| tokens.is_some_and(|(next, _)| next > least);
        if inner.raised.get(name).copied().is_some_and(reached) {
            inner.raised.remove(name);
        }
        let Some(queue) = inner
            .queues
            .get_mut(name)
            .filter(|queue| queue.is_led_by(leader))
        else {
            // Another task has taken leadership.
            drop(inner);
            return None;
        };
        queue.moves(now);
        // The number of the leader is that of the term: a leader begins at most one.
        queue.term = Some(TermLimits {
            number: leader,
            terms,
            since: now,
            left: if terms.renewed { self.rules.times } else { 0 },
            until: now + self.rules.within,
            tokens,
        });
        let unused = queue.pass_wake(wake);
        drop(inner);
        drop(unused);
        Some(LeaderTerm::new(self, name.clone(), leader))
    }

    fn leave(&self, name: &Name, leader: u64, wake: Option<Wake>) {
        let mut inner = self.lock();
        let led = inner
            .queues
            .get_mut(name)
            .filter(|queue| queue.is_led_by(leader));
        let Some(queue) = led else {
            drop(inner);
            return;
        };
        // Kept in a variable until `call_next` has released the lock: its drop may wake a task.
        let unused = queue.pass_wake(wake);
        self.call_next(inner, name);
        drop(unused);
    }

    fn forget(&self, name: &Name, waiter: u64) {
        let mut inner = self.lock();
        let queue = inner.queues.get_mut(name);
        let waiters = queue.and_then(|queue| queue.waiters.as_mut());
        let request = waiters.and_then(|waiters| waiters.waiting.remove(&waiter));
        drop(inner);
        drop(request);
    }
}

impl LocalQueuesState {
    /// The queue, if the task with that number leads it. What a task that was passed over is told must not reach the
    /// waiters of another leader, which may have the lock.
    fn led_by(&mut self, name: &Name, leader: u64) -> Option<&mut LocalQueue> {
        let queue = self.queues.get_mut(name);
        queue.filter(|queue| queue.is_led_by(leader))
    }
}

impl LocalQueues {
    /// The client is closed. Calls every waiter, which then finds out.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        let queues = inner.queues.values_mut();
        let mut all: Vec<_> = queues
            .filter_map(|queue| queue.waiters.as_mut())
            .flat_map(|waiters| std::mem::take(&mut waiters.waiting))
            .collect();
        drop(inner);
        // In the order of arrival, across all names.
        all.sort_unstable_by_key(|(number, _)| *number);
        call_all(all.into_iter().map(|(_, request)| request), || {
            Notification::JoinAgain
        });
    }
}

/// Calls waiters that have left the queue. We call all of them before we wake the first: a woken task may run at once,
/// and what it does must not come between two calls.
fn call_all(
    all: impl Iterator<Item = Arc<dyn QueuedRequest>>,
    notification: impl Fn() -> Notification,
) {
    let wakers: Vec<Waker> = all
        .filter_map(|request| request.waiter().call(notification()).ok().flatten())
        .collect();
    wake_all(wakers);
}
