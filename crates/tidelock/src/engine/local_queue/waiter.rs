//! One waiter of a local queue, and the notifications it gets.
//!
//! The side that calls removes the waiter from its queue first, then delivers the notification. A waiter that is
//! dropped leaves the queue first, then drops a notification that it has not taken: this passes the leader role or the
//! hold to the next waiter.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::engine::lease::hold::{Hold, Successor};
use crate::engine::local_queue::last_answer::LastAnswer;
use crate::engine::local_queue::leader::{AcquireTerms, Leader, LeaderQueues};
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::wakers::wake_all;
use crate::error::Error;
use crate::store::{BootInstant, Name};

/// A request that waits in a local queue. It lies above the queue, which knows it only by this trait.
pub(crate) trait QueuedRequest: Successor + 'static {
    fn name(&self) -> &Name;

    fn terms(&self) -> &AcquireTerms;

    fn waiter(&self) -> &Waiter;
}

/// The notification that ends a wait.
pub(crate) enum Notification {
    /// Lead the queue: ask the store for all its waiters.
    TakeLeadership(Box<Leader>),
    /// The waiter holds the lock, by hand-off.
    Hold(Arc<Hold>),
    /// Ask the store once, for itself: the queue has made no progress for too long.
    Probe,
    /// Join the queue again: an earlier call was taken back, the hold was lost, or the client was closed.
    JoinAgain,
    /// Give up: the store has not answered for too long.
    Failed(Error),
}

/// The state of a waiter, shared by the task that waits and the side that calls.
#[derive(Default)]
pub(crate) struct Waiter(Mutex<WaiterState>);

#[derive(Default)]
struct WaiterState {
    waker: Option<Waker>,
    /// Delivered, and not taken yet.
    notification: Option<Notification>,
    /// The task does not wait any more. Invariant: no notification is delivered after that.
    left: bool,
    /// Why the last request got no answer. Reported if the wait times out.
    last_error: Option<Error>,
    /// What the store said to the attempts of this waiter itself, not of its leader.
    last_answer: LastAnswer,
}

impl Waiter {
    /// Delivers a notification and returns the task to wake. Wake it after all locks are released: the task may run, or
    /// be dropped, inside the wake. If the waiter has left, returns the notification.
    pub(crate) fn call(&self, notification: Notification) -> Result<Option<Waker>, Notification> {
        let mut state = self.lock();
        if state.left {
            return Err(notification);
        }
        state.notification = Some(notification);
        Ok(state.waker.take())
    }

    /// Delivers a notification and wakes the task. If the waiter has left, drops the notification, which passes the
    /// leader role or the hold in it to the waiter behind. Call it without a lock of the engine.
    pub(crate) fn notify(&self, notification: Notification) {
        match self.call(notification) {
            Ok(waker) => wake_all(waker),
            Err(notification) => drop(notification),
        }
    }

    /// Whether a notification was delivered and not taken yet.
    pub(crate) fn is_called(&self) -> bool {
        self.lock().notification.is_some()
    }

    /// Takes back a notification that was delivered and not taken, and leaves `JoinAgain` in its place. `None`: there
    /// is none that another waiter could get.
    pub(crate) fn call_off(&self) -> Option<Notification> {
        let mut state = self.lock();
        if !matches!(
            state.notification,
            Some(Notification::TakeLeadership(_) | Notification::Hold(_) | Notification::Probe)
        ) {
            return None;
        }
        state.notification.replace(Notification::JoinAgain)
    }

    pub(crate) fn set_last_error(&self, error: Option<Error>) {
        self.lock().last_error = error;
    }

    pub(crate) fn take_last_error(&self) -> Option<Error> {
        self.lock().last_error.take()
    }

    /// An attempt of this request is sent.
    pub(crate) fn asked(&self, now: BootInstant) {
        self.lock().last_answer.asked(now);
    }

    /// An attempt of this request has ended.
    pub(crate) fn answered(&self, held: bool, now: BootInstant) {
        self.lock().last_answer.answered(held, now);
    }

    pub(crate) fn last_answer(&self) -> LastAnswer {
        self.lock().last_answer
    }

    /// Takes over what another request for the same lock was told.
    pub(crate) fn set_last_answer(&self, last: LastAnswer) {
        self.lock().last_answer = last;
    }

    /// Refuses all later notifications, and returns one that was not taken.
    fn leave(&self) -> Option<Notification> {
        let mut state = self.lock();
        state.left = true;
        let waker = state.waker.take();
        let notification = state.notification.take();
        drop(state);
        drop(waker); // not under the lock: it may be the last reference to a task
        notification
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.0.lock()
    }
}

/// The future of a waiter: resolves to its notification. Dropping it leaves the queue, and passes a notification that
/// was not taken to the next waiter.
pub(crate) struct WaiterFuture<R: QueuedRequest> {
    queues: Arc<dyn LeaderQueues>,
    number: u64,
    request: Arc<R>,
    /// The notification was taken. The side that delivered it has removed the waiter from the queue before, so the drop
    /// does nothing.
    notified: bool,
}

impl<R: QueuedRequest> WaiterFuture<R> {
    pub(crate) fn new(queues: Arc<dyn LeaderQueues>, number: u64, request: &Arc<R>) -> Self {
        Self {
            queues,
            number,
            request: Arc::clone(request),
            notified: false,
        }
    }

    pub(crate) fn request(&self) -> &Arc<R> {
        &self.request
    }

    /// Its position: the queue is ordered by this number. A waiter that joins again keeps it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl<R: QueuedRequest> Future for WaiterFuture<R> {
    type Output = Notification;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Notification> {
        let Self {
            request, notified, ..
        } = self.get_mut();
        let mut state = request.waiter().lock();
        if let Some(notification) = state.notification.take() {
            *notified = true;
            return Poll::Ready(notification);
        }
        if state
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            return Poll::Pending;
        }
        let old = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(old); // not under the lock, as in `leave`
        Poll::Pending
    }
}

impl<R: QueuedRequest> Drop for WaiterFuture<R> {
    fn drop(&mut self) {
        if self.notified {
            return;
        }
        self.queues.forget(self.request.name(), self.number);
        // After the waiter has left the queue. Otherwise the leader role or the hold in the notification could come
        // back to it.
        drop(self.request.waiter().leave());
    }
}
