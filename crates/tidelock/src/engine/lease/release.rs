//! Release: the caller sends the first request on its own connection. If that brings no answer, or a refusal, the steward
//! retries.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::instruments::{CleanupCause, HoldOutcome};
use crate::engine::lease::hold::Hold;
use crate::engine::lease::leader_term;
use crate::engine::lease::pending_release::{PendingRelease, log_if_lost, send_once};
use crate::engine::lease::status::HoldStatus;
use crate::engine::lease::steward::StewardCommand;
use crate::error::{Error, ErrorKind, Result};

/// The release that a caller waits for: one request on the caller's own connection. If that brings no answer, the
/// steward retries, and the caller waits for it for one response timeout. `reader`: the hold that a writer was downgraded
/// to.
///
/// # Errors
/// `Lost` if the hold was lost before; `OutcomeUnknown` if the store has not confirmed the release in time. The steward
/// then goes on until the lease has ended, or that of the reader. Any other error is that of the caller's connection; the
/// steward sends the release again on its own.
pub(crate) async fn settle(mut hold: Arc<Hold>, reader: Option<Arc<HoldStatus>>) -> Result<()> {
    let term = Arc::get_mut(&mut hold).and_then(|hold| hold.term.take());
    let steward = hold.context.steward();
    // Registered before `disarm` removes the hold from the lease table. Otherwise a `close` that runs between the two
    // would close the connection while this release is in flight.
    let _in_flight = steward.in_flight();
    let _guest = hold.guest.upgrade();
    // Bound again, so that a cancellation ends the term before `close` stops waiting for this release.
    let term = term;
    let mut refusal = hold.status.refusal();
    if !hold.disarm(HoldOutcome::Released) {
        leader_term::end(term);
        return Ok(());
    }
    if hold.was_released_by_close() {
        refusal = hold.status.refusal(); // a close may have taken the hold in between
    }
    if let Some(lost) = refusal {
        // The hold is lost, but its lease may still stand in the store. We release it, so that other clients need not
        // wait for its end. The release removes only our own owner, so it cannot harm another holder.
        if hold.was_released_by_close() {
            leader_term::end(term);
        } else {
            steward.send(StewardCommand::Release(hold.pending_release(term, reader)));
        }
        return Err(lost.on_lock(&hold.granted().ticket.name));
    }
    let mut repeated = false;
    let store = hold.context.store();
    let first = send_once(
        store,
        store.front(),
        hold.granted(),
        hold.kept(),
        &mut repeated,
        &steward.timers,
        &steward.instruments,
    );
    let result = first.await.map(drop);
    log_if_lost(hold.granted(), hold.token, &result);
    // After the store has answered, because the attempt of the next leader must come after our release. Before our
    // retries, because the next leader must not wait for them.
    leader_term::end(term);
    match result {
        Err(error) if error.is_retryable() => repeat(&hold, reader, repeated, error).await,
        Err(error) if error.kind() != ErrorKind::Lost => {
            // The connection of the steward may still work, after a change of the password or the end of the caller's
            // runtime. Otherwise the lock would stay held until its lease ends.
            steward.send(StewardCommand::Release(PendingRelease {
                repeated,
                is_logged: true,
                cleanup: Some(CleanupCause::Unconfirmed),
                ..hold.pending_release(None, reader)
            }));
            Err(error)
        }
        result => result,
    }
}

/// Hands a release without an answer to the steward, which repeats it, and waits for it once more.
async fn repeat(
    hold: &Hold,
    reader: Option<Arc<HoldStatus>>,
    repeated: bool,
    error: Error,
) -> Result<()> {
    let steward = hold.context.steward();
    let (answer, answered) = oneshot::channel();
    steward.send(StewardCommand::Release(PendingRelease {
        repeated,
        answer: Some(answer),
        cleanup: Some(CleanupCause::Unconfirmed),
        ..hold.pending_release(None, reader)
    }));
    match steward.timers.limit(steward.response_timeout, answered).await {
        Some(Ok(result)) => result,
        _ => Err(Error::new(ErrorKind::OutcomeUnknown)
            .on_lock(&hold.granted().ticket.name)
            .because("the store has not confirmed the release; the client retries in the background until the lease ends")
            .caused_by(error)),
    }
}

/// Releases a hold in the background that somebody else may have freed by force, as its holder expects. So a store that
/// has nothing to free is no loss, and is not logged as one.
pub(crate) fn in_background_if_held(mut hold: Arc<Hold>) {
    let term = Arc::get_mut(&mut hold).and_then(|hold| hold.term.take());
    let steward = hold.context.steward();
    // Registered before `disarm`, as in `settle`.
    let _in_flight = steward.in_flight();
    let _guest = hold.guest.upgrade();
    if hold.disarm(HoldOutcome::Released) && !hold.was_released_by_close() {
        steward.send(StewardCommand::Release(PendingRelease {
            repeated: true,
            ..hold.pending_release(term, None)
        }));
    } else {
        leader_term::end(term);
    }
}

#[cfg(test)]
mod tests;
