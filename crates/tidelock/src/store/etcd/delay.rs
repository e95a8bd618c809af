//! Lock-delay: each key has a marker under a longer lease. If the key expires without a release, the marker still
//! blocks the lock for the delay.
//!
//! The transaction that creates the key also creates the marker, so both have the same place in the queue. A waiter
//! behind the key also waits behind the marker; this includes `etcdctl lock` and the `concurrency` package. While its
//! owner waits, the marker is under the key's own lease and expires with the key. Before a grant is reported, we move
//! the marker to the longer lease. A marker always expires: the holder keeps its lease alive only as long as that of
//! the key.

use std::time::Duration;

use crate::error::Result;
use crate::store::errors::may_have_run;
use crate::store::etcd::Etcd;
use crate::store::etcd::api::TxnRequest;
use crate::store::etcd::calls::{created, ops, put, whole_seconds};
use crate::store::etcd::errors::{RequestError, untouched};
use crate::store::etcd::queue::QueueKeys;
use crate::store::etcd::ticket_leases::Lease;
use crate::store::{AttemptRequest, BootInstant, Ticket};

/// Bounds the difference between the expiry of two leases: the server expires each lease up to a second late.
const SLACK: Duration = Duration::from_secs(1);

impl Etcd {
    /// A live lease for the ticket's marker. `None`: the ticket has no lock-delay.
    pub(crate) async fn marker_lease(
        &self,
        ask: &AttemptRequest,
        lease: Lease,
        deadline: BootInstant,
    ) -> Result<Option<i64>> {
        if ask.delay.is_zero() {
            return Ok(None);
        }
        let ticket_leases = &self.shared.ticket_leases;
        if let Some(&id) = ticket_leases.markers(&ask.ticket).last() {
            let kept = self.connection.keep_alive(&[id], deadline).await;
            if kept.map_err(untouched)?.contains_key(&id) {
                return Ok(Some(id));
            }
            // The known lease has expired: grant a new one.
            ticket_leases.ended(&ask.ticket, id);
        }
        let granted = self.new_marker_lease(&ask.ticket, lease, ask.delay, deadline);
        granted.await.map(Some)
    }

    /// Grants a lease for a marker: `delay` longer than `lease`. Records it before anything is written under it.
    pub(crate) async fn new_marker_lease(
        &self,
        ticket: &Ticket,
        lease: Lease,
        delay: Duration,
        deadline: BootInstant,
    ) -> Result<i64> {
        let length = whole_seconds(lease.ttl + delay + SLACK);
        let granted = self.connection.grant(length, deadline).await;
        let marker = granted.map_err(untouched)?;
        match self.shared.ticket_leases.marked(ticket, marker) {
            Ok(()) => Ok(marker.id),
            Err(withdrawn) => {
                self.revoke_in_background(vec![marker.id]);
                Err(withdrawn)
            }
        }
    }

    /// Moves the marker to a longer lease, so that it outlives the key. Called before a grant is reported. False: the
    /// key no longer exists.
    pub(crate) async fn outlive(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        lease: Lease,
        revision: i64,
        deadline: BootInstant,
    ) -> Result<bool> {
        let id = self.marker_lease(ask, lease, deadline).await;
        let Some(id) = id.map_err(may_have_run)? else {
            return Ok(true);
        };
        // A withdrawal deletes the key. The condition then fails, however late this request arrives.
        let txn = TxnRequest {
            compare: vec![created(queue_keys.key.as_bytes(), revision)],
            success: ops([put(&queue_keys.marker(), ask.ticket.owner.text(), id)]),
            failure: Vec::new(),
        };
        let done = self.connection.txn(txn, deadline).await;
        Ok(done
            .map_err(RequestError::error)
            .map_err(may_have_run)?
            .succeeded)
    }
}
