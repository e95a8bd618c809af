//! A store wrapper that turns every lock into the write side of a read-write lock.

use super::twist::Twist;
use crate::error::Result;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, LockKind, Released, Renewal,
    Renewed, Ticket,
};

/// Replaces the kind of every ticket with [`Kind::Write`].
#[derive(Debug)]
pub(super) struct Writer;

fn write(ticket: &Ticket) -> Ticket {
    Ticket {
        kind: LockKind::Write,
        ..ticket.clone()
    }
}

impl Twist for Writer {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        Capabilities {
            // In every store with read-write locks, waiters for a side have a queue.
            queues: true,
            ..inner.capabilities()
        }
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let ask = AttemptRequest {
            ticket: write(&ask.ticket),
            ..ask.clone()
        };
        Box::pin(async move { inner.attempt(&ask).await })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.iter().map(|renewal| Renewal {
            ticket: write(&renewal.ticket),
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
        let ticket = write(ticket);
        Box::pin(async move { inner.release(&ticket).await })
    }

    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        let ticket = write(ticket);
        Box::pin(async move { inner.withdraw(&ticket).await })
    }
}
