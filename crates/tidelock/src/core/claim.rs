//! A ticket that is asked for, and withdrawn if nothing comes of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{Ask, Ticket};
use crate::core::caller::{Asker, Caller};
use crate::core::drive::Loop;
use crate::core::site::Base;
use crate::core::steward::Chore;
use crate::error::Result;

/// A ticket that may have left something in the store. Dropped unsettled, it is withdrawn.
pub(super) struct Claim<'a> {
    base: &'a Base,
    pub(super) ask: Ask,
    /// A request of this ticket brought no answer: it may hold the lock, or may still come to.
    pub(super) unclear: bool,
    pub(super) settled: bool,
}

impl<'a> Claim<'a> {
    pub(super) fn new(one: &'a Loop) -> Self {
        let Caller {
            base, name, terms, ..
        } = &*one.caller;
        let ticket = Ticket {
            kind: terms.kind,
            name: name.clone(),
            owner: base.core.mint.fresh(),
        };
        let ask = Ask {
            ticket,
            lease: terms.lease,
            patience: Duration::ZERO,
            armed: false,
            wish: terms.wish,
            part: 0,
            spare: 0,
            delay: terms.delay,
            asker: Asker::new(&one.caller),
        };
        Self {
            base,
            ask,
            unclear: false,
            settled: false,
        }
    }

    /// Takes a fresh ticket, and with it withdraws the old one. Resolves when the old one is known to hold nothing.
    pub(super) fn begin_anew(&mut self, one: &'a Loop) -> oneshot::Receiver<Result<()>> {
        let mut fresh = Self::new(one);
        fresh.ask.patience = self.ask.patience;
        fresh.ask.armed = self.ask.armed;
        fresh.ask.part = self.ask.part;
        let (answer, answered) = oneshot::channel();
        self.withdraw(Some(answer));
        self.settled = true;
        *self = fresh;
        answered
    }

    fn withdraw(&self, answer: Option<oneshot::Sender<Result<()>>>) {
        // Twice the lease: a request may still lie in the buffers of a server that is frozen now.
        let until = self.base.core.timers.now() + (self.ask.lease * 2).max(Duration::from_secs(60));
        self.base.core.steward.send(Chore::Release {
            site: Arc::clone(&self.base.site),
            ticket: self.ask.ticket.clone(),
            unclear: true,
            repeated: true,
            until,
            answer,
            tenure: None,
            kept: Duration::ZERO,
        });
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.settled && (self.unclear || self.base.site.queues(self.ask.ticket.kind)) {
            self.withdraw(None);
        }
    }
}
