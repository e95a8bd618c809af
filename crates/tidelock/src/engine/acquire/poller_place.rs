//! The place of an acquire loop among the clients that poll for the same lock.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::request::AcquireRequest;
use crate::error::{Error, ErrorKind};
use crate::store::{BootInstant, POLLER_BEAT, PollerBeat, Pollers, Ticket};

/// How long a loop polls before it counts the others: a short wait costs no more requests than without them.
const SHORT_WAIT: Duration = Duration::from_millis(250);
/// The time between two counts. A count costs a store about as much as a poll.
const BETWEEN_COUNTS: Duration = Duration::from_secs(1);
/// How long the loop waits for a count. It sends no attempt meanwhile.
const ANSWER: Duration = Duration::from_millis(250);

/// The place of an acquire loop among the pollers of its lock. A drop gives it up.
pub(crate) struct PollerPlace<'a> {
    request: &'a Arc<AcquireRequest>,
    /// When the loop began to poll.
    began: Option<BootInstant>,
    /// The ticket that the store may have in its list. Set before the request is sent.
    joined: Option<Ticket>,
    /// When the loop last showed that it is alive, or had no answer. `None`: the list does not have it.
    shown: Option<BootInstant>,
    /// When it last counted, and how many others were ahead then.
    counted: BootInstant,
    ahead: u32,
}

/// How many clients that poll for the lock are ahead of this loop, as far as the store tells. Makes its place among them.
pub(crate) async fn pollers_ahead<'a>(
    place: &mut Option<Box<PollerPlace<'a>>>,
    request: &'a Arc<AcquireRequest>,
    ticket: &Ticket,
) -> u32 {
    let Some(pollers) = request.context.store.front().extensions().pollers else {
        return 0;
    };
    let place = place.get_or_insert_with(|| Box::new(PollerPlace::new(request)));
    place.ahead(pollers, ticket).await
}

impl<'a> PollerPlace<'a> {
    /// The store is not asked yet.
    fn new(request: &'a Arc<AcquireRequest>) -> Self {
        Self {
            request,
            began: None,
            joined: None,
            shown: None,
            counted: request.context.core.timers.now(),
            ahead: 0,
        }
    }

    /// See [`pollers_ahead`]. Asks the store if the number may have changed.
    async fn ahead(&mut self, pollers: &dyn Pollers, ticket: &Ticket) -> u32 {
        let now = self.request.context.core.timers.now();
        if let Some(beat) = self.due(pollers, ticket, now) {
            self.ask(pollers, ticket, beat).await;
        }
        self.ahead
    }

    /// What the next request shows. `None`: none is due. A loop at the head stays there, so it counts only when it shows that
    /// it is alive. It must: two that join at the same time may both see nobody ahead.
    fn due(
        &mut self,
        pollers: &dyn Pollers,
        ticket: &Ticket,
        now: BootInstant,
    ) -> Option<PollerBeat> {
        let began = *self.began.get_or_insert(now);
        if now.since(began) < SHORT_WAIT {
            return None;
        }
        if let Some(former) = self.joined.take_if(|former| former.owner != ticket.owner) {
            pollers.leave(&former);
            self.shown = None;
        }
        match self.shown {
            None => Some(PollerBeat::Join),
            Some(shown) if now.since(shown) >= POLLER_BEAT => Some(PollerBeat::Stay),
            Some(_) if self.ahead > 0 && now.since(self.counted) >= BETWEEN_COUNTS => {
                Some(PollerBeat::Skip)
            }
            Some(_) => None,
        }
    }

    /// Asks the store. Without an answer the loop polls as if it were alone, and asks again when the next beat is due.
    async fn ask(&mut self, pollers: &dyn Pollers, ticket: &Ticket, beat: PollerBeat) {
        // We note the ticket first. A loop that is dropped in the request below leaves a list that has it.
        self.joined.get_or_insert_with(|| ticket.clone());
        let core = &self.request.context.core;
        let sent = core.timers.now();
        let counted = tokio::select! {
            biased;
            () = core.steward.closed.happened() => return,
            counted = core.timers.limit(ANSWER, pollers.ahead(ticket, beat)) => counted,
        };
        let counted = counted.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::OutcomeUnknown).because("no answer in time"))
        });
        self.counted = core.timers.now();
        if counted.is_err() {
            // The next count is a beat away from the end of this one. Otherwise a slow store would be asked for nothing else.
            self.shown = Some(self.counted);
        } else if beat != PollerBeat::Skip {
            self.shown = Some(sent);
        }
        self.ahead = match counted {
            Ok(Some(ahead)) => ahead,
            Ok(None) => {
                // It did not get in, or was removed, or the list was emptied.
                self.shown = None;
                0
            }
            Err(error) => {
                tracing::debug!(lock = %self.request.name, %error, "cannot count the clients that poll for the lock");
                0
            }
        };
    }
}

impl Drop for PollerPlace<'_> {
    fn drop(&mut self) {
        let pollers = self.request.context.store.front().extensions().pollers;
        if let (Some(pollers), Some(ticket)) = (pollers, self.joined.take()) {
            pollers.leave(&ticket);
        }
    }
}
