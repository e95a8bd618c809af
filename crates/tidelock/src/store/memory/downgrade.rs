//! A writer becomes a reader.

use super::counter;
use super::queue::QueuedHold;
use super::world::Records;
use crate::error::{Error, Result};
use crate::store::{Attempt, AttemptRequest, BootInstant, OwnerId, Ticket};
use crate::types::LostReason;

/// Grants the lock to a reader beside the writer that it follows.
pub(crate) fn join(
    records: &mut Records,
    ask: &AttemptRequest,
    writer: &OwnerId,
    now: BootInstant,
) -> Result<Attempt> {
    let Ticket { kind, name, owner } = &ask.ticket;
    let queue = records.queue(name, now);
    if !queue.is_some_and(|queue| queue.is_written_by(writer)) {
        return Err(Error::lost(LostReason::Taken));
    }
    let token = records.tokens.next(name, 0);
    let reader = QueuedHold {
        kind: *kind,
        owner: owner.clone(),
        ends: now + ask.lease,
        token: Some(token),
        upgrade_of: None,
        delay: ask.delay,
    };
    let queue = records.locks.entry(name.clone()).or_default();
    queue.put_behind(writer, reader);
    Ok(counter::granted(token, 0))
}
