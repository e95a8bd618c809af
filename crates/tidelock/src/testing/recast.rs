//! A store wrapper that turns every lock into a lock of another kind.

use super::twist::Twist;
use crate::error::Result;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, LockKind, PermitChange,
    PermitCounter, Released, Renewal, Renewed, Ticket, VerifySequencers,
};

/// Replaces the kind of every ticket by another kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recast(fn(LockKind) -> LockKind);

/// Every lock is the write side of a read-write lock.
pub(super) const WRITER: Recast = Recast(|kind| match kind {
    LockKind::Fenced => LockKind::WriteFenced,
    _ => LockKind::Write,
});
/// Every lock is fair.
pub(super) const FAIR: Recast = Recast(|kind| match kind {
    LockKind::Fenced => LockKind::FairFenced,
    _ => LockKind::Fair,
});

/// Every lock is a spin lock.
pub(super) const SPIN: Recast = Recast(|kind| match kind {
    LockKind::Fenced => LockKind::SpinFenced,
    _ => LockKind::Spin,
});

/// Every lock is a semaphore with one permit.
pub(super) const PERMIT: Recast = Recast(|_| LockKind::Permits(1));

impl Recast {
    fn of(self, ticket: &Ticket) -> Ticket {
        Ticket {
            kind: (self.0)(ticket.kind),
            ..ticket.clone()
        }
    }
}

impl Twist for Recast {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        let can = inner.capabilities();
        if (self.0)(LockKind::Mutex).is_permits() {
            let counter = inner.extensions().permit_counter;
            return Capabilities {
                wakes: can.wakes,
                queues: counter.is_some_and(PermitCounter::queues),
                shared: can.shared,
                durable: can.durable,
                ..Capabilities::NONE
            };
        }
        if (self.0)(LockKind::Mutex).is_spin() {
            return Capabilities {
                wakes: false,
                ..can
            };
        }
        Capabilities {
            // Otherwise the waiters of a process would share one place.
            queues: true,
            ..can
        }
    }

    fn sequencers<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn VerifySequencers> {
        // Permits have no tokens that a sequencer could name.
        let has = self.capabilities(inner).sequencers;
        inner.extensions().sequencers.filter(|_| has)
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let ask = AttemptRequest {
            ticket: self.of(&ask.ticket),
            ..ask.clone()
        };
        Box::pin(async move {
            if let LockKind::Permits(count) = ask.ticket.kind {
                let counter = inner.extensions().permit_counter;
                let total = PermitChange::SetIfNew(count.into());
                if let Some(counter) = counter
                    && let Err(error) = counter.change(&ask.ticket.name, total).await
                {
                    return error.into();
                }
            }
            inner.attempt(&ask).await
        })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.iter().map(|renewal| Renewal {
            ticket: self.of(&renewal.ticket),
            ..renewal.clone()
        });
        let batch: Vec<_> = batch.collect();
        Box::pin(async move { inner.renew(&batch).await })
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        let ticket = self.of(ticket);
        Box::pin(async move { inner.release(&ticket).await })
    }

    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        let ticket = self.of(ticket);
        Box::pin(async move { inner.withdraw(&ticket).await })
    }
}
