//! Where a task sits while it waits for its turn within this process, and how it is called.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acknowledge::Acknowledge;
use crate::backend::Kind;
use crate::core::caller::Caller;
use crate::core::hold::Hold;
use crate::core::lead::Lead;
use crate::error::Error;

/// What was asked for. A hold passes on only to a task that asked for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) kind: Kind,
    pub(crate) lease: Duration,
    pub(crate) renewed: bool,
    pub(crate) wish: Acknowledge,
    /// How long the lock is to be nobody's after an end without a release.
    pub(crate) delay: Duration,
}

/// How a task that waits is called.
pub(crate) enum Call {
    /// To ask the store, for all that wait here.
    Lead(Box<Lead>),
    /// It holds the lock.
    Hold(Arc<Hold>),
    /// To ask the store for itself: nothing has happened for long.
    Scout,
    /// To take a place anew: it did not come when it was called.
    Again,
    /// To give up: the store has not answered for too long.
    Failed(Error),
}

/// A seat in the line.
#[derive(Default)]
pub(crate) struct Seat(Mutex<State>);

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    call: Option<Call>,
    left: bool,
}

impl Seat {
    /// Calls it. Gives back whom to wake, once no lock is held: a task may run or be dropped inside of its wake-up. Gives
    /// back the call itself if nobody sits here any more.
    pub(super) fn call(&self, call: Call) -> Result<Option<Waker>, Call> {
        let mut state = self.lock();
        if state.left {
            return Err(call);
        }
        state.call = Some(call);
        Ok(state.waker.take())
    }

    /// It was called, and has not come yet.
    pub(super) fn is_called(&self) -> bool {
        self.lock().call.is_some()
    }

    /// Takes a call back that was not answered.
    pub(super) fn call_off(&self) -> Option<Call> {
        let mut state = self.lock();
        if !matches!(
            state.call,
            Some(Call::Lead(_) | Call::Hold(_) | Call::Scout)
        ) {
            return None;
        }
        state.call.replace(Call::Again)
    }

    fn leave(&self) -> Option<Call> {
        let mut state = self.lock();
        state.left = true;
        let waker = state.waker.take();
        let call = state.call.take();
        drop(state);
        drop(waker); // not under the lock: it may be the last that keeps a task
        call
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's place in line. Dropped, it leaves the line, and what it had been called for goes to the next.
pub(crate) struct Place {
    number: u64,
    caller: Arc<Caller>,
    /// Whoever calls takes it out of the line first: then there is nothing left to leave.
    called: bool,
}

impl Place {
    pub(super) fn new(number: u64, caller: Arc<Caller>) -> Self {
        Self {
            number,
            caller,
            called: false,
        }
    }

    pub(super) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Its place in the order in which they came.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Future for Place {
    type Output = Call;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Call> {
        let Self { caller, called, .. } = self.get_mut();
        let mut state = caller.seat.lock();
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
        drop(old);
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.called {
            return;
        }
        if let Some(lines) = self.caller.base.site.lines() {
            lines.forget(&self.caller.name, self.number);
        }
        // Out of the line first: a lock that is handed on from here must not come back.
        drop(self.caller.seat.leave());
    }
}
