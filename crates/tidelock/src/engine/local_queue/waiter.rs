//! One waiter of a local queue, and the notifications it gets.
//!
//! The side that calls removes the waiter from its queue first, then delivers the call. A waiter that is dropped leaves
//! the queue first, then drops a call that it has not taken: this passes the leader role or the hold to the next
//! waiter.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::engine::acquire::request::AcquireRequest;
use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::leader::Leader;
use crate::error::Error;
use crate::store::LockKind;

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
    call: Option<Notification>,
    /// The task does not wait any more. Invariant: no call is delivered after that.
    left: bool,
}

impl Waiter {
    /// Delivers a call and returns the task to wake. Wake it after all locks are released: the task may run, or be
    /// dropped, inside the wake. If the waiter has left, returns the call.
    pub(crate) fn call(&self, call: Notification) -> Result<Option<Waker>, Notification> {
        let mut state = self.lock();
        if state.left {
            return Err(call);
        }
        state.call = Some(call);
        Ok(state.waker.take())
    }

    /// Whether a call was delivered and not taken yet.
    pub(crate) fn is_called(&self) -> bool {
        self.lock().call.is_some()
    }

    /// Takes back a call that was delivered and not taken, and leaves `JoinAgain` in its place. `None`: there is no call
    /// that another waiter could get.
    pub(crate) fn call_off(&self) -> Option<Notification> {
        let mut state = self.lock();
        if !matches!(
            state.call,
            Some(Notification::TakeLeadership(_) | Notification::Hold(_) | Notification::Probe)
        ) {
            return None;
        }
        state.call.replace(Notification::JoinAgain)
    }

    /// Refuses all later calls, and returns one that was not taken.
    fn leave(&self) -> Option<Notification> {
        let mut state = self.lock();
        state.left = true;
        let waker = state.waker.take();
        let call = state.call.take();
        drop(state);
        drop(waker); // not under the lock: it may be the last reference to a task
        call
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of a waiter: resolves to its call. Dropping it leaves the queue, and passes a call that was not taken to
/// the next waiter.
pub(crate) struct WaiterFuture {
    number: u64,
    request: Arc<AcquireRequest>,
    /// The call was taken. The calling side has removed the waiter from the queue before, so the drop does nothing.
    called: bool,
}

impl WaiterFuture {
    pub(crate) fn new(number: u64, request: Arc<AcquireRequest>) -> Self {
        Self {
            number,
            request,
            called: false,
        }
    }

    pub(crate) fn request(&self) -> &Arc<AcquireRequest> {
        &self.request
    }

    /// Its position: the queue is ordered by this number. A waiter that joins again keeps it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Future for WaiterFuture {
    type Output = Notification;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Notification> {
        let Self {
            request, called, ..
        } = self.get_mut();
        let mut state = request.waiter.lock();
        if let Some(call) = state.call.take() {
            *called = true;
            return Poll::Ready(call);
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

impl Drop for WaiterFuture {
    fn drop(&mut self) {
        if self.called {
            return;
        }
        if let Some(queues) = self.request.context.store.queues() {
            queues.forget(&self.request.name, self.number);
        }
        // After the waiter has left the queue. Otherwise the leader role or the hold in the call could come back to it.
        drop(self.request.waiter.leave());
    }
}
