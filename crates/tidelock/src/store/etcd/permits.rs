//! Semaphores: acquires permits, gives them back, changes their number, and shows who has them.

use std::time::Duration;

use futures_util::future::{join, try_join_all};

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{Done, TxnRequest, TxnResponse};
use crate::store::etcd::errors::{RequestError, unclear, unsent, untouched};
use crate::store::etcd::permit_keys::PermitKeys;
use crate::store::etcd::permit_steps::PermitStep;
use crate::store::etcd::permit_view::{PermitEntry, PermitView};
use crate::store::etcd::queue;
use crate::store::etcd::ticket_leases::Lease;
use crate::store::kinds::is_lock;
use crate::store::{
    Attempt, AttemptRequest, BootInstant, BoxFuture, Grant, Name, PermitChange, PermitCounter,
    Ticket, Wait, Wake,
};

/// Bounds the steps of one attempt while others change the semaphore between two of its requests.
const MAX_STEPS: usize = 8;

/// Bounds the steps of an attempt without patience, until it takes a place in the queue for the rest of them. With a place,
/// those that come between two of its requests are behind it.
const MAX_STEPS_WITHOUT_A_PLACE: usize = 3;

/// The outcome of the steps of an attempt.
enum PermitAnswer {
    /// The key of the holder, by its creation revision and its lease. With the store's revision in the answer that showed it.
    Holds(i64, i64, i64),
    /// There are too few permits, as this view shows. With the lease of the key as a waiter, if there is one.
    Waits(PermitView, Option<i64>),
}

impl Etcd {
    /// As [`acquire`](Self::acquire), for permits.
    pub(crate) async fn acquire_permits(
        &self,
        ask: &AttemptRequest,
        permits: u16,
    ) -> Result<Attempt> {
        let deadline = self.connection.deadline();
        let ticket_leases = &self.shared.ticket_leases;
        let mut seen = None;
        if ask.patience.is_zero() && ticket_leases.lease(&ask.ticket)?.is_none() {
            // The ticket has no key yet, so the id in its keys does not matter.
            let keys = PermitKeys::named(&self.shared.keys, &ask.ticket.name, permits, 0);
            let view = self.view_permits(&keys, deadline).await;
            let view = view.map_err(untouched)?;
            // Another attempt of this ticket may have taken the permits meanwhile. It records its lease before it writes.
            if keys.are_available(&view)? {
                seen = Some(view);
            } else if ticket_leases.id(&ask.ticket).is_none() {
                return Ok(Attempt::Held(Wait::default()));
            }
        }
        let mut wake = None;
        // As for a lock: the reused lease may have expired, or the key may be under the lease of another attempt.
        for round in 0..3 {
            let (lease, fresh) = self.lease_for_ticket(ask, round == 0, deadline).await?;
            let keys = self.permit_keys(&ask.ticket, permits);
            let keys = keys.ok_or_else(|| unsent("the ticket has no lease"))?;
            // We arm the wake before we send. Otherwise a release between the answer and the arming would be missed.
            if ask.wants_wake() && wake.is_none() {
                wake = Some(self.shared.signals.arm(&keys.waiting));
            }
            // A spare lease may have named a key that the view still has: one of an earlier ticket, which has gone since.
            let seen = seen.take().filter(|view| !view.has_key_of(&keys));
            let round = (seen, lease, fresh);
            if let Some(answer) = self.permit_round(ask, &keys, round, deadline).await? {
                let waits = (wake, lease.ttl / 3);
                return self.permits_from(ask, &keys, answer, waits, deadline).await;
            }
        }
        Err(unsent(
            "the server ended every lease right after it had granted it",
        ))
    }

    /// Makes the steps of one attempt and, unless the lease is `fresh`, keeps it alive. `None`: another round is needed,
    /// because the lease has ended, or the key is under another one.
    async fn permit_round(
        &self,
        ask: &AttemptRequest,
        keys: &PermitKeys,
        (seen, lease, fresh): (Option<PermitView>, Lease, bool),
        deadline: BootInstant,
    ) -> Result<Option<PermitAnswer>> {
        let ticket_leases = &self.shared.ticket_leases;
        let steps = self.permit_steps(ask, keys, (seen, lease.id), deadline);
        // An older lease may expire at any time, so a grant under it counts only after a successful keep-alive.
        let (kept, answer) = if fresh {
            (Ok(true), steps.await)
        } else {
            join(self.alive(&ask.ticket, lease, deadline), steps).await
        };
        let answer = match (kept, answer) {
            (_, Err(failure)) if failure.is_lease_gone() => None,
            (_, Err(failure)) => return Err(failure.error()),
            (_, Ok(None)) => {
                let ended = self.end_shared_lease(&ask.ticket, lease.id, deadline);
                ended.await?;
                None
            }
            // It has no key that a lost keep-alive could leave with too short a lease.
            (Err(failure), Ok(Some(PermitAnswer::Waits(_, None)))) => {
                return Err(untouched(failure));
            }
            // The key may exist, but without a keep-alive its lease may be shorter than requested.
            (Err(failure), Ok(_)) => return Err(unclear(failure)),
            (Ok(kept), Ok(answer)) => answer.filter(|_| kept),
        };
        let Some(answer) = answer else {
            ticket_leases.ended(&ask.ticket, lease.id);
            return Ok(None);
        };
        if let PermitAnswer::Holds(_, id, _) | PermitAnswer::Waits(_, Some(id)) = answer {
            ticket_leases.record_key_lease(&ask.ticket, id);
            if id != lease.id {
                return Ok(None);
            }
        }
        Ok(Some(answer))
    }

    /// Turns the answer of an attempt into its result, and starts to watch if we wait.
    async fn permits_from(
        &self,
        ask: &AttemptRequest,
        keys: &PermitKeys,
        answer: PermitAnswer,
        (wake, recheck): (Option<Wake>, Duration),
        deadline: BootInstant,
    ) -> Result<Attempt> {
        match answer {
            PermitAnswer::Holds(revision, _, seen) => {
                self.record_creation(&ask.ticket, revision, seen);
                Ok(Attempt::Acquired(Grant::default()))
            }
            PermitAnswer::Waits(view, _) if ask.patience.is_zero() => {
                if let Some(place) = view.place(keys) {
                    // Only this place: another attempt of this ticket may have been granted its permits meanwhile, or have
                    // taken a place again when this request arrives late.
                    let owner = ask.ticket.owner.text();
                    let removal = keys.removal(owner, false, Some(place.revision));
                    let removed = self.connection.txn(removal, deadline).await;
                    if !removed.map_err(RequestError::error)?.succeeded {
                        return Err(unsent("the place in the queue has gone; try again"));
                    }
                }
                self.shared.ticket_leases.absent(&ask.ticket, view.revision);
                Ok(Attempt::Held(Wait::default()))
            }
            PermitAnswer::Waits(view, _) => {
                let ranges = view.watched_by(keys);
                let watcher = &self.shared.watcher;
                watcher.follow(&keys.waiting, ranges, view.revision);
                // A waiter's retry is its keep-alive: if it comes in time, the waiter keeps its place in the queue.
                Ok(Attempt::held(wake, recheck))
            }
        }
    }

    /// Makes the steps of one attempt, each decided from what the one before has read. `None`: a key of an earlier ticket may
    /// be under its lease.
    async fn permit_steps(
        &self,
        ask: &AttemptRequest,
        keys: &PermitKeys,
        (seen, lease): (Option<PermitView>, i64),
        deadline: BootInstant,
    ) -> Result<Option<PermitAnswer>, RequestError> {
        let (ticket, owner) = (&ask.ticket, ask.ticket.owner.text());
        let ticket_leases = &self.shared.ticket_leases;
        let patient = !ask.patience.is_zero();
        let mut wrote = patient && seen.is_none();
        let mut view = match seen {
            Some(view) => view,
            None if patient => {
                let enter = keys.enter(owner, lease);
                let answer = self.send_step(ticket, enter, false, deadline).await?;
                if answer.succeeded && ticket_leases.is_doubted(ticket) {
                    return Ok(None);
                }
                PermitView::of(keys, &answer).map_err(RequestError::Classified)?
            }
            // Nothing has been written yet.
            None => {
                let view = self.view_permits(keys, deadline).await;
                view.map_err(|failure| RequestError::Classified(untouched(failure)))?
            }
        };
        for steps in 0..MAX_STEPS {
            if view.has_left_over(keys, &ticket.owner) {
                return Ok(None);
            }
            let queues = patient || steps >= MAX_STEPS_WITHOUT_A_PLACE;
            let step = keys.step(&view, owner, queues, lease);
            let (txn, grants) = match step.map_err(RequestError::Classified)? {
                PermitStep::Holds(own) => {
                    let seen = view.revision;
                    return Ok(Some(PermitAnswer::Holds(own.revision, own.lease, seen)));
                }
                PermitStep::Waits(place) => {
                    let lease = place.map(|place| place.lease);
                    return Ok(Some(PermitAnswer::Waits(view, lease)));
                }
                PermitStep::Grant(txn) => (txn, true),
                PermitStep::Enter(txn) => (txn, false),
            };
            let is_new = view.place(keys).is_none();
            let answer = self.send_step(ticket, txn, wrote, deadline).await?;
            if answer.succeeded && is_new && ticket_leases.is_doubted(ticket) {
                return Ok(None);
            }
            if grants && answer.succeeded {
                let now = queue::now(&answer);
                return Ok(Some(PermitAnswer::Holds(now, lease, now)));
            }
            wrote |= answer.succeeded;
            view = PermitView::of(keys, &answer).map_err(RequestError::Classified)?;
        }
        let why = "the semaphore changed after each look; the attempt is repeated";
        Err(RequestError::Classified(unsent(why)))
    }

    /// Sends a transaction that may write a key of this ticket. `wrote`: one before it has written a key.
    async fn send_step(
        &self,
        ticket: &Ticket,
        txn: TxnRequest,
        wrote: bool,
        deadline: BootInstant,
    ) -> Result<TxnResponse, RequestError> {
        let ticket_leases = &self.shared.ticket_leases;
        let sending = ticket_leases.sending(ticket);
        sending.map_err(RequestError::Classified)?;
        let answer = self.transact(txn, deadline).await;
        // With an unknown outcome the request still counts as in flight, so a withdrawal revokes the leases.
        if answer.as_ref().err().is_none_or(RequestError::is_certain) {
            ticket_leases.answered(ticket);
        }
        answer.map_err(|failure| {
            if wrote && !failure.is_lease_gone() {
                RequestError::Classified(unclear(failure))
            } else {
                failure
            }
        })
    }

    async fn view_permits(
        &self,
        keys: &PermitKeys,
        deadline: BootInstant,
    ) -> Result<PermitView, RequestError> {
        let seen = self.transact(keys.look(), deadline).await?;
        PermitView::of(keys, &seen).map_err(RequestError::Classified)
    }

    /// `None`: the ticket never had a lease, so no request can have created a key.
    fn permit_keys(&self, ticket: &Ticket, permits: u16) -> Option<PermitKeys> {
        let id = self.shared.ticket_leases.id(ticket)?;
        let keys = &self.shared.keys;
        Some(PermitKeys::named(keys, &ticket.name, permits, id))
    }

    /// Deletes the ticket's key, as a holder or as a waiter. Returns whether it held permits. `None`: it had no key.
    pub(crate) async fn remove_permits(
        &self,
        ticket: &Ticket,
        permits: u16,
        deadline: BootInstant,
    ) -> Result<Option<bool>> {
        let Some(keys) = self.permit_keys(ticket, permits) else {
            return Ok(None);
        };
        let revision = self.shared.ticket_leases.revision(ticket);
        // First the key that it has as far as we know. After a lost reply it has the other one.
        for held in [revision.is_some(), revision.is_none()] {
            let removal = keys.removal(ticket.owner.text(), held, revision.filter(|_| held));
            let answer = self.transact(removal, deadline).await;
            if answer.map_err(RequestError::error)?.succeeded {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// Takes the permits of all holders back, or only if they are those in `seen`. False: nobody held any, or somebody else.
    pub(crate) async fn force_permits(
        &self,
        name: &Name,
        seen: Option<&Snapshot>,
        deadline: BootInstant,
    ) -> Result<bool> {
        let keys = PermitKeys::of_semaphore(&self.shared.keys, name);
        for _ in 0..MAX_STEPS {
            let mut view = None;
            if let Some(seen) = seen {
                let now = self.view_permits(&keys, deadline).await;
                // The deletions before it, if there were any, were refused.
                let now = now.map_err(untouched)?;
                let owners = now.holders.iter().map(PermitEntry::shown_owner);
                let owners: Vec<String> = owners.collect();
                if !seen.is_of(&mut owners.iter().map(String::as_str), None) {
                    return Ok(false);
                }
                view = Some(now);
            }
            let clearance = keys.clearance(view.as_ref());
            let answer = self.connection.txn(clearance, deadline).await;
            let answer = answer.map_err(RequestError::error)?;
            if answer.succeeded {
                let done = answer.responses.first().and_then(|it| it.done.as_ref());
                return Ok(matches!(done, Some(Done::Delete(all)) if all.deleted > 0));
            }
        }
        Err(Error::new(ErrorKind::Unavailable).because(
            "the holders of the permits changed after each look; nothing was released, try again",
        ))
    }

    /// Describes a semaphore.
    pub(crate) async fn look_at_permits(
        &self,
        name: &Name,
        deadline: BootInstant,
    ) -> Result<Snapshot> {
        let keys = PermitKeys::of_semaphore(&self.shared.keys, name);
        let view = self.view_permits(&keys, deadline).await;
        let view = view.map_err(untouched)?;
        let mut snapshot = Snapshot::free(name.as_str());
        let count = |total: i64| PermitCount::new(total.saturating_sub(view.held()), total);
        snapshot.permits = view.total.map(count);
        snapshot.waiters = Some(view.waiters.len() as u64);
        let each = view.holders.iter().map(async |entry| {
            let left = self.connection.left(entry.lease, deadline).await;
            let left = left.map_err(untouched)?;
            let mut holder = Holder::new(entry.shown_owner(), entry.permits.into());
            holder.mode = Mode::Permits;
            holder.client = self.client(&entry.owner, deadline).await;
            Ok((left, holder))
        });
        for (left, holder) in try_join_all(each).await? {
            // Rounded down to whole seconds, so even at zero some time remains. `None`: it has just ended.
            let left = left.map(|left| left.max(Duration::from_millis(1)));
            snapshot.expires_in = snapshot.expires_in.max(left);
            snapshot.holders.push(holder);
        }
        Ok(snapshot)
    }

    async fn change_permits(&self, name: &Name, change: PermitChange) -> Result<bool> {
        let deadline = self.connection.deadline();
        let keys = PermitKeys::of_semaphore(&self.shared.keys, name);
        for _ in 0..MAX_STEPS {
            let view = self.view_permits(&keys, deadline).await;
            let view = view.map_err(untouched)?;
            if view.is_lock {
                return Err(is_lock());
            }
            let after = match (change, view.total) {
                (PermitChange::SetIfNew(_), Some(total)) => total,
                (PermitChange::SetIfNew(total) | PermitChange::Set(total), _) => total.into(),
                (PermitChange::Add(more), total) => total.unwrap_or(0).saturating_add(more.into()),
            };
            if view.total == Some(after) {
                return Ok(false);
            }
            let renumber = keys.renumber(&view, after);
            let answer = self.connection.txn(renumber, deadline).await;
            if answer.map_err(RequestError::error)?.succeeded {
                return Ok(true);
            }
        }
        Err(unsent(
            "the number of permits changed after each look; nothing was changed, try again",
        ))
    }
}

impl PermitCounter for Etcd {
    fn queues(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.change_permits(name, change))
    }
}
