//! A store that was restored from a snapshot.
//!
//! A released lock may have its key again, under a lease that serves another ticket of this client by now. As long as this
//! client kept that lease alive, everybody would find the lock taken, and nobody could release it. So we end such a lease.
//! An attempt notices it in three ways:
//!
//! 1. The store's revision has gone back since an earlier answer. Then all leases are in doubt, until the ticket has another.
//! 2. It has created its key, and that key was there before.
//! 3. A key of an earlier ticket of this client has the name of its key: that ticket had the same lease.
//!
//! While a ticket's key is there, its lease has no other key. The keys of earlier tickets were deleted before it was created,
//! so a snapshot that has it does not have those.

use crate::error::Result;
use crate::store::etcd::api::{Done, TxnRequest, TxnResponse};
use crate::store::etcd::errors::{RequestError, unclear};
use crate::store::etcd::queue::{self, QueueKeys};
use crate::store::etcd::{Etcd, Shared};
use crate::store::{AttemptRequest, BootInstant, OwnerId, Ticket};

/// Whether a key with this value is of an earlier ticket of the client that has this owner.
pub(crate) fn is_left_over(value: &str, owner: &OwnerId) -> bool {
    value != owner.text() && OwnerId::of_text(value).client() == owner.client()
}

impl Etcd {
    /// Sends a transaction, and notices whether the store has gone back.
    pub(crate) async fn transact(
        &self,
        txn: TxnRequest,
        deadline: BootInstant,
    ) -> Result<TxnResponse, RequestError> {
        let Shared {
            revision,
            ticket_leases,
            ..
        } = &*self.shared;
        let before = revision.newest();
        let answer = self.connection.txn(txn, deadline).await?;
        let mut done = answer.responses.iter().map(|one| &one.done);
        let wrote = done.any(|done| matches!(done, Some(Done::Put(_))));
        if revision.went_back(before, queue::now(&answer), wrote) {
            self.revoke_in_background(ticket_leases.doubt_all());
        }
        Ok(answer)
    }

    /// Records the creation revision of a ticket's key, from an answer that showed the key at revision `seen` of the store.
    pub(crate) fn record_creation(&self, ticket: &Ticket, created: i64, seen: i64) {
        let Shared {
            revision,
            ticket_leases,
            ..
        } = &*self.shared;
        // Since the answer came, we may have waited for a keep-alive, and the store may have gone back.
        ticket_leases.created(ticket, created, revision.bounded(seen));
    }

    /// Whether a key of an earlier ticket may be under the lease of this one, by the answer to an attempt.
    pub(crate) fn may_share_lease(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        answer: &TxnResponse,
    ) -> bool {
        // The lease of a downgrade has the place of a writer, which would be lost with it.
        if ask.downgrade_of.is_some() {
            return false;
        }
        if answer.succeeded {
            let was_there = queue_keys.known.is_some();
            return was_there || self.shared.ticket_leases.is_doubted(&ask.ticket);
        }
        let own = queue::own_key(answer);
        let own = own.and_then(|own| std::str::from_utf8(&own.value).ok());
        own.is_some_and(|own| is_left_over(own, &ask.ticket.owner))
    }

    /// Revokes a lease that a key of an earlier ticket may be under, and that of this ticket with it.
    pub(crate) async fn end_shared_lease(
        &self,
        ticket: &Ticket,
        id: i64,
        deadline: BootInstant,
    ) -> Result<()> {
        // Not kept alive any more, it ends by itself if it cannot be revoked.
        self.shared.ticket_leases.ended(ticket, id);
        let revoked = self.connection.revoke(id, deadline).await;
        revoked.map_err(|failure| {
            self.revoke_in_background(vec![id]);
            unclear(failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    #[test]
    fn a_key_of_an_earlier_ticket_of_the_same_client_is_left_over() {
        let (mine, others) = (OwnerMint::new(), OwnerMint::new());
        let (earlier, owner) = (mine.fresh(), mine.fresh());
        assert!(is_left_over(earlier.text(), &owner));
        for value in [owner.text(), others.fresh().text(), "", "7"] {
            assert!(!is_left_over(value, &owner), "{value}");
        }
    }
}
