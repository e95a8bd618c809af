//! Semaphores inside one transaction: who gets permits, who gives them back, and what their waiters are told.

use std::time::Duration;

use rusqlite::Result;

use crate::store::fair_waiters::{COUNTED, FairPosition, QueueLook, unconfirmed};
use crate::store::permit_order::permit_turns_ahead;
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::permit_rows::{PermitQueue, PermitRow};
use crate::store::sqlite::records::LockTransaction;
use crate::store::{PermitChange, Released, Renewal, Ticket};

/// What a change of the number of permits has done.
#[derive(Debug)]
pub(crate) enum PermitsChanged {
    /// Whether the number has changed, and the owners of the waiters that have got permits by that.
    Done(bool, Vec<String>),
    /// The name is a lock.
    IsLock,
}

impl LockTransaction<'_> {
    /// As [`attempt`](Self::attempt), for permits of a semaphore.
    pub(crate) fn attempt_permits(
        &self,
        ticket: &Ticket,
        permits: u16,
        lease: Duration,
        position: FairPosition,
    ) -> Result<Decision> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        if self.is_withdrawn(owner)? {
            return Ok(Decision::Withdrawn);
        }
        if self.held_by_other(name, "")?.is_some() {
            return Ok(Decision::IsLock);
        }
        self.make_permits()?;
        match self.permits_of(owner)? {
            Some(holder) if holder.is_held => {
                self.extend_permits(owner, lease)?;
                return Ok(Decision::Granted(None, 0));
            }
            Some(_) => {}
            // A row that no longer counts would keep the place of the next attempt.
            None => self.remove_permits(owner)?,
        }
        self.take_permit_place(ticket, permits, lease, position)?;
        let served = self.serve_permits(name, Some((owner, lease)))?;
        if served.iter().any(|one| one == owner) {
            return Ok(Decision::Granted(None, 0));
        }
        if position == FairPosition::None {
            self.remove_permits(owner)?;
        }
        let left = self.permit_queue(name)?.first_end();
        Ok(Decision::Held(left.unwrap_or_default()))
    }

    /// If nobody would get permits with an attempt of this ticket: when the first lease ends, and whether the ticket has
    /// the place that it asks for. Only reads.
    pub(crate) fn permits_are_kept_out(
        &self,
        ticket: &Ticket,
        permits: u16,
        position: FairPosition,
    ) -> Result<Option<(Duration, bool)>> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let has_tables = self.has_permits()?;
        if !has_tables || self.is_withdrawn(owner)? || self.held_by_other(name, "")?.is_some() {
            return Ok(None);
        }
        let queue = self.permit_queue(name)?;
        let placed = position == FairPosition::None || queue.has_waiter(owner);
        let left = queue.first_end().unwrap_or_default();
        Ok(is_kept_out(&queue, owner, permits, position).then_some((left, placed)))
    }

    /// Puts the ticket into the queue, and returns when the first lease ends, if nobody gets permits. Otherwise changes
    /// nothing.
    pub(crate) fn wait_for_permits(
        &self,
        ticket: &Ticket,
        permits: u16,
        lease: Duration,
        position: FairPosition,
    ) -> Result<Option<Duration>> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        if self.is_withdrawn(owner)? || self.held_by_other(name, "")?.is_some() {
            return Ok(None);
        }
        let queue = self.without_dead_permits(name)?;
        if !is_kept_out(&queue, owner, permits, position) {
            return Ok(None);
        }
        self.take_permit_place(ticket, permits, lease, position)?;
        Ok(Some(queue.first_end().unwrap_or_default()))
    }

    /// The queue of a semaphore, whose dead entries are removed.
    fn without_dead_permits(&self, name: &str) -> Result<PermitQueue> {
        let queue = self.permit_queue(name)?;
        for dead in &queue.dead {
            self.remove_permits(dead)?;
        }
        Ok(queue)
    }

    /// Gives permits to all waiters whose turn it is, and returns their owners. `caller`: the owner that makes this
    /// attempt, and its lease. The grants of all others are not confirmed: their owners do not know of them.
    pub(crate) fn serve_permits(
        &self,
        name: &str,
        caller: Option<(&str, Duration)>,
    ) -> Result<Vec<String>> {
        let queue = self.without_dead_permits(name)?;
        let mut served = Vec::new();
        for waiter in queue.served() {
            let lease = match caller {
                Some((owner, lease)) if owner == waiter.owner => lease,
                _ => unconfirmed(waiter.asked()),
            };
            self.hold_permits(&waiter.owner, lease)?;
            served.push(waiter.owner.clone());
        }
        Ok(served)
    }

    /// As [`renew`](Self::renew), for permits.
    pub(crate) fn renew_permits(&self, renewal: &Renewal) -> Result<bool> {
        if !self.has_permits()? {
            return Ok(false);
        }
        let owner = renewal.ticket.owner.text();
        let own = self.permits_of(owner)?;
        if !own.is_some_and(|own| own.is_held) {
            return Ok(false);
        }
        self.extend_permits(owner, renewal.lease).map(|()| true)
    }

    /// As [`release`](Self::release), for permits. A place in the queue is given up too.
    pub(crate) fn release_permits(&self, ticket: &Ticket) -> Result<Released> {
        if !self.has_permits()? {
            return Ok(Released::NotHeld);
        }
        let owner = ticket.owner.text();
        // One that cannot be read is deleted too, or nobody would get a permit any more.
        let own = unless_unreadable(self.permits_of(owner))?.flatten();
        self.remove_permits(owner)?;
        Ok(if own.is_some_and(|own| own.is_held) {
            Released::Freed
        } else {
            Released::NotHeld
        })
    }

    /// Whether this change does nothing, because the semaphore has a number. Only reads.
    pub(crate) fn permits_are_set(&self, name: &str, change: PermitChange) -> Result<bool> {
        let if_new = matches!(change, PermitChange::SetIfNew(_));
        Ok(if_new && self.is_semaphore(name)? && self.held_by_other(name, "")?.is_none())
    }

    /// Changes the number of permits, and gives those that are available then to the waiters. Takes none from a holder.
    pub(crate) fn change_permits(
        &self,
        name: &str,
        change: PermitChange,
    ) -> Result<PermitsChanged> {
        if self.held_by_other(name, "")?.is_some() {
            return Ok(PermitsChanged::IsLock);
        }
        self.make_permits()?;
        let before = self.total_permits(name)?;
        let after = match (change, before) {
            (PermitChange::SetIfNew(_), Some(total)) => total,
            (PermitChange::SetIfNew(total) | PermitChange::Set(total), _) => total.into(),
            (PermitChange::Add(more), before) => before.unwrap_or(0).saturating_add(more.into()),
        };
        if before == Some(after) {
            return Ok(PermitsChanged::Done(false, Vec::new()));
        }
        self.set_total_permits(name, after)?;
        Ok(PermitsChanged::Done(true, self.serve_permits(name, None)?))
    }

    /// Whether the name is a semaphore, or will be one, for which this client has waiters.
    pub(crate) fn waits_for_permits(&self, name: &str, client: &str) -> Result<bool> {
        Ok(self.is_semaphore(name)?
            || self.has_permits()?
                && self
                    .connection
                    .prepare_cached("SELECT 1 FROM permits WHERE name = ?1 AND client = ?2")?
                    .exists([name, client])?)
    }

    /// As [`look_at_queue`](Self::look_at_queue), for a semaphore.
    pub(crate) fn look_at_permits(&self, name: &str, client: &str) -> Result<(QueueLook, bool)> {
        let queue = self.permit_queue(name)?;
        let own = |waiter: &&PermitRow| waiter.client == client;
        let first = queue.waiters.iter().position(|waiter| own(&waiter));
        let ahead = queue.waiters.iter().take(first.unwrap_or(0));
        let wanted = ahead.map(|waiter| i64::from(waiter.permits)).sum();
        let ahead = permit_turns_ahead(queue.total.unwrap_or(0), wanted);
        let waiting = queue.waiters.iter().filter(own);
        let look = QueueLook {
            waiting: waiting.map(|waiter| waiter.owner.clone()).collect(),
            ahead: ahead.min(COUNTED),
            left: queue.first_end().unwrap_or_default(),
        };
        let is_due = queue.served().next().is_some();
        Ok((look, is_due))
    }
}

/// Whether nobody gets permits when this ticket comes. A holder has an answer of its own.
fn is_kept_out(queue: &PermitQueue, owner: &str, permits: u16, position: FairPosition) -> bool {
    if queue.has_waiter(owner) {
        return queue.served().next().is_none();
    }
    !queue.has_holder(owner) && queue.keeps_out(permits, position)
}

#[cfg(test)]
mod tests;
