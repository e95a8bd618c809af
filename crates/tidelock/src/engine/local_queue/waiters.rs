//! The waiters of a local queue: what they are told.
//!
//! Lock order: the lock of the local queues, then the lock of one waiter. We wake tasks and drop notifications that
//! were not taken after both are released: a dropped notification passes on the leader role or the hold in it, which
//! takes both again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::engine::local_queue::queue::{LocalQueues, LocalQueuesState};
use crate::engine::local_queue::waiter::{Notification, QueuedRequest};
use crate::engine::runtime::wakes::wake_all;
use crate::error::Error;
use crate::store::{BootInstant, Name, Wake};

/// The waiters behind the leader of one local queue.
#[derive(Default)]
pub(crate) struct Waiters {
    /// By number, which is the order of arrival.
    pub(crate) waiting: BTreeMap<u64, Arc<dyn QueuedRequest>>,
    /// A wake that the store has armed, for the next leader.
    pub(crate) wake: Option<Wake>,
    /// The waiter that was called last.
    pub(crate) called: Option<Arc<dyn QueuedRequest>>,
    /// When this queue last made progress: it called a waiter, or its leader was granted the lock.
    pub(crate) moved: Option<BootInstant>,
    /// The waiters have an error of the store, which must be cleared once it answers.
    pub(crate) troubled: bool,
}

impl Waiters {
    pub(crate) fn since(now: BootInstant) -> Box<Self> {
        Box::new(Self {
            moved: Some(now),
            ..Self::default()
        })
    }
}

impl LocalQueues {
    /// Gives all waiters the error that keeps the store from answering: a wait that times out then reports the cause.
    /// `None`: the store answers again.
    pub(crate) fn last_error(&self, name: &Name, error: Option<&Error>) {
        let now = self.timers.now();
        let mut inner = self.lock();
        let Some(queue) = inner.queues.get_mut(name) else {
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

    /// The store has refused the attempt of the leader: another owner holds the lock.
    pub(crate) fn refused(&self, name: &Name) {
        let now = self.timers.now();
        if let Some(queue) = self.lock().queues.get_mut(name) {
            queue.last_answer.answered(true, now);
        }
    }

    /// Ends all waits with this error: the store has not answered for too long.
    pub(crate) fn dismiss(&self, name: &Name, error: &Error) {
        let mut inner = self.lock();
        let queue = inner.queues.get_mut(name);
        let Some(waiters) = queue.and_then(|queue| queue.waiters.as_mut()) else {
            return;
        };
        let all = std::mem::take(&mut waiters.waiting);
        drop(inner);
        call_all(all.into_values(), || Notification::Failed(error.retold()));
    }

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

    /// Schedules a look of the steward after `patience`, unless one is scheduled.
    pub(crate) fn schedule_check(&self, inner: &mut LocalQueuesState, now: BootInstant) {
        if inner.check_at == BootInstant::FAR {
            inner.check_at = now + self.patience;
            self.notify.notify_one();
        }
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
