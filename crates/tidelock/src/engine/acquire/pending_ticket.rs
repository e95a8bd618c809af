//! A pending ticket: it is sent to the store until it becomes a hold, and withdrawn otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::acquire::attempt_loop::AcquireLoop;
use crate::engine::acquire::request::{AcquireRequest, Liveness};
use crate::engine::lease::steward::StewardCommand;
use crate::engine::store_handle::LockContext;
use crate::error::Result;
use crate::store::{AttemptRequest, Ticket};

/// A pending ticket. A drop before it is settled withdraws it if the store may know it; otherwise a late acquire could
/// hold the lock, or a queue position could remain, without an owner.
pub(crate) struct PendingTicket<'a> {
    context: &'a LockContext,
    pub(crate) ask: AttemptRequest,
    /// A request of this ticket has an unknown outcome: the ticket may hold the lock, or may still be granted it.
    pub(crate) unclear: bool,
    /// A hold has the ticket, or its withdrawal is with the steward. Then the drop does nothing.
    pub(crate) settled: bool,
}

impl<'a> PendingTicket<'a> {
    /// A ticket with a fresh owner. The first attempt has no patience: it does not arm a wake.
    pub(crate) fn new(one: &'a AcquireLoop) -> Self {
        let AcquireRequest {
            context,
            name,
            terms,
            ..
        } = &*one.request;
        let ticket = Ticket {
            kind: terms.kind,
            name: name.clone(),
            owner: context.core.mint.fresh(),
        };
        let ask = AttemptRequest {
            delay: terms.delay,
            liveness: Liveness::new(&one.request),
            ..AttemptRequest::once(ticket, terms.lease, terms.wish)
        };
        Self {
            context,
            ask,
            unclear: false,
            settled: false,
        }
    }

    /// Withdraws the ticket and takes a fresh one. The receiver resolves when the store no longer knows the old ticket.
    pub(crate) fn begin_anew(&mut self, one: &'a AcquireLoop) -> oneshot::Receiver<Result<()>> {
        let mut fresh = Self::new(one);
        fresh.ask.patience = self.ask.patience;
        fresh.ask.armed_by = self.ask.armed_by;
        let (answer, answered) = oneshot::channel();
        self.withdraw(Some(answer));
        self.settled = true;
        *self = fresh;
        answered
    }

    /// Passes the withdrawal to the steward, which retries it and reports to `answer`.
    fn withdraw(&self, answer: Option<oneshot::Sender<Result<()>>>) {
        // We retry for twice the lease. The acquire may lie in the buffers of a frozen server, and may be granted for a
        // whole lease when that server resumes.
        let until =
            self.context.core.timers.now() + (self.ask.lease * 2).max(Duration::from_secs(60));
        self.context.core.steward.send(StewardCommand::Release {
            store: Arc::clone(&self.context.store),
            ticket: self.ask.ticket.clone(),
            unclear: true,
            repeated: true,
            until,
            answer,
            term: None,
            kept: Duration::ZERO,
        });
    }
}

impl Drop for PendingTicket<'_> {
    fn drop(&mut self) {
        if !self.settled
            && (self.unclear || self.context.store.queues_in_store(self.ask.ticket.kind))
        {
            self.withdraw(None);
        }
    }
}
