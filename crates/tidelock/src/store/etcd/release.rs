//! Release, withdrawal and forced release.
//!
//! All of them delete a key under a condition on its creation revision or owner. Otherwise a late request could delete
//! the key of a later holder.

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::etcd::Etcd;
use crate::store::etcd::acquire::QueueKeys;
use crate::store::etcd::api::{Op, TxnRequest};
use crate::store::etcd::calls::{created, delete, found, oldest, ops, says};
use crate::store::etcd::errors::RequestError;
use crate::store::etcd::inspect::{self, first_with_marker};
use crate::store::etcd::keys;
use crate::store::etcd::ticket_leases::Remains;
use crate::store::{BootInstant, Name, Released, Ticket};
use crate::types::Escaped;

/// Bounds the rounds of a forced release while the holder changes again and again.
const TURNS: usize = 8;

impl Etcd {
    /// Releases a lock: deletes its key, and keeps its lease for reuse if no request is in flight.
    pub(crate) async fn give_back(&self, ticket: &Ticket) -> Result<Released> {
        let Some(queue_keys) = QueueKeys::of(self, ticket) else {
            return Ok(Released::NotHeld);
        };
        let removed = self
            .remove(ticket, &queue_keys, self.connection.deadline())
            .await?;
        self.revoke_in_background(self.shared.ticket_leases.settle(ticket, removed.is_some()));
        Ok(released(removed))
    }

    /// Withdraws a ticket: deletes its key. If a request is still in flight, we also revoke its leases, so that a late
    /// request finds no lease to write its key under.
    pub(crate) async fn take_back(&self, ticket: &Ticket) -> Result<Released> {
        let deadline = self.connection.deadline();
        let ticket_leases = &self.shared.ticket_leases;
        let remains = ticket_leases.withdraw(ticket);
        let queue_keys = QueueKeys::of(self, ticket).filter(|_| remains != Remains::Nothing);
        let Some(queue_keys) = queue_keys else {
            self.revoke_in_background(ticket_leases.settle(ticket, true));
            return Ok(Released::NotHeld);
        };
        // Delete the key before we revoke. A revocation does not tell whether the key still existed.
        let removed = self.remove(ticket, &queue_keys, deadline).await?;
        match remains {
            Remains::Requests(mut leases) => {
                leases.extend(ticket_leases.needless(ticket, removed.is_some()));
                for id in leases {
                    let revoked = self.connection.revoke(id, deadline).await;
                    // A retry of the withdrawal revokes the leases that remain.
                    revoked.map_err(RequestError::error)?;
                    ticket_leases.ended(ticket, id);
                }
            }
            _ => self.revoke_in_background(ticket_leases.settle(ticket, removed.is_some())),
        }
        Ok(released(removed))
    }

    /// Deletes the ticket's key if it still contains the owner and was not created again meanwhile. Returns whether it
    /// was the first in the queue. `None`: it was not there.
    async fn remove(
        &self,
        ticket: &Ticket,
        queue_keys: &QueueKeys,
        deadline: BootInstant,
    ) -> Result<Option<bool>> {
        let QueueKeys { key, folder } = queue_keys;
        // This is an orderly end, so there is no lock-delay: the marker goes with the key.
        let marks = !self.shared.ticket_leases.delay(ticket).is_zero();
        let marker = marks.then(|| delete(queue_keys.marker().as_bytes()));
        let mut compare = vec![says(key, ticket.owner.text())];
        if let Some(revision) = self.shared.ticket_leases.revision(ticket) {
            compare.push(created(key.as_bytes(), revision));
        }
        let txn = TxnRequest {
            compare,
            success: ops([Op::Range(oldest(folder)), delete(key.as_bytes())]
                .into_iter()
                .chain(marker)),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(txn, deadline).await;
        let answer = answer.map_err(RequestError::error)?;
        let first = found(answer.responses.first()).and_then(|first| first.kvs.first());
        let was_first = first.is_some_and(|first| queue_keys.owns(&first.key));
        Ok(answer.succeeded.then_some(was_first))
    }

    /// Revokes unused leases in the background. On an error they expire by themselves.
    pub(crate) fn revoke_in_background(&self, leases: Vec<i64>) {
        if leases.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let connection = self.connection.clone();
        shared.background.spawn(async move {
            for id in leases {
                if let Err(failure) = connection.revoke(id, connection.deadline()).await {
                    tracing::debug!(error = %Escaped(&failure), "a lease could not be revoked; it expires by itself");
                }
            }
        });
    }

    /// Forced release: deletes the key of any holder, or of the holder in `seen`. False: nobody held the lock, or somebody
    /// else.
    pub(crate) async fn force(&self, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
        let deadline = self.connection.deadline();
        if let Some(seen) = seen {
            return self.force_if(name, seen, deadline).await;
        }
        let folder = self.shared.keys.folder(name);
        for _ in 0..TURNS {
            let holder = self.connection.range(oldest(&folder), deadline).await;
            let holder = holder.map_err(RequestError::error)?.kvs.into_iter().next();
            let Some(holder) = holder else {
                return Ok(false);
            };
            // Delete the marker too, even one without a key: a forced release also ends a lock-delay.
            let key = keys::marked(&holder.key).unwrap_or(&holder.key);
            // Delete the key, but do not revoke its lease. Other keys of its owner may be under the same lease.
            let txn = TxnRequest {
                compare: vec![created(&holder.key, holder.create_revision)],
                success: ops([delete(key), delete(&keys::marker_of(key))]),
                failure: Vec::new(),
            };
            let answer = self.connection.txn(txn, deadline).await;
            if answer.map_err(RequestError::error)?.succeeded {
                return Ok(true);
            }
        }
        // Every holder that we found has released the lock by itself.
        Ok(true)
    }

    async fn force_if(&self, name: &Name, seen: &Snapshot, deadline: BootInstant) -> Result<bool> {
        let first = first_with_marker(&self.shared.keys.folder(name));
        let queue = self.connection.range(first, deadline).await;
        let queue = queue.map_err(RequestError::error)?;
        let Some(holder) = inspect::holder(&queue) else {
            return Ok(false);
        };
        let (owner, token) = (inspect::owner(holder), holder.create_revision);
        if !seen.is_of(&mut [&*owner].into_iter(), u64::try_from(token).ok()) {
            return Ok(false);
        }
        // The condition fails if the holder has left since. Otherwise the key is still the first in its queue: keys enter
        // behind it.
        let txn = TxnRequest {
            compare: vec![created(&holder.key, holder.create_revision)],
            success: ops([delete(&holder.key), delete(&keys::marker_of(&holder.key))]),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(txn, deadline).await;
        Ok(answer.map_err(RequestError::error)?.succeeded)
    }
}

fn released(removed: Option<bool>) -> Released {
    match removed {
        Some(true) => Released::Freed,
        // The ticket only had a place in the queue.
        Some(false) | None => Released::NotHeld,
    }
}
