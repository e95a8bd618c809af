//! The future that an acquire call returns: the checks before it starts, and the one exit path.

use crate::engine::runtime::sync::atomic::Ordering;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::engine::acquire::observation::Observation;
use crate::engine::acquire::path::AcquirePath;
use crate::engine::acquire::request::{AcquireRequest, AcquireResult};
use crate::engine::lease::steward::StewardCommand;
use crate::engine::runtime::background;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::engine::runtime::timers::Timer;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BoxFuture, Name};

/// A lazy, `Send` acquire future. `None`: the lock is not free, and the wait is zero.
///
/// It is cancel-safe. A drop, a timeout and a cancel all take one path, [`leave`](Self::leave), and leave no lock
/// behind.
pub(crate) struct Acquisition {
    state: AcquisitionState,
    /// `None`: the options were refused, or the acquisition is done.
    request: Option<Arc<AcquireRequest>>,
    deadline: Option<Timer>,
    cancel: Option<BoxFuture<'static, ()>>,
    /// Counts it among the waiting acquisitions of the client.
    waiting: Option<InFlight<Arc<InFlightCounter>>>,
    /// Set from the first poll to the end.
    observation: Option<Observation>,
}

enum AcquisitionState {
    Refused(Error),
    /// Not polled yet.
    Lazy,
    Running(AcquirePath),
    /// With the name if the lock was not free.
    Done(Option<Name>),
}

impl Acquisition {
    pub(crate) fn of(request: Result<AcquireRequest>) -> Self {
        let (state, request) = match request {
            Ok(request) => (AcquisitionState::Lazy, Some(Arc::new(request))),
            Err(error) => (AcquisitionState::Refused(error), None),
        };
        Self {
            state,
            request,
            deadline: None,
            cancel: None,
            waiting: None,
            observation: None,
        }
    }

    /// Makes all checks that need no request, starts the deadline, and joins the local queue or starts the acquire
    /// loop.
    fn start(&mut self) -> Result<AcquirePath> {
        let Some(request) = &self.request else {
            return Err(Error::new(ErrorKind::InvalidName));
        };
        check(request)?;
        let options = &request.options;
        // A zero wait ends with the first answer. The response timeout bounds that, so it needs no deadline.
        self.deadline = options
            .wait
            .filter(|wait| !wait.is_zero())
            .map(|wait| request.context.core.timers.after(wait));
        self.cancel = options
            .cancel
            .clone()
            .map(|cancelled| Box::pin(cancelled) as _);
        self.waiting = Some(InFlight::new(Arc::clone(&request.context.core.waiting)));
        Ok(AcquirePath::enter(Arc::clone(request)))
    }

    /// Stops waiting. If a request is in flight, the steward finishes it and releases a lock that it grants.
    fn leave(&mut self) {
        let (state, Some(request)) = (
            std::mem::replace(&mut self.state, AcquisitionState::Done(None)),
            &self.request,
        ) else {
            return;
        };
        if let AcquisitionState::Running(rest) = state {
            // Tells the acquire loop, and a store that has not sent the attempt yet, that nobody waits for the lock.
            request.gone.store(true, Ordering::SeqCst);
            // If we dropped a request in flight, nobody would read its reply, and a grant would stay until the lease
            // ends. Without one the drop is enough: a ticket withdraws itself if the store may know it.
            if request.in_flight.load(Ordering::SeqCst) {
                let work = Box::pin(async move { drop(rest.await) });
                request
                    .context
                    .core
                    .steward
                    .send(StewardCommand::Adopt(work));
            }
        }
    }

    /// The error with which the caller stops waiting now: cancelled, or out of time.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        if let Some(cancel) = &mut self.cancel
            && cancel.as_mut().poll(cx).is_ready()
        {
            return Some(Error::new(ErrorKind::Cancelled));
        }
        let over = Pin::new(self.deadline.as_mut()?).poll(cx).is_ready();
        over.then(|| Some(self.request.as_ref()?.out_of_time()))?
    }

    /// The error for a lock that is not free, if the wait is zero.
    pub(crate) fn not_free(&self) -> Error {
        let error = Error::new(ErrorKind::TimedOut);
        match &self.state {
            AcquisitionState::Done(Some(name)) => error.on_lock(name),
            _ => error,
        }
    }

    /// Completes the future, and drops all it has of the client. Otherwise a completed future that is kept would keep
    /// the client alive.
    fn finish(&mut self, result: AcquireResult) -> Poll<AcquireResult> {
        let request = self.request.take();
        if let (Some(observation), Some(request)) = (self.observation.take(), &request) {
            observation.end(request, Some(&result));
        }
        let name = request.as_ref().filter(|_| matches!(result, Ok(None)));
        self.state = AcquisitionState::Done(name.map(|request| request.name.clone()));
        (self.deadline, self.cancel, self.waiting) = (None, None, None);
        Poll::Ready(result.map_err(|error| match request {
            Some(request) => error.on_lock(&request.name),
            None => error,
        }))
    }
}

/// The checks that need no request to the store.
fn check(request: &AcquireRequest) -> Result<()> {
    let (core, store, options) = (
        &request.context.core,
        &request.context.store,
        &request.options,
    );
    core.refuse_if_closed()?;
    background::need_runtime()?;
    store.need(request.terms.kind)?;
    store.need_delay(request.terms.kind, options.lock_delay)?;
    let cancelled = options.cancel.clone().and_then(FutureExt::now_or_never);
    if cancelled.is_some() {
        return Err(Error::new(ErrorKind::Cancelled));
    }
    Ok(())
}

impl Future for Acquisition {
    type Output = AcquireResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AcquireResult> {
        if let (AcquisitionState::Lazy, Some(request)) = (&self.state, &self.request) {
            self.observation = Some(Observation::begin(request));
        }
        let span = self.observation.as_ref().map(|it| it.span.clone());
        let _entered = span.as_ref().map(tracing::Span::enter);
        if let AcquisitionState::Refused(_) | AcquisitionState::Lazy = self.state {
            let begun = match std::mem::replace(&mut self.state, AcquisitionState::Done(None)) {
                AcquisitionState::Refused(error) => Err(error),
                _ => self.start(),
            };
            match begun {
                Ok(rest) => self.state = AcquisitionState::Running(rest),
                Err(error) => return self.finish(Err(error)),
            }
        }
        let AcquisitionState::Running(rest) = &mut self.state else {
            return Poll::Ready(Err(Error::new(ErrorKind::Cancelled)
                .because("the future was polled after it had completed")));
        };
        // We poll for the lock before we look at the deadline: a grant that arrives with the deadline still counts.
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
        if let (Some(observation), Some(request)) = (self.observation.take(), &self.request) {
            observation.end(request, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Client, ErrorKind};

    /// A forked process has a copy of the client, which makes the same owners. The store would take the acquisition of one process
    /// for a repetition of the other's.
    #[tokio::test]
    async fn a_forked_process_acquires_nothing_with_the_client_of_another() {
        let client = Client::connect("memory:").await.unwrap();
        let lock = client.lock("till");
        lock.acquire().await.unwrap().release().await.unwrap();
        let (latch, permits) = (client.latch("open"), client.counting_semaphore("permits"));
        lock.context.core.mint.fork();
        let errors = [
            lock.acquire().await.map(drop).unwrap_err(),
            lock.try_acquire().await.map(drop).unwrap_err(),
            client
                .semaphore("seats")
                .acquire()
                .await
                .map(drop)
                .unwrap_err(),
            latch.set_count_if_new(1).await.map(drop).unwrap_err(),
            permits.try_acquire(1).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Runtime, "{error}");
            assert!(error.to_string().contains("after the fork"), "{error}");
        }
        client.close(Duration::ZERO).await;
    }
}
