//! An upgradeable reader becomes a writer.

use super::world::Records;
use crate::error::{Error, Result};
use crate::store::{AttemptRequest, BootInstant, Ticket};
use crate::types::LostReason;

/// When the first entry that blocks this attempt ends. `None`: nothing blocks it.
pub(crate) fn in_the_way(
    records: &mut Records,
    ask: &AttemptRequest,
    now: BootInstant,
) -> Option<BootInstant> {
    let Ticket { kind, name, owner } = &ask.ticket;
    let queue = records.queue(name, now);
    queue.and_then(|queue| match &ask.upgrade_of {
        Some(reader) => queue.beside(reader),
        None => queue.in_the_way(owner, *kind),
    })
}

/// Makes sure that the reader of an upgrade holds the lock, also if the upgrade was granted before.
///
/// # Errors
/// `Lost` if it does not: another writer may have had the lock since.
pub(crate) fn check_reader(
    records: &mut Records,
    ask: &AttemptRequest,
    now: BootInstant,
) -> Result<()> {
    let Some(reader) = &ask.upgrade_of else {
        return Ok(());
    };
    let queue = records.queue(&ask.ticket.name, now);
    if queue.is_some_and(|queue| queue.is_upgradeable(reader)) {
        Ok(())
    } else {
        Err(Error::lost(LostReason::Taken))
    }
}
