//! Release: retried until the store confirms it or the lease has ended.
//!
//! The caller sends the first request on its own connection. If that brings no answer, the steward retries, with
//! backoff. A ticket with a request of unknown outcome is withdrawn instead of
//! released: the withdrawal leaves a tombstone, so that a late acquire takes no effect.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::lease::hold::Hold;
use crate::engine::lease::steward::StewardCommand;
use crate::engine::local_queue::leader::LeaderTerm;
use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::timers::Timers;
use crate::engine::store_handle::StoreHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LostReason;
use crate::store::{Awaited, Backend, BootInstant, Released, Ticket};

/// A release in progress, executed by the steward.
pub(crate) struct PendingRelease {
    pub(crate) store: Arc<StoreHandle>,
    pub(crate) ticket: Ticket,
    /// An acquire of this ticket may still arrive at the store. Then we withdraw the ticket, which leaves a tombstone.
    pub(crate) unclear: bool,
    /// No caller has this hold, or an earlier release may have freed it. Then the reply "not held" is a success.
    pub(crate) repeated: bool,
    /// No retry after this instant: the lease has ended by then.
    pub(crate) until: BootInstant,
    /// The leader term. We drop it after the first reply or error, which calls the next waiter of this process.
    pub(crate) term: Option<LeaderTerm>,
    /// How long the lock was held, as far as we know. It bounds the fairness delay.
    pub(crate) kept: Duration,
}

/// One release or withdrawal request.
struct ReleaseRequest<'a> {
    ticket: &'a Ticket,
    unclear: bool,
    kept: Duration,
}

/// Sends one request. Sets `repeated` if the request may have taken effect although we have no reply.
async fn once(
    store: &StoreHandle,
    backend: &dyn Backend,
    question: ReleaseRequest<'_>,
    repeated: &mut bool,
    timers: &Timers,
) -> Result<()> {
    let ReleaseRequest {
        ticket,
        unclear,
        kept,
    } = question;
    let sent = timers.now();
    let answer = if unclear {
        backend.withdraw(ticket).await
    } else {
        backend.release(ticket).await
    };
    match answer {
        Ok(freed @ (Released::Freed | Released::Awaited(_))) => {
            store.freed(&ticket.name);
            if let Some(queues) = store.queues() {
                let awaited = match freed {
                    Released::Awaited(awaited) => awaited,
                    _ => Awaited::default(),
                };
                queues.ended(&ticket.name, awaited, timers.now().since(sent), kept);
            }
            Ok(())
        }
        // Our earlier request has freed it. No other client can have taken it from us: the owner id is ours alone.
        Ok(Released::NotHeld) if *repeated => Ok(()),
        Ok(Released::NotHeld) => Err(Error::lost(LostReason::Taken)),
        Ok(Released::WrongType) => Err(Error::lost(LostReason::WrongType)),
        // Another client has overwritten the key, perhaps after an earlier release of ours. In that case we lost
        // nothing.
        Err(error) if error.kind() == ErrorKind::WrongType && *repeated => Ok(()),
        Err(error) if error.kind() == ErrorKind::WrongType => {
            Err(Error::lost(LostReason::WrongType))
        }
        Err(error) => {
            *repeated |= error.outcome_unknown();
            Err(error)
        }
    }
    .map_err(|error| error.on_lock(&ticket.name))
}

impl PendingRelease {
    /// Sends the request until it is answered, or the lease has ended.
    pub(crate) async fn persist(mut self, timers: &Timers) -> Result<()> {
        let store = Arc::clone(&self.store);
        let mut retries = 0;
        loop {
            let question = ReleaseRequest {
                ticket: &self.ticket,
                unclear: self.unclear,
                kept: self.kept,
            };
            let result = once(&store, store.back(), question, &mut self.repeated, timers).await;
            self.term = None;
            match result {
                Err(error) if error.is_retryable() && timers.now() < self.until => {
                    tracing::debug!(lock = %self.ticket.name, %error, "the store did not answer the release; retrying");
                    timers.after(RECONNECT.pause(retries)).await;
                    retries += 1;
                }
                result => return result,
            }
        }
    }
}

/// The release that a caller waits for: one request on the caller's own connection. If that brings no answer, the
/// steward retries, and the caller waits for it for one response timeout.
///
/// # Errors
/// `Lost` if the hold was lost before; `OutcomeUnknown` if the store has not confirmed the release in time. The steward
/// then goes on until the lease has ended.
pub(crate) async fn settle(mut hold: Arc<Hold>) -> Result<()> {
    let term = Arc::get_mut(&mut hold).and_then(|hold| hold.term.take());
    // Registered before `disarm` removes the hold from the lease table. Otherwise a `close` that runs between the two
    // would close the connection while this release is in flight.
    let _in_flight = hold.context.core.steward.in_flight();
    let refusal = hold.status.refusal();
    // Bound again, to be dropped before `_in_flight`. The drop calls the next leader, whose attempt must come after our
    // release; we drop the term only after the store has answered.
    let term = term;
    if !hold.disarm() {
        return Ok(());
    }
    let core = &hold.context.core;
    // A closure, because most releases never need the steward.
    let handed_on = |repeated, answer, term| StewardCommand::Release {
        store: Arc::clone(&hold.context.store),
        ticket: hold.ticket.clone(),
        unclear: hold.unclear,
        repeated,
        until: hold.over_by(),
        answer,
        term,
        kept: hold.kept(),
    };
    if let Some(lost) = refusal {
        // The hold is lost, but its lease may still stand in the store. We release it, so that other clients need not
        // wait for its end. The release removes only our own owner, so it cannot harm another holder.
        if !hold.was_released_by_close() {
            core.steward.send(handed_on(false, None, term));
        }
        return Err(lost.on_lock(&hold.ticket.name));
    }
    let mut repeated = false;
    let store = &hold.context.store;
    let question = ReleaseRequest {
        ticket: &hold.ticket,
        unclear: hold.unclear,
        kept: hold.kept(),
    };
    match once(store, store.front(), question, &mut repeated, &core.timers).await {
        Err(error) if error.is_retryable() => {
            // The next leader must not wait for our retries.
            drop(term);
            let (answer, answered) = oneshot::channel();
            core.steward.send(handed_on(repeated, Some(answer), None));
            match core.timers.limit(core.settings.response_timeout, answered).await {
                Some(Ok(result)) => result,
                _ => Err(Error::new(ErrorKind::OutcomeUnknown)
                    .on_lock(&hold.ticket.name)
                    .because("the store has not confirmed the release; the client retries in the background until the lease ends")
                    .caused_by(error)),
            }
        }
        result => result,
    }
}

/// Logs the result of a release that no caller waits for.
pub(crate) fn log(result: Result<()>) {
    match result {
        Ok(()) => {}
        // The loss signal has told the holder, and the store has no lock of ours to release.
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::debug!(%error, "the lock was already lost, so there is nothing to release");
        }
        Err(error) => {
            tracing::warn!(%error, "the lock could not be released; it stays held until its lease ends");
        }
    }
}
