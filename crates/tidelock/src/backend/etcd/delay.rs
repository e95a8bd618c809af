//! Lock-delay: each key has a marker under a longer lease. If the key expires without a release, the marker still
//! blocks the lock for the delay.
//!
//! The transaction that creates the key also creates the marker, so both have the same place in the queue. A waiter
//! behind the key also waits behind the marker; this includes `etcdctl lock` and the `concurrency` package. While its
//! owner waits, the marker is under the key's own lease and expires with the key. Before a grant is reported, we move
//! the marker to the longer lease. A marker always expires: the holder keeps its lease alive only as long as that of
//! the key.

use std::time::Duration;

use super::Etcd;
use super::api::TxnRequest;
use super::attempt::{Place, untouched};
use super::calls::{created, ops, put, whole_seconds};
use super::claims::Lease;
use super::errors::Trouble;
use crate::backend::{Ask, Moment, Ticket};
use crate::error::{Error, ErrorKind, Result};

/// Bounds the difference between the expiry of two leases: the server expires each lease up to a second late.
const SLACK: Duration = Duration::from_secs(1);

impl Etcd {
    /// A live lease for the ticket's marker. `None`: the ticket has no lock-delay.
    pub(super) async fn marker_lease(
        &self,
        ask: &Ask,
        lease: Lease,
        deadline: Moment,
    ) -> Result<Option<i64>> {
        if ask.delay.is_zero() {
            return Ok(None);
        }
        let claims = &self.shared.claims;
        if let Some(&id) = claims.markers(&ask.ticket).last() {
            let kept = self.link.keep_alive(&[id], deadline).await;
            if kept.map_err(untouched)?.contains_key(&id) {
                return Ok(Some(id));
            }
            // The known lease has expired: grant a new one.
            claims.ended(&ask.ticket, id);
        }
        let granted = self.new_marker_lease(&ask.ticket, lease, ask.delay, deadline);
        granted.await.map(Some)
    }

    /// Grants a lease for a marker: `delay` longer than `lease`. Records it before anything is written under it.
    pub(super) async fn new_marker_lease(
        &self,
        ticket: &Ticket,
        lease: Lease,
        delay: Duration,
        deadline: Moment,
    ) -> Result<i64> {
        let length = whole_seconds(lease.ttl + delay + SLACK);
        let granted = self.link.grant(length, deadline).await;
        let marker = granted.map_err(untouched)?;
        match self.shared.claims.marked(ticket, marker) {
            Ok(()) => Ok(marker.id),
            Err(withdrawn) => {
                self.let_go(vec![marker.id]);
                Err(withdrawn)
            }
        }
    }

    /// Moves the marker to a longer lease, so that it outlives the key. Called before a grant is reported. False: the
    /// key no longer exists.
    pub(super) async fn outlive(
        &self,
        ask: &Ask,
        place: &Place,
        lease: Lease,
        revision: i64,
        deadline: Moment,
    ) -> Result<bool> {
        let id = self.marker_lease(ask, lease, deadline).await;
        let Some(id) = id.map_err(unclear)? else {
            return Ok(true);
        };
        // A withdrawal deletes the key. The condition then fails, however late this request arrives.
        let txn = TxnRequest {
            compare: vec![created(place.key.as_bytes(), revision)],
            success: ops([put(&place.marker(), ask.ticket.owner.text(), id)]),
            failure: Vec::new(),
        };
        let done = self.link.txn(txn, deadline).await;
        Ok(done.map_err(Trouble::error).map_err(unclear)?.succeeded)
    }
}

/// Converts an error: our key is the first, so we may hold the lock, and `Unavailable` becomes `OutcomeUnknown`.
fn unclear(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => {
            Error::new(ErrorKind::OutcomeUnknown).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
}
