//! The release of a ticket in the background: retried until the store confirms it or the lease has ended, with a pause
//! that doubles from 10 ms to 500 ms. That of a downgraded writer goes on until the lease of its reader has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::instruments::{CleanupCause, CleanupEnd, Instruments, StoreRequest};
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::guests::Guest;
use crate::engine::lease::leader_term::{self, LeaderTerm};
use crate::engine::lease::status::{self, HoldStatus};
use crate::engine::runtime::timers::Timers;
use crate::engine::store_handle::StoreHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Awaited, Backend, BootInstant, Released};
use crate::types::{FencingToken, LostReason};

/// A release or withdrawal that the steward executes.
pub(crate) struct PendingRelease {
    pub(crate) store: Arc<StoreHandle>,
    pub(crate) granted: GrantedTicket,
    /// No caller has this hold, or an earlier release may have freed it. Then the reply "not held" is a success.
    pub(crate) repeated: bool,
    /// No retry after this instant, unless there is a reader: the lease has ended by then.
    pub(crate) until: BootInstant,
    /// The reader that this writer was downgraded to. The lease of the writer does not end by itself on Redis, where the
    /// renewals of the reader keep both. So the retries go on as long as the reader holds the lock; otherwise the writer
    /// would keep all other readers out until then.
    pub(crate) reader: Option<Arc<HoldStatus>>,
    /// The leader term. It ends after the first reply or error, which calls the next waiter of this process.
    pub(crate) term: Option<Arc<LeaderTerm>>,
    /// How long the lock was held, as far as we know. It bounds the fairness delay.
    pub(crate) kept: Duration,
    /// The fencing token of the hold, for the log.
    pub(crate) token: Option<FencingToken>,
    /// The loss of the hold was logged before, or there was no hold, or a set has freed some of its parts before: that one of
    /// those is not held is no loss.
    pub(crate) is_logged: bool,
    /// Gets the result.
    pub(crate) answer: Option<oneshot::Sender<Result<()>>>,
    /// Why it has to be undone. `None`: an ordinary release.
    pub(crate) cleanup: Option<CleanupCause>,
    /// The hold at the clients of the other members of a set. Those that close wait for this release.
    pub(crate) guest: Option<Arc<Guest>>,
}

/// Sends one release or withdrawal. Sets `repeated` if it may have taken effect although we have no reply. Returns
/// whether the store had something to free.
pub(crate) async fn send_once(
    store: &StoreHandle,
    backend: &dyn Backend,
    granted: &GrantedTicket,
    kept: Duration,
    repeated: &mut bool,
    timers: &Timers,
    instruments: &Instruments,
) -> Result<bool> {
    let GrantedTicket {
        ticket, in_doubt, ..
    } = granted;
    let sent = timers.now();
    let (request, answer) = if *in_doubt {
        (StoreRequest::Withdraw, backend.withdraw(ticket).await)
    } else {
        (StoreRequest::Release, backend.release(ticket).await)
    };
    store.heard(&ticket.name, &answer);
    let trip = timers.now().since(sent);
    instruments.answered(request, trip, answer.as_ref().err());
    match answer {
        Ok(freed @ (Released::Freed | Released::Awaited(_))) => {
            let awaited = match freed {
                Released::Awaited(awaited) => awaited,
                _ => Awaited::default(),
            };
            store.freed(&ticket.name, awaited, trip, kept);
            Ok(true)
        }
        // Our earlier request has freed it. No other client can have taken it from us: the owner id is ours alone.
        Ok(Released::NotHeld) if *repeated => Ok(false),
        Ok(Released::NotHeld) => Err(Error::lost(LostReason::Taken)),
        Ok(Released::WrongType) => Err(Error::lost(LostReason::WrongType)),
        // Another client has overwritten the key, perhaps after an earlier release of ours. In that case we lost
        // nothing.
        Err(error) if error.kind() == ErrorKind::WrongType && *repeated => Ok(false),
        Err(error) if error.kind() == ErrorKind::WrongType => {
            Err(Error::lost(LostReason::WrongType))
        }
        Err(error) => {
            *repeated |= error.outcome_unknown();
            Err(error)
        }
    }
    .map_err(|error| error.on_lock(&ticket.name))
    .inspect(|_| tracing::debug!(lock = %ticket.name, "released"))
}

impl PendingRelease {
    /// Sends the request until it is answered, or the lease has ended. Reports the result.
    pub(crate) async fn run(mut self, timers: &Timers, instruments: &Instruments) {
        let answer = self.answer.take();
        let cleanup = self.cleanup.take();
        let _guest = self.guest.take();
        let subject = self.granted.ticket.clone();
        let result = self.persist(timers, instruments).await;
        if let Some(cause) = cleanup {
            let end = match &result {
                Ok(true) => CleanupEnd::Undone,
                Ok(false) => CleanupEnd::Nothing,
                // The store has answered that another has the lock.
                Err(error) if error.kind() == ErrorKind::Lost => CleanupEnd::Nothing,
                Err(_) => CleanupEnd::GivenUp,
            };
            instruments.cleaned_up((subject.kind, &subject.name), cause, end);
        }
        let result = result.map(drop);
        // A caller that has stopped waiting gives the result back, so that it is at least logged.
        let unheard = match answer {
            Some(answer) => answer.send(result).err(),
            None => Some(result),
        };
        unheard.into_iter().for_each(log);
    }

    async fn persist(mut self, timers: &Timers, instruments: &Instruments) -> Result<bool> {
        let mut pause = Duration::from_millis(10);
        loop {
            let result = send_once(
                &self.store,
                self.store.back(),
                &self.granted,
                self.kept,
                &mut self.repeated,
                timers,
                instruments,
            )
            .await;
            // After the first request, so that the attempt of the next leader comes after it. Not after the last: the
            // next leader must not wait for our retries.
            leader_term::end(self.term.take());
            match result {
                Err(error) if error.is_retryable() && self.goes_on(timers.now()) => {
                    tracing::debug!(lock = %self.granted.ticket.name, %error, "the store did not answer the release; retrying");
                    timers.after(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                result => {
                    if !self.is_logged {
                        log_if_lost(&self.granted, self.token, &result);
                    }
                    return result;
                }
            }
        }
    }

    /// Whether to send the request again.
    fn goes_on(&mut self, now: BootInstant) -> bool {
        if now < self.until {
            return true;
        }
        // On a store where the lease has ended by itself, the reply "not held" is no loss.
        self.repeated = true;
        let reader = self.reader.as_ref();
        reader.is_some_and(|reader| now < reader.valid_until())
    }

    /// Logs a release that no steward can execute any more, and calls the next waiter of this process.
    pub(crate) fn give_up(self) {
        leader_term::end(self.term);
        let ticket = &self.granted.ticket;
        tracing::warn!(lock = %ticket.name, owner = %ticket.owner, "the background task of the client has ended; the lock stays held until its lease ends");
    }
}

/// Logs a loss that a release has found.
pub(crate) fn log_if_lost<T>(
    granted: &GrantedTicket,
    token: Option<FencingToken>,
    result: &Result<T>,
) {
    if let Err(error) = result
        && let Some(reason) = error.lost_reason()
    {
        status::log_loss(&granted.ticket, token.map(FencingToken::get), reason);
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

#[cfg(test)]
mod tests;
