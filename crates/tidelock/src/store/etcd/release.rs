//! Release, withdrawal and forced release.
//!
//! All of them delete a key under a condition on its creation revision or owner. Otherwise a late request could delete
//! the key of a later holder.

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{Mode, Snapshot};
use crate::store::errors::{after_a_change, may_have_run};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{Compare, KeyValue, Op, RequestOp, TxnRequest};
use crate::store::etcd::calls::{all, created, delete, found, get, none_since, oldest, ops, says};
use crate::store::etcd::errors::{RequestError, untouched};
use crate::store::etcd::foreign_keys;
use crate::store::etcd::inspect;
use crate::store::etcd::keys::{self, Folder};
use crate::store::etcd::queue::{self, QueueKeys};
use crate::store::etcd::queue_view::KeyQueue;
use crate::store::etcd::ticket_leases::Remains;
use crate::store::{BootInstant, LockKind, Name, Released, Ticket};
use crate::types::Escaped;

/// Bounds the rounds of a forced release while the holder changes again and again.
const TURNS: usize = 8;

/// Whose place goes with the key of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceOf {
    /// Its own.
    Ticket,
    /// A reader may have taken it over. Then neither key is deleted.
    TicketOrReader,
    /// A reader has taken it over, so it stays.
    Reader,
}

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

    /// Deletes the ticket's keys. Returns whether it held the lock. `None`: its key was not there.
    async fn remove(
        &self,
        ticket: &Ticket,
        queue_keys: &QueueKeys,
        deadline: BootInstant,
    ) -> Result<Option<bool>> {
        if let LockKind::Permits(permits) = ticket.kind {
            return self.remove_permits(ticket, permits, deadline).await;
        }
        if !self.shared.ticket_leases.is_followed(ticket) {
            let all = self.removal(ticket, queue_keys, PlaceOf::Ticket);
            return self.remove_by(queue_keys, all, deadline).await;
        }
        // A reader may have taken over the place of this writer. Then the place stays, and only the writer's key goes.
        let all = self.removal(ticket, queue_keys, PlaceOf::TicketOrReader);
        match self.remove_by(queue_keys, all, deadline).await? {
            None => {
                let own = self.removal(ticket, queue_keys, PlaceOf::Reader);
                self.remove_by(queue_keys, own, deadline).await
            }
            removed => Ok(removed),
        }
    }

    /// The transaction that deletes the ticket's keys if its own key still contains the owner and was not created again
    /// meanwhile. It reads first whether the ticket holds the lock.
    fn removal(&self, ticket: &Ticket, queue_keys: &QueueKeys, place_of: PlaceOf) -> TxnRequest {
        let QueueKeys { key, folder, .. } = queue_keys;
        let ticket_leases = &self.shared.ticket_leases;
        // This is an orderly end, so there is no lock-delay: the marker goes with the key.
        let marks = !ticket_leases.delay(ticket).is_zero();
        let marker = marks.then(|| delete(queue_keys.marker().as_bytes()));
        let revision = ticket_leases.revision(ticket);
        let mut compare = vec![says(key, ticket.owner.text())];
        if let Some(revision) = revision {
            compare.push(created(key.as_bytes(), revision));
        }
        let place = queue_keys.place.as_deref();
        if let (PlaceOf::TicketOrReader, Some(place)) = (place_of, place) {
            compare.push(says(place, ticket.owner.text()));
        }
        let place = place.filter(|_| place_of != PlaceOf::Reader);
        let look: Vec<Op> = if queue_keys.reads {
            let up_to = revision.map_or(0, |revision| revision.saturating_sub(1));
            queue_keys.ahead(up_to).collect()
        } else {
            vec![Op::Range(oldest(folder))]
        };
        let place = place.map(|place| delete(place.as_bytes()));
        TxnRequest {
            compare,
            success: ops(look
                .into_iter()
                .chain([delete(key.as_bytes())])
                .chain(marker)
                .chain(place)),
            failure: Vec::new(),
        }
    }

    async fn remove_by(
        &self,
        queue_keys: &QueueKeys,
        removal: TxnRequest,
        deadline: BootInstant,
    ) -> Result<Option<bool>> {
        let answer = self.transact(removal, deadline).await;
        let answer = answer.map_err(RequestError::error)?;
        let seen = queue::latest(&answer.responses);
        let held = if queue_keys.reads {
            // A reader that was a writer has held the lock since its key was created, whatever was ahead of that key.
            seen.is_none() || queue_keys.has_joined()
        } else {
            seen.is_some_and(|first| queue_keys.owns(&first.key))
        };
        Ok(answer.succeeded.then_some(held))
    }

    /// Revokes unused leases in the background. On an error they expire by themselves.
    pub(crate) fn revoke_in_background(&self, leases: Vec<i64>) {
        if leases.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let connection = self.connection.clone();
        let in_flight = shared.count_write();
        shared.background.spawn(async move {
            for id in leases {
                if let Err(failure) = connection.revoke(id, connection.deadline()).await {
                    tracing::debug!(error = %Escaped(&failure), "a lease could not be revoked; it expires by itself");
                }
            }
            drop(in_flight);
        });
    }

    /// Deletes the keys of all holders of a read-write lock. `None`: nobody holds it.
    async fn force_sides(&self, folder: &Folder, deadline: BootInstant) -> Result<Option<bool>> {
        let seen = self.connection.range(all(folder), deadline).await;
        let seen = seen.map_err(untouched)?;
        let queue = KeyQueue::of(folder, &seen.kvs);
        foreign_keys::refuse(folder, queue.holders().iter().copied())?;
        if queue.holders().is_empty() {
            return Ok(None);
        }
        for (removed, holder) in queue.holders().iter().enumerate() {
            let removal = self.remove_holder(folder, &queue, holder, deadline).await;
            removal.map_err(|error| after_a_change(removed > 0, error))?;
        }
        Ok(Some(true))
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
            // The deletions before it, if there were any, were refused.
            let holder = holder.map_err(untouched)?.kvs.into_iter().next();
            // Holders of permits are still there if somebody deleted the number by hand.
            let Some(holder) = holder else {
                return self.force_permits(name, None, deadline).await;
            };
            if holder.key == self.shared.keys.number(name).as_bytes() {
                return self.force_permits(name, None, deadline).await;
            }
            foreign_keys::refuse(&folder, [&holder])?;
            if folder.mode(&holder.key) != Mode::Exclusive
                && let Some(freed) = self.force_sides(&folder, deadline).await?
            {
                return Ok(freed);
            }
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

    /// Reads who holds the lock, and deletes the keys of these holders if they are those in `seen` and still hold it.
    async fn force_if(&self, name: &Name, seen: &Snapshot, deadline: BootInstant) -> Result<bool> {
        let folder = self.shared.keys.folder(name);
        for _ in 0..TURNS {
            let tokens = get(&self.shared.keys.tokens(name));
            let look = TxnRequest {
                success: ops([all(&folder), tokens].map(Op::Range)),
                ..TxnRequest::default()
            };
            let answer = self.connection.txn(look, deadline).await;
            let answer = answer.map_err(untouched)?;
            let [kvs, tokens] = [0, 1].map(|n| found(answer.responses.get(n)));
            let kvs = kvs.map(|kvs| &*kvs.kvs).unwrap_or_default();
            let number = self.shared.keys.number(name);
            if kvs.is_empty() || kvs.iter().any(|kv| kv.key == number.as_bytes()) {
                return self.force_permits(name, Some(seen), deadline).await;
            }
            let queue = KeyQueue::of(&folder, kvs);
            foreign_keys::refuse(&folder, queue.holders().iter().copied())?;
            let owners: Vec<String> = { queue.holders().iter() }
                .map(|holder| inspect::owner(holder))
                .collect();
            let created_at = queue.holders().iter().map(|holder| holder.create_revision);
            let raised = tokens.map_or(0, inspect::newest_revision);
            let newest = created_at.fold(raised, i64::max);
            let mut now = owners.iter().map(String::as_str);
            if !seen.is_of(&mut now, u64::try_from(newest).ok()) {
                return Ok(false);
            }
            // The first of them decide. Each key of another holder in `seen` may go on its own after that.
            let (first, rest) = queue.holders().split_at(queue.holders().len().min(AT_ONCE));
            let removal = removal_of(&folder, &queue, first, queue::now(&answer));
            let removed = self.connection.txn(removal, deadline).await;
            if removed.map_err(RequestError::error)?.succeeded {
                for holder in rest {
                    let removal = self.remove_holder(&folder, &queue, holder, deadline).await;
                    removal.map_err(may_have_run)?;
                }
                return Ok(true);
            }
        }
        Err(Error::new(ErrorKind::Unavailable).because(
            "the queue of the lock changed after each look; nothing was released, try again",
        ))
    }

    /// Deletes the keys of one holder, unless it has released the lock by itself meanwhile.
    async fn remove_holder(
        &self,
        folder: &Folder,
        queue: &KeyQueue<'_>,
        holder: &KeyValue,
        deadline: BootInstant,
    ) -> Result<()> {
        let removal = TxnRequest {
            compare: vec![created(&holder.key, holder.create_revision)],
            success: keys_of(folder, queue, holder).collect(),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(removal, deadline).await;
        answer.map(drop).map_err(RequestError::error)
    }
}

/// Bounds the holders that one transaction removes: etcd allows 128 comparisons and operations, and a writer has two keys.
const AT_ONCE: usize = 60;

/// The transaction that deletes the keys of these holders, read at revision `now`, unless one of them has gone since, or
/// another one may have entered beside them.
fn removal_of(
    folder: &Folder,
    queue: &KeyQueue<'_>,
    holders: &[&KeyValue],
    now: i64,
) -> TxnRequest {
    let is_there = |kv: &&KeyValue| created(&kv.key, kv.create_revision);
    let mut compare: Vec<Compare> = holders.iter().map(is_there).collect();
    // Keys enter behind an exclusive holder. But a reader enters beside readers: with a new key, also by a downgrade beside
    // a writer, or when the first waiter, a writer, gives up.
    let shares = |holder: &&KeyValue| folder.mode(&holder.key) != Mode::Exclusive;
    if holders.iter().any(shares) {
        compare.push(none_since(folder, now));
        compare.extend(queue.first_waiter().as_ref().map(is_there));
    }
    let each = holders.iter();
    TxnRequest {
        compare,
        success: each
            .flat_map(|holder| keys_of(folder, queue, holder))
            .collect(),
        failure: Vec::new(),
    }
}

/// The operations that delete the keys of a holder: its own, its marker of a lock-delay, which only an exclusive holder has,
/// and its place for a downgrade.
fn keys_of(
    folder: &Folder,
    queue: &KeyQueue<'_>,
    holder: &KeyValue,
) -> impl Iterator<Item = RequestOp> + use<> {
    let marks = folder.mode(&holder.key) == Mode::Exclusive;
    let marker = marks.then(|| keys::marker_of(&holder.key));
    let place = folder
        .place(&holder.key)
        .filter(|place| queue.has_key(place));
    let all = [Some(holder.key.clone()), marker, place];
    ops(all.into_iter().flatten().map(|key| delete(&key))).into_iter()
}

fn released(removed: Option<bool>) -> Released {
    match removed {
        Some(true) => Released::Freed,
        // The ticket only had a position in the queue.
        Some(false) | None => Released::NotHeld,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::etcd::keys::Keys;

    #[test]
    fn readers_go_only_if_nobody_can_have_entered_beside_them() {
        let folder = Keys::new("").folder(&Name::new("a").unwrap());
        let kv = |(key, revision): (&str, i64)| KeyValue {
            key: format!("a/{key}").into_bytes(),
            create_revision: revision,
            ..KeyValue::default()
        };
        let waits = ("write/2", 4);
        let place = ("read/2.downgrade", 4);
        let kvs = [("read/1", 3), waits, place, ("read/3", 5)].map(kv);
        let queue = KeyQueue::of(&folder, &kvs);
        let removal = removal_of(&folder, &queue, queue.holders(), 7);
        let there = |(key, revision)| created(&kv((key, revision)).key, revision);
        // If the writer gave up, the reader behind it would enter.
        let compared = [there(("read/1", 3)), none_since(&folder, 7), there(waits)];
        assert_eq!(removal.compare, compared);
        assert_eq!(removal.success, ops([delete(b"a/read/1")]));
    }
}
