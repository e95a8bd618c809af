//! An acquisition in its caller's hands: what is checked before it starts, and what happens to it when the caller leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::backend::{BoxFuture, Kind, Name};
use crate::core::caller::Caller;
use crate::core::drive::Loop;
use crate::core::entering::{Entering, Outcome};
use crate::core::rt;
use crate::core::steward::Chore;
use crate::core::timers::Timer;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Cancel;

/// An acquisition: lazy, `Send`, and left at any moment without a trace. `None`: not free, and the caller only wanted to know.
///
/// Every way of leaving (dropped, out of time, cancelled) is one path, [`leave`](Self::leave).
pub(crate) struct Acquisition {
    state: State,
    /// `None`: it was refused before there was anything to do.
    caller: Option<Arc<Caller>>,
    deadline: Option<Timer>,
    cancel: Option<BoxFuture<'static, ()>>,
}

enum State {
    Refused(Error),
    Lazy,
    Running(Entering),
    /// With the name, where the lock was not free.
    Done(Option<Name>),
}

impl Acquisition {
    pub(crate) fn of(caller: Result<Caller>) -> Self {
        let (state, caller) = match caller {
            Ok(caller) => (State::Lazy, Some(Arc::new(caller))),
            Err(error) => (State::Refused(error), None),
        };
        Self {
            state,
            caller,
            deadline: None,
            cancel: None,
        }
    }

    /// Checks everything that needs no traffic, and makes the loop.
    fn start(&mut self) -> Result<Entering> {
        let Some(caller) = &self.caller else {
            return Err(Error::new(ErrorKind::InvalidName));
        };
        check(caller)?;
        let options = &caller.options;
        // Zero asks once: the answer is bounded by the response timeout, not by a deadline.
        self.deadline = options
            .wait
            .filter(|wait| !wait.is_zero())
            .map(|wait| caller.base.core.timers.after(wait));
        self.cancel = options
            .cancel
            .clone()
            .map(|cancel| Box::pin(Cancel::fired(cancel)) as _);
        let caller = Arc::clone(caller);
        Ok(Loop { caller }.enter())
    }

    /// Stops waiting. What is on its way is finished by the steward, and a lock that comes of it is released there.
    fn leave(&mut self) {
        let (state, Some(caller)) = (
            std::mem::replace(&mut self.state, State::Done(None)),
            &self.caller,
        ) else {
            return;
        };
        if let State::Running(rest) = state {
            caller.gone.store(true, Ordering::SeqCst);
            if caller.in_flight.load(Ordering::SeqCst) {
                let work = Box::pin(async move { drop(rest.await) });
                caller.base.core.steward.send(Chore::Adopt(work));
            }
        }
    }

    /// Why the caller should stop waiting now.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        if let Some(cancel) = &mut self.cancel
            && cancel.as_mut().poll(cx).is_ready()
        {
            return Some(Error::new(ErrorKind::Cancelled));
        }
        let over = Pin::new(self.deadline.as_mut()?).poll(cx).is_ready();
        over.then(|| Some(self.caller.as_ref()?.out_of_time()))?
    }

    /// Not free, for a caller that had no time to wait.
    pub(crate) fn not_free(&self) -> Error {
        let error = Error::new(ErrorKind::TimedOut);
        match &self.state {
            State::Done(Some(name)) => error.on_lock(name),
            _ => error,
        }
    }

    /// Whoever keeps it when it is done keeps nothing of the client.
    fn finish(&mut self, result: Outcome) -> Poll<Outcome> {
        let caller = self.caller.take();
        let name = caller.as_ref().filter(|_| matches!(result, Ok(None)));
        self.state = State::Done(name.map(|caller| caller.name.clone()));
        (self.deadline, self.cancel) = (None, None);
        Poll::Ready(result.map_err(|error| match caller {
            Some(caller) => error.on_lock(&caller.name),
            None => error,
        }))
    }
}

/// What needs no traffic.
fn check(caller: &Caller) -> Result<()> {
    let (core, site, options) = (&caller.base.core, &caller.base.site, &caller.options);
    core.refuse_if_closed()?;
    rt::need_runtime()?;
    if caller.terms.kind == Kind::Fenced && !site.front().capabilities().tokens {
        return Err(Error::new(ErrorKind::Unsupported)
            .because("this store cannot count, so it has no fencing tokens"));
    }
    // For locks of one holder: of several each would leave a delay that bars the others.
    if options.lock_delay.is_some_and(|delay| !delay.is_zero())
        && !(site.front().capabilities().delays
            && matches!(caller.terms.kind, Kind::Mutex | Kind::Fenced))
    {
        return Err(Error::new(ErrorKind::Unsupported)
            .because("this store cannot keep a lock back after its hold has ended (lock_delay)"));
    }
    if options.cancel.as_ref().is_some_and(Cancel::is_fired) {
        return Err(Error::new(ErrorKind::Cancelled));
    }
    Ok(())
}

impl Future for Acquisition {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let State::Refused(_) | State::Lazy = self.state {
            let begun = match std::mem::replace(&mut self.state, State::Done(None)) {
                State::Refused(error) => Err(error),
                _ => self.start(),
            };
            match begun {
                Ok(rest) => self.state = State::Running(rest),
                Err(error) => return self.finish(Err(error)),
            }
        }
        let State::Running(rest) = &mut self.state else {
            return Poll::Ready(Err(
                Error::new(ErrorKind::Cancelled).because("polled again after it was done")
            ));
        };
        if let Poll::Ready(result) = Pin::new(rest).poll(cx) {
            return self.finish(result);
        }
        match self.poll_departure(cx) {
            Some(error) => {
                self.leave();
                self.finish(Err(error))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.leave();
    }
}
