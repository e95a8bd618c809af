//! An upgradeable reader becomes a writer.

use super::world::Records;
use crate::error::{Error, Result};
use crate::store::{AttemptRequest, BootInstant, Ticket};
use crate::types::LostReason;

/// When the first entry that blocks this attempt ends. `None`: nothing blocks it.
///
/// # Errors
/// `Lost` for an upgrade whose reader does not hold the lock: another writer may have had it since.
pub(crate) fn in_the_way(
    records: &mut Records,
    ask: &AttemptRequest,
    now: BootInstant,
) -> Result<Option<BootInstant>> {
    let Ticket { kind, name, owner } = &ask.ticket;
    let queue = records.queue(name, now);
    let Some(reader) = &ask.upgrade_of else {
        return Ok(queue.and_then(|queue| queue.in_the_way(owner, *kind)));
    };
    match queue.filter(|queue| queue.is_upgradeable(reader)) {
        Some(queue) => Ok(queue.beside(reader)),
        None => Err(Error::lost(LostReason::Taken)),
    }
}
