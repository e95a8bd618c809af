//! The transactions that change a semaphore, and the decisions between them.
//!
//! A ticket enters the queue with a key for a waiter. The key of a holder replaces it in one transaction, which compares two
//! things with what was read before: the last change of the number of permits, and the waiter's own key. That is enough.
//! As long as the number is the same, those ahead of a waiter are counted as if they had their permits already, so nobody
//! can take what its decision has counted on, however late its transaction arrives: those behind it left room for it in
//! their own decisions. All other changes only give permits back. A ticket that never waited has no key that those behind
//! it could have counted, so its transaction also compares that no key is newer than what was read.
//!
//! Without the comparison of the number, permits would be issued twice: the number shrinks, or it grows and a waiter that
//! was passed over is counted, and a decision that was made before that takes effect after it.

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::api::{Compare, TxnRequest};
use crate::store::etcd::calls::{
    changed, created, delete, delete_all, is_empty, none_since, ops, put, says,
};
use crate::store::etcd::permit_keys::PermitKeys;
use crate::store::etcd::permit_view::{PermitEntry, PermitView};
use crate::store::kinds::is_lock;
use crate::store::permit_order::PermitTurn;

/// The next step of an attempt.
#[derive(Debug)]
pub(crate) enum PermitStep<'a> {
    /// It holds its permits already.
    Holds(&'a PermitEntry),
    /// It holds them if this transaction succeeds. Otherwise the answer has a new view.
    Grant(TxnRequest),
    /// This transaction gives it a place in the queue. The answer has a new view.
    Enter(TxnRequest),
    /// There are too few permits. `None`: it has no place in the queue.
    Waits(Option<&'a PermitEntry>),
}

impl PermitKeys {
    /// Decides the next step of an attempt from what was read. `queues`: the ticket waits for its turn. `lease`: that of its
    /// keys.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] if the name is a lock, or if a key of another client has the name of the ticket's key.
    pub(crate) fn step<'a>(
        &self,
        view: &'a PermitView,
        owner: &str,
        queues: bool,
        lease: i64,
    ) -> Result<PermitStep<'a>> {
        let own = |entries: &'a [PermitEntry], key: &str| {
            let own = entries.iter().find(|entry| entry.key == key.as_bytes());
            match own {
                Some(own) if own.owner != owner => Err(Error::new(ErrorKind::WrongType)
                    .because("a key of another client has the name of this ticket's key")),
                own => Ok(own),
            }
        };
        if let Some(held) = own(&view.holders, &self.held)? {
            return Ok(PermitStep::Holds(held));
        }
        if view.is_lock {
            return Err(is_lock());
        }
        let place = own(&view.waiters, &self.waiting)?;
        if place.is_none() && queues {
            return Ok(PermitStep::Enter(self.enter(owner, lease)));
        }
        if self.turn_is_due(view) {
            return Ok(PermitStep::Grant(self.grant(view, place, owner, lease)));
        }
        Ok(PermitStep::Waits(place))
    }

    fn turn_is_due(&self, view: &PermitView) -> bool {
        view.turn(self).0 == PermitTurn::Gets
    }

    /// Whether the permits are granted now to a ticket that does not wait for them.
    pub(crate) fn are_available(&self, view: &PermitView) -> Result<bool> {
        if view.is_lock {
            return Err(is_lock());
        }
        Ok(self.turn_is_due(view))
    }

    /// The place in the queue. An existing key is left unchanged, so a retry is idempotent.
    pub(crate) fn enter(&self, owner: &str, lease: i64) -> TxnRequest {
        let own = put(&self.waiting, owner, lease);
        TxnRequest {
            compare: self.is_new().into(),
            success: ops([own].into_iter().chain(self.looks())),
            failure: ops(self.looks()),
        }
    }

    fn is_new(&self) -> [Compare; 2] {
        [&self.held, &self.waiting].map(|key| created(key.as_bytes(), 0))
    }

    /// The key of a holder, in place of that of the waiter if the ticket has waited. See the head of this file.
    fn grant(
        &self,
        view: &PermitView,
        place: Option<&PermitEntry>,
        owner: &str,
        lease: i64,
    ) -> TxnRequest {
        let held = put(&self.held, owner, lease);
        let mut compare = vec![changed(self.number().as_bytes(), view.numbered)];
        if let Some(place) = place {
            compare.push(created(&place.key, place.revision));
        } else {
            compare.extend(self.is_new());
            compare.push(none_since(self.folder(), view.revision));
        }
        let waited = place.map(|place| delete(&place.key));
        TxnRequest {
            compare,
            success: ops([held].into_iter().chain(waited)),
            failure: ops(self.looks()),
        }
    }

    /// Deletes the ticket's key as a holder, or as a waiter, if it still has the owner. `revision`: the key must have been
    /// created then.
    pub(crate) fn removal(&self, owner: &str, held: bool, revision: Option<i64>) -> TxnRequest {
        let key = if held { &self.held } else { &self.waiting };
        let unchanged = revision.map(|revision| created(key.as_bytes(), revision));
        TxnRequest {
            compare: [says(key, owner)].into_iter().chain(unchanged).collect(),
            success: ops([delete(key.as_bytes())]),
            failure: Vec::new(),
        }
    }

    /// Gives the semaphore another number, unless that has changed since it was read, or the name is a lock.
    pub(crate) fn renumber(&self, view: &PermitView, total: i64) -> TxnRequest {
        let is_free = (view.total.is_none()).then(|| is_empty(&self.queue));
        let unchanged = changed(self.number().as_bytes(), view.numbered);
        TxnRequest {
            compare: [unchanged].into_iter().chain(is_free).collect(),
            success: ops([put(self.number(), &total.to_string(), 0)]),
            failure: Vec::new(),
        }
    }

    /// Deletes the keys of all holders. `seen`: only if none of them is newer than this view.
    pub(crate) fn clearance(&self, seen: Option<&PermitView>) -> TxnRequest {
        let none_newer = seen.map(|view| none_since(self.holders(), view.revision));
        TxnRequest {
            compare: none_newer.into_iter().collect(),
            success: ops([delete_all(self.holders())]),
            failure: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
