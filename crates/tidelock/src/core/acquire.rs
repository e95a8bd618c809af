//! An acquisition in its caller's hands: what is checked before it starts, and what happens to it when the caller leaves.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::{BoxFuture, Kind, Name};
use crate::core::caller::Caller;
use crate::core::drive::{Entering, Loop};
use crate::core::hold::Hold;
use crate::core::rt;
use crate::core::site::Base;
use crate::core::steward::Chore;
use crate::core::timers::Timer;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{AcquireOptions, Cancel, Term};

/// Everything that is known before the first byte is sent.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) base: Arc<Base>,
    pub(crate) kind: Kind,
    pub(crate) name: Result<Name, Option<Error>>,
    pub(crate) options: AcquireOptions,
    pub(crate) place: &'static Location<'static>,
}

/// An acquisition: lazy, `Send`, and left at any moment without a trace. `None`: not free, and the caller only wanted to know.
///
/// Every way of leaving (dropped, out of time, cancelled) is one path, [`leave`](Self::leave).
pub(crate) struct Acquisition {
    state: State,
    name: Option<Name>,
    only_asks: bool,
    caller: Arc<Caller>,
    deadline: Option<Timer>,
    cancel: Option<BoxFuture<'static, ()>>,
}

enum State {
    Lazy(Box<Plan>),
    Running { base: Arc<Base>, rest: Entering },
    Done,
}

impl Acquisition {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            name: plan.name.as_ref().ok().cloned(),
            only_asks: plan.options.wait.is_some_and(|wait| wait.is_zero()),
            state: State::Lazy(Box::new(plan)),
            caller: Arc::default(),
            deadline: None,
            cancel: None,
        }
    }

    /// Checks everything that needs no traffic, and makes the loop.
    fn start(&mut self, plan: Plan) -> Result<()> {
        let Plan {
            base,
            kind,
            name,
            options,
            place,
        } = plan;
        let Base { core, site } = &*base;
        let name =
            name.map_err(|error| error.unwrap_or_else(|| Error::new(ErrorKind::InvalidName)))?;
        let check = || -> Result<Term> {
            core.refuse_if_closed()?;
            rt::need_runtime()?;
            if kind == Kind::Fenced && !site.front().capabilities().tokens {
                return Err(Error::new(ErrorKind::Unsupported)
                    .because("this store cannot count, so it has no fencing tokens"));
            }
            // For locks of one holder: of several each would leave a delay that bars the others.
            if options.lock_delay.is_some_and(|delay| !delay.is_zero())
                && !(site.front().capabilities().delays
                    && matches!(kind, Kind::Mutex | Kind::Fenced))
            {
                return Err(Error::new(ErrorKind::Unsupported).because(
                    "this store cannot keep a lock back after its hold has ended (lock_delay)",
                ));
            }
            if options.cancel.as_ref().is_some_and(Cancel::is_fired) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
            options.term(core.settings.lease, &core.settings.drift)
        };
        let term = check().map_err(|error| error.on_lock(&name))?;
        // Zero asks once: the answer is bounded by the response timeout, not by a deadline.
        self.deadline = options
            .wait
            .filter(|wait| !wait.is_zero())
            .map(|wait| core.timers.after(wait));
        self.cancel = options
            .cancel
            .clone()
            .map(|cancel| Box::pin(Cancel::fired(cancel)) as _);
        let patience = options.wait.unwrap_or(Duration::MAX);
        let one = Loop {
            base: Arc::clone(&base),
            kind,
            name: name.clone(),
            term,
            patience,
            place,
            options,
            caller: Arc::clone(&self.caller),
        };
        self.state = State::Running {
            base,
            rest: one.enter(),
        };
        Ok(())
    }

    /// Stops waiting. What is on its way is finished by the steward, and a lock that comes of it is released there.
    fn leave(&mut self) {
        self.caller.gone.store(true, Ordering::SeqCst);
        if let State::Running { base, rest, .. } = std::mem::replace(&mut self.state, State::Done)
            && self.caller.in_flight.load(Ordering::SeqCst)
        {
            base.core
                .steward
                .send(Chore::Adopt(Box::pin(async move { drop(rest.await) })));
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
        over.then(|| self.caller.out_of_time(self.only_asks))
    }

    /// Not free, for a caller that had no time to wait.
    pub(crate) fn not_free(&self) -> Error {
        self.named(Error::new(ErrorKind::TimedOut))
    }

    fn named(&self, error: Error) -> Error {
        match &self.name {
            Some(name) => error.on_lock(name),
            None => error,
        }
    }
}

impl Future for Acquisition {
    type Output = Result<Option<Arc<Hold>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if matches!(self.state, State::Lazy(_))
            && let State::Lazy(plan) = std::mem::replace(&mut self.state, State::Done)
            && let Err(error) = self.start(*plan)
        {
            return Poll::Ready(Err(error));
        }
        let State::Running { rest, .. } = &mut self.state else {
            return Poll::Ready(Err(
                Error::new(ErrorKind::Cancelled).because("polled again after it was done")
            ));
        };
        if let Poll::Ready(result) = rest.as_mut().poll(cx) {
            self.state = State::Done;
            return Poll::Ready(result.map_err(|error| self.named(error)));
        }
        match self.poll_departure(cx) {
            Some(error) => {
                self.leave();
                Poll::Ready(Err(self.named(error)))
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
