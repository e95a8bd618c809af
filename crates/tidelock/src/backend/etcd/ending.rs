//! Giving back, withdrawing, and taking away.

use super::Etcd;
use super::api::{Op, TxnRequest};
use super::attempt::Place;
use super::calls::{created, delete, found, oldest, ops, says};
use super::claims::Remains;
use super::errors::Trouble;
use super::keys;
use crate::backend::{Moment, Name, Released, Ticket};
use crate::error::Result;

/// How often the holder may change while it is being taken away.
const TURNS: usize = 8;

impl Etcd {
    pub(super) async fn give_back(&self, ticket: &Ticket) -> Result<Released> {
        let Some(place) = Place::of(self, ticket) else {
            return Ok(Released::NotHeld);
        };
        let removed = self.remove(ticket, &place, self.link.deadline()).await?;
        self.let_go(self.shared.claims.settle(ticket, removed.is_some()));
        Ok(released(removed))
    }

    /// Where a request may still be on its way its leases go with the key: it finds none to write its key under.
    pub(super) async fn take_back(&self, ticket: &Ticket) -> Result<Released> {
        let deadline = self.link.deadline();
        let claims = &self.shared.claims;
        let remains = claims.withdraw(ticket);
        let place = Place::of(self, ticket).filter(|_| remains != Remains::Nothing);
        let Some(place) = place else {
            self.let_go(claims.settle(ticket, true));
            return Ok(Released::NotHeld);
        };
        // First, because whoever revokes is not told whether the key was still there.
        let removed = self.remove(ticket, &place, deadline).await?;
        match remains {
            Remains::Requests(mut leases) => {
                leases.extend(claims.needless(ticket, removed.is_some()));
                for id in leases {
                    let revoked = self.link.revoke(id, deadline).await;
                    revoked.map_err(Trouble::error)?;
                    claims.ended(ticket, id);
                }
            }
            _ => self.let_go(claims.settle(ticket, removed.is_some())),
        }
        Ok(released(removed))
    }

    /// Removes the ticket's own key: with its owner in it, and not if it was created anew. Yields whether it was the
    /// first. `None`: it was not there.
    async fn remove(
        &self,
        ticket: &Ticket,
        place: &Place,
        deadline: Moment,
    ) -> Result<Option<bool>> {
        let Place { key, folder } = place;
        // In good order: with its key goes its marker.
        let marks = !self.shared.claims.delay(ticket).is_zero();
        let marker = marks.then(|| delete(place.marker().as_bytes()));
        let mut compare = vec![says(key, ticket.owner.text())];
        if let Some(revision) = self.shared.claims.revision(ticket) {
            compare.push(created(key.as_bytes(), revision));
        }
        let txn = TxnRequest {
            compare,
            success: ops([Op::Range(oldest(folder)), delete(key.as_bytes())]
                .into_iter()
                .chain(marker)),
            failure: Vec::new(),
        };
        let answer = self.link.txn(txn, deadline).await;
        let answer = answer.map_err(Trouble::error)?;
        let first = found(answer.responses.first()).and_then(|first| first.kvs.first());
        let was_first = first.is_some_and(|first| place.owns(&first.key));
        Ok(answer.succeeded.then_some(was_first))
    }

    /// Ends leases that nobody needs, without being waited for.
    pub(super) fn let_go(&self, leases: Vec<i64>) {
        if leases.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let link = self.link.clone();
        shared.background.spawn(async move {
            for id in leases {
                if let Err(trouble) = link.revoke(id, link.deadline()).await {
                    tracing::debug!(error = %trouble, "a lease is left to run out");
                }
            }
        });
    }

    pub(super) async fn force(&self, name: &Name) -> Result<bool> {
        let deadline = self.link.deadline();
        let folder = self.shared.keys.folder(name);
        for _ in 0..TURNS {
            let holder = self.link.range(oldest(&folder), deadline).await;
            let holder = holder.map_err(Trouble::error)?.kvs.into_iter().next();
            let Some(holder) = holder else {
                return Ok(false);
            };
            // Its marker too, and a marker that stands alone: force is an operator's word.
            let key = keys::marked(&holder.key).unwrap_or(&holder.key);
            // Only the key: under a lease of somebody else there may stand what is no business of ours.
            let txn = TxnRequest {
                compare: vec![created(&holder.key, holder.create_revision)],
                success: ops([delete(key), delete(&keys::marker_of(key))]),
                failure: Vec::new(),
            };
            let answer = self.link.txn(txn, deadline).await;
            if answer.map_err(Trouble::error)?.succeeded {
                return Ok(true);
            }
        }
        // Each of those who were found has left by itself.
        Ok(true)
    }
}

fn released(removed: Option<bool>) -> Released {
    match removed {
        Some(true) => Released::Freed,
        // Only its place in the queue.
        Some(false) | None => Released::NotHeld,
    }
}
