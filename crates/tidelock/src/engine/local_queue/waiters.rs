//! The waiters of a local queue: what they are told, and how the steward finds queues without progress.
//!
//! Lock order: the lock of the local queues, then the lock of one waiter. Tasks are woken, and unanswered calls
//! dropped, after both are released: a dropped call passes on the leader role or the hold in it, which takes both
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::engine::acquire::request::AcquireRequest;
use crate::engine::local_queue::queue::{LocalQueues, LocalQueuesState};
use crate::engine::local_queue::waiter::Notification;
use crate::engine::runtime::wakes::wake_all;
use crate::error::Error;
use crate::store::{BootInstant, Name, Wake};

/// The waiters behind the leader of one local queue.
#[derive(Default)]
pub(crate) struct Waiters {
    /// By number, which is the order of arrival.
    pub(crate) waiting: BTreeMap<u64, Arc<AcquireRequest>>,
    /// A wake that the store has armed, for the next leader.
    pub(crate) wake: Option<Wake>,
    /// The waiter that was called last.
    pub(crate) called: Option<Arc<AcquireRequest>>,
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
        let mut inner = self.lock();
        let queue = inner.queues.get_mut(name);
        if let Some(waiters) = queue.and_then(|queue| queue.waiters.as_mut())
            && (error.is_some() || waiters.troubled)
        {
            waiters.troubled = error.is_some();
            for request in waiters.waiting.values() {
                request.set_last_error(error.map(Error::retold));
            }
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
        let crowds = inner.queues.values_mut().filter_map(|l| l.waiters.as_mut());
        let mut all: Vec<_> = crowds
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

    /// When the steward looks next. `FAR`: no waiter.
    pub(crate) fn next_check(&self) -> BootInstant {
        self.lock().check_at
    }

    /// Acts on each queue that has made no progress for `patience`: its leader may be a future that is kept and not
    /// polled. Takes back a call that was not answered. If there is none, the next waiter asks the store for itself,
    /// and leads if it is granted the lock. Otherwise one stopped task would lock out all waiters of this process.
    pub(crate) fn check_stalled(&self, now: BootInstant) {
        let mut inner = self.lock();
        if now < inner.check_at {
            return;
        }
        inner.check_at = BootInstant::FAR;
        let (mut late, mut scouts, mut old) = (Vec::new(), Vec::new(), Vec::new());
        let mut waiting = false;
        for (name, queue) in &mut inner.queues {
            let Some(waiters) = &mut queue.waiters else {
                continue;
            };
            let called = waiters
                .called
                .as_ref()
                .is_some_and(|one| one.waiter.is_called());
            waiting |= called || !waiters.waiting.is_empty();
            if now < *waiters.moved.get_or_insert(now) + self.patience {
                continue;
            }
            waiters.moved = Some(now);
            old.extend(waiters.called.take());
            if called && let Some(call) = old.last().and_then(|one| one.waiter.call_off()) {
                late.push((name.clone(), call));
            } else if let Some((_, request)) = waiters.waiting.pop_first() {
                match request.waiter.call(Notification::Probe) {
                    Ok(waker) => {
                        waiters.called = Some(request);
                        scouts.push((name.clone(), waker));
                    }
                    Err(_) => old.push(request),
                }
            }
        }
        if waiting {
            inner.check_at = now + self.patience;
        }
        drop(inner);
        // In the order of names, not of the map. Otherwise a replayed simulation would take another course.
        late.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        scouts.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        // Dropping a call passes the leader role or the hold to the next waiter.
        drop((late, old));
        wake_all(scouts.into_iter().filter_map(|(_, waker)| waker));
    }
}

/// Calls waiters that have left the queue. We call all of them before we wake the first: a woken task may run at once,
/// and what it does must not come between two calls.
fn call_all(all: impl Iterator<Item = Arc<AcquireRequest>>, call: impl Fn() -> Notification) {
    let wakers: Vec<Waker> = all
        .filter_map(|request| request.waiter.call(call()).ok().flatten())
        .collect();
    wake_all(wakers);
}
