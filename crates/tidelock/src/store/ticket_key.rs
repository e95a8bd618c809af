//! What tells an acquisition from all others.

use crate::store::{Name, Ticket};
use crate::types::OwnerId;

/// The key of a ticket in a table of this process. The owner alone is not enough: all parts of a multi lock have one
/// owner, and a table by owner would mix up what it knows of each part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TicketKey {
    pub(crate) owner: OwnerId,
    pub(crate) name: Name,
}

impl TicketKey {
    pub(crate) fn of(ticket: &Ticket) -> Self {
        Self {
            owner: ticket.owner.clone(),
            name: ticket.name.clone(),
        }
    }
}
