//! Lock-delay: beside a key a marker under a longer lease, which stands for a time when the key has gone without a release.
//!
//! It is made by the transaction that makes the key, so it has the key's place in the queue: whoever waits behind the one
//! waits behind the other, also `etcdctl lock` and the `concurrency` package. While its owner waits it stands under the
//! key's own lease, and goes with it; it is put under the longer one before a grant is reported. Nothing stands for ever:
//! that lease ends by itself, and its holder keeps it alive no longer than the key's.

use std::time::Duration;

use super::Etcd;
use super::api::TxnRequest;
use super::attempt::{Place, untouched};
use super::calls::{created, ops, put, whole_seconds};
use super::claims::Lease;
use super::errors::Trouble;
use crate::backend::{Ask, Moment, Ticket};
use crate::error::{Error, ErrorKind, Result};

/// The server ends leases up to a second late, and not all of them equally.
const SLACK: Duration = Duration::from_secs(1);

impl Etcd {
    /// A lease for the marker of a ticket, which is there now. `None`: the ticket wants none.
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
            claims.ended(&ask.ticket, id);
        }
        let granted = self.new_marker_lease(&ask.ticket, lease, ask.delay, deadline);
        granted.await.map(Some)
    }

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

    /// Before a grant is reported: from now on the marker outlives the key. False: the key has gone.
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
        // It finds no key once the ticket has been withdrawn, however late it arrives.
        let txn = TxnRequest {
            compare: vec![created(place.key.as_bytes(), revision)],
            success: ops([put(&place.marker(), ask.ticket.owner.text(), id)]),
            failure: Vec::new(),
        };
        let done = self.link.txn(txn, deadline).await;
        Ok(done.map_err(Trouble::error).map_err(unclear)?.succeeded)
    }
}

/// The key is there, and first.
fn unclear(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => {
            Error::new(ErrorKind::OutcomeUnknown).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
}
