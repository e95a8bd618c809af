//! Giving a lock back, until the store has said so or the lease has ended by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{Backend, Moment, Released, Ticket};
use crate::core::hold::Hold;
use crate::core::site::Site;
use crate::core::steward::Chore;
use crate::core::timers::Timers;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LostReason;

/// A release that is on its way.
pub(crate) struct Release {
    pub(crate) site: Arc<Site>,
    pub(crate) ticket: Ticket,
    /// An acquire of this ticket may still arrive: a tombstone must keep it from taking effect.
    pub(crate) unclear: bool,
    /// Nobody was told that it is held, or an earlier release of ours may have freed it: that it is not held is no news.
    pub(crate) repeated: bool,
    /// After this the lease has ended anyway.
    pub(crate) until: Moment,
}

impl Release {
    /// Asks once.
    async fn once(&mut self, backend: &dyn Backend) -> Result<()> {
        let answer = if self.unclear {
            backend.withdraw(&self.ticket).await
        } else {
            backend.release(&self.ticket).await
        };
        match answer {
            Ok(Released::Freed) => Ok(()),
            // It never was somebody else's, because the owner is ours alone.
            Ok(Released::NotHeld) if self.repeated => Ok(()),
            Ok(Released::NotHeld) => Err(Error::lost(LostReason::Taken)),
            Err(error) => {
                self.repeated |= error.outcome_unknown();
                Err(error)
            }
        }
        .map_err(|error| error.on_lock(&self.ticket.name))
    }

    /// Asks until there is an answer, or the lease has ended.
    pub(crate) async fn persist(mut self, timers: &Timers) -> Result<()> {
        let site = Arc::clone(&self.site);
        let mut pause = Duration::from_millis(10);
        loop {
            match self.once(site.back()).await {
                Err(error) if error.is_retryable() && timers.now() < self.until => {
                    tracing::debug!(lock = %self.ticket.name, %error, "release without an answer; trying again");
                    timers.after(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                result => return result,
            }
        }
    }
}

/// The release a caller waits for: one trip on the caller's own connection; if that brings no answer, the steward goes on.
pub(crate) async fn settle(hold: Hold) -> Result<()> {
    // Before the hold leaves the books: a client that closes now must not end the connection under this release.
    let _mark = hold.core.steward.mark();
    let refusal = hold.status.refusal();
    if !hold.disarm() {
        return Ok(());
    }
    let core = &hold.core;
    let mut release = Release {
        site: Arc::clone(&hold.site),
        ticket: hold.ticket.clone(),
        unclear: hold.unclear,
        repeated: false,
        until: Moment::FAR, // set when the steward takes over; one trip needs no limit of its own
    };
    if let Some(lost) = refusal {
        // Lost: the store is still asked, so that a lease which stands there is not left to run out. It only ever removes our own owner.
        release.until = hold.over_by();
        core.steward.send(release.chore(None));
        return Err(lost.on_lock(&hold.ticket.name));
    }
    match release.once(hold.site.front()).await {
        Err(error) if error.is_retryable() => {
            let (answer, answered) = oneshot::channel();
            release.until = hold.over_by();
            core.steward.send(release.chore(Some(answer)));
            match core.timers.limit(core.settings.response_timeout, answered).await {
                Some(Ok(result)) => result,
                _ => Err(Error::new(ErrorKind::OutcomeUnknown)
                    .on_lock(&hold.ticket.name)
                    .because("the release has not been confirmed yet; it goes on in the background until the lease ends")
                    .caused_by(error)),
            }
        }
        result => result,
    }
}

impl Release {
    pub(crate) fn chore(self, answer: Option<oneshot::Sender<Result<()>>>) -> Chore {
        Chore::Release {
            site: self.site,
            ticket: self.ticket,
            unclear: self.unclear,
            repeated: self.repeated,
            until: self.until,
            answer,
        }
    }
}

/// For releases nobody waits for.
pub(crate) fn log(result: Result<()>) {
    match result {
        Ok(()) => {}
        // The holder was told by its loss signal; there is nothing left to release.
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::debug!(%error, "nothing to release");
        }
        Err(error) => {
            tracing::warn!(%error, "a lock could not be released; it stays until its lease ends");
        }
    }
}
