//! A granted ticket: what the renewals of a hold and its release need to know of it.

use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::store::{LockKind, Name, Renewal, Ticket};

/// A ticket that the store has granted, or may have granted.
#[derive(Debug, Clone)]
pub(crate) struct GrantedTicket {
    pub(crate) ticket: Ticket,
    pub(crate) lease: Duration,
    /// How many replicas must acknowledge a renewal.
    pub(crate) wish: ReplicaAck,
    /// An earlier request of this ticket may still arrive at the store. We then withdraw the ticket instead of
    /// releasing it: the withdrawal leaves a tombstone.
    pub(crate) in_doubt: bool,
}

impl GrantedTicket {
    /// The lock, for the instruments.
    pub(crate) fn subject(&self) -> (LockKind, &Name) {
        (self.ticket.kind, &self.ticket.name)
    }

    /// A renewal for that lease.
    pub(super) fn renewal(&self, lease: Duration) -> Renewal {
        Renewal {
            ticket: self.ticket.clone(),
            lease,
            wish: self.wish,
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl GrantedTicket {
    /// A ticket for tests without a store.
    pub(crate) fn of(name: crate::store::Name, lease: Duration) -> Self {
        Self {
            ticket: Ticket {
                kind: crate::types::LockKind::Mutex,
                name,
                owner: crate::types::OwnerMint::new().fresh(),
            },
            lease,
            wish: ReplicaAck::Off,
            in_doubt: false,
        }
    }
}
