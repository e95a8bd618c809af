//! Giving a lock back, until the store has said so or the lease has ended by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{Awaited, Backend, Moment, Released, Ticket};
use crate::core::hold::Hold;
use crate::core::lead::Tenure;
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
    /// Those who wait in this process are called once the store has been asked, whatever it says.
    pub(crate) tenure: Option<Tenure>,
    /// For how long the lock was held, as far as we know. Waiters elsewhere get a time in proportion.
    pub(crate) kept: Duration,
}

/// One release or withdrawal.
struct Question<'a> {
    ticket: &'a Ticket,
    unclear: bool,
    kept: Duration,
}

/// Asks once. `repeated` is set when this request may have taken effect without a word.
async fn once(
    site: &Site,
    backend: &dyn Backend,
    question: Question<'_>,
    repeated: &mut bool,
    timers: &Timers,
) -> Result<()> {
    let Question {
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
            site.freed(&ticket.name);
            if let Some(lines) = site.lines() {
                let awaited = match freed {
                    Released::Awaited(awaited) => awaited,
                    _ => Awaited::default(),
                };
                lines.ended(&ticket.name, awaited, timers.now().since(sent), kept);
            }
            Ok(())
        }
        // It never was somebody else's, because the owner is ours alone.
        Ok(Released::NotHeld) if *repeated => Ok(()),
        Ok(Released::NotHeld) => Err(Error::lost(LostReason::Taken)),
        Ok(Released::WrongType) => Err(Error::lost(LostReason::WrongType)),
        // The key was overwritten. Perhaps only after an earlier release of ours.
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

impl Release {
    /// Asks until there is an answer, or the lease has ended.
    pub(crate) async fn persist(mut self, timers: &Timers) -> Result<()> {
        let site = Arc::clone(&self.site);
        let mut pause = Duration::from_millis(10);
        loop {
            let question = Question {
                ticket: &self.ticket,
                unclear: self.unclear,
                kept: self.kept,
            };
            let result = once(&site, site.back(), question, &mut self.repeated, timers).await;
            self.tenure = None;
            match result {
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
pub(crate) async fn settle(mut hold: Arc<Hold>) -> Result<()> {
    let tenure = Arc::get_mut(&mut hold).and_then(|hold| hold.tenure.take());
    // Before the hold leaves the books: a client that closes now must not end the connection under this release.
    let _mark = hold.base.core.steward.mark();
    let refusal = hold.status.refusal();
    // Until the store has been asked: who leads next asks it after that.
    let tenure = tenure;
    if !hold.disarm() {
        return Ok(());
    }
    let core = &hold.base.core;
    // What the steward is to go on with. Most releases need nothing of it.
    let handed_on = |repeated, answer, tenure| Chore::Release {
        site: Arc::clone(&hold.base.site),
        ticket: hold.ticket.clone(),
        unclear: hold.unclear,
        repeated,
        until: hold.over_by(),
        answer,
        tenure,
        kept: hold.kept(),
    };
    if let Some(lost) = refusal {
        // Lost: the store is still asked, so that a lease which stands there is not left to run out. It only ever removes our own owner.
        if !hold.was_released_by_close() {
            core.steward.send(handed_on(false, None, tenure));
        }
        return Err(lost.on_lock(&hold.ticket.name));
    }
    let mut repeated = false;
    let site = &hold.base.site;
    let question = Question {
        ticket: &hold.ticket,
        unclear: hold.unclear,
        kept: hold.kept(),
    };
    match once(site, site.front(), question, &mut repeated, &core.timers).await {
        Err(error) if error.is_retryable() => {
            drop(tenure);
            let (answer, answered) = oneshot::channel();
            core.steward.send(handed_on(repeated, Some(answer), None));
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
