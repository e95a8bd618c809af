//! Read-write locks inside one transaction: who enters, who leaves, and what their waiters are told.

use std::time::Duration;

use rusqlite::Result;

use crate::store::fair_waiters::{COUNTED, FairPosition, QueueLook, unconfirmed};
use crate::store::side_order::{Follows, turns_ahead};
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::side_rows::{QueuedRow, SideQueue, holds_as};
use crate::store::{LockKind, OwnerId, Released, Renewal, Ticket};

impl LockTransaction<'_> {
    /// As [`attempt`](Self::attempt), for a side of a read-write lock.
    pub(crate) fn attempt_side(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
        follows: Follows<'_>,
    ) -> Result<Decision> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        if self.is_withdrawn(owner)? {
            return Ok(Decision::Withdrawn);
        }
        if self.is_semaphore(name)? {
            return Ok(Decision::IsSemaphore);
        }
        self.make_sides()?;
        // Also if the ticket was granted: its reader may have been lost since, and others may have had the lock in between.
        if self.has_no_reader(name, follows)? {
            return Ok(Decision::NotFollowed);
        }
        match self.side_of(name, owner)? {
            Some(holder) if holder.held_as.is_some() => {
                self.extend_holder(name, &holder, lease)?;
                return Ok(Decision::Granted(holder.token, 0));
            }
            Some(_) => {}
            // A row that no longer counts would keep the place of the next attempt.
            None => self.remove_side(owner)?,
        }
        let served = if let Follows::Writer(writer) = follows {
            let Some(writer) = self.holder_of(name, writer, LockKind::Write)? else {
                return Ok(Decision::NotFollowed);
            };
            self.join(ticket, lease, &writer)?
        } else {
            let place = match follows {
                Follows::Upgradeable(_) => FairPosition::First,
                Follows::Nobody | Follows::Writer(_) => position,
            };
            self.take_side_place(ticket, lease, place)?;
            let mut all = self.serve_sides(name, Some((owner, lease)))?.into_iter();
            all.find(|(served, _)| served == owner)
                .map(|(_, decision)| decision)
        };
        match served {
            Some(granted @ Decision::Granted(..)) => Ok(granted),
            Some(refused) => {
                self.remove_side(owner)?;
                Ok(refused)
            }
            None => {
                if position == FairPosition::None {
                    self.remove_side(owner)?;
                }
                let left = self.side_queue(name)?.left();
                Ok(Decision::Held(left.unwrap_or_default()))
            }
        }
    }

    /// Whether this is an upgrade whose reader does not hold the lock.
    fn has_no_reader(&self, name: &str, follows: Follows<'_>) -> Result<bool> {
        let Follows::Upgradeable(reader) = follows else {
            return Ok(false);
        };
        let reader = self.holder_of(name, reader, LockKind::UpgradeableRead)?;
        Ok(reader.is_none())
    }

    /// The hold of an owner, if it is of this kind.
    fn holder_of(&self, name: &str, owner: &OwnerId, kind: LockKind) -> Result<Option<QueuedRow>> {
        let row = self.side_of(name, owner.text())?;
        Ok(row.filter(|row| row.held_as.is_some() && row.kind == kind))
    }

    /// If nobody would enter with an attempt of this ticket: the rest of the lease, and whether the ticket has the place
    /// that it asks for. Only reads.
    pub(crate) fn side_is_kept_out(
        &self,
        ticket: &Ticket,
        position: FairPosition,
    ) -> Result<Option<(Duration, bool)>> {
        let owner = ticket.owner.text();
        if !self.has_sides()? || self.is_withdrawn(owner)? {
            return Ok(None);
        }
        let queue = self.side_queue(ticket.name.as_str())?;
        let placed = position == FairPosition::None || queue.has_waiter(owner);
        let left = queue.left().unwrap_or_default();
        Ok(is_kept_out(&queue, ticket, position).then_some((left, placed)))
    }

    /// Puts the ticket into the queue, and returns the rest of the lease, if nobody enters. Otherwise changes nothing.
    pub(crate) fn wait_behind_holders(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
    ) -> Result<Option<Duration>> {
        if self.is_withdrawn(ticket.owner.text())? {
            return Ok(None);
        }
        let queue = self.without_the_dead(ticket.name.as_str())?;
        if !is_kept_out(&queue, ticket, position) {
            return Ok(None);
        }
        self.take_side_place(ticket, lease, position)?;
        Ok(Some(queue.left().unwrap_or_default()))
    }

    /// The queue of a name, whose dead entries are removed.
    fn without_the_dead(&self, name: &str) -> Result<SideQueue> {
        let queue = self.side_queue(name)?;
        for dead in &queue.dead {
            self.remove_side(dead)?;
            self.leave_queue(dead)?;
        }
        Ok(queue)
    }

    /// Lets in all waiters of a name that may enter now: those of a read-write lock and of a fair lock, or those for
    /// permits. Returns their owners.
    pub(crate) fn serve(&self, name: &str) -> Result<Vec<String>> {
        // A waiter for a lock of that name gets an error at its next attempt.
        if self.is_semaphore(name)? {
            return self.serve_permits(name, None);
        }
        if !self.has_sides_of(name)? {
            return Ok(self.hand_over(name)?.into_iter().collect());
        }
        // Without a next token the lock stays free, and the attempt of the waiter says why.
        let served = self.serve_sides(name, None)?.into_iter();
        let granted = served.filter(|(_, decision)| matches!(decision, Decision::Granted(..)));
        Ok(granted.map(|(owner, _)| owner).collect())
    }

    /// Lets in all waiters that may enter now. `caller`: the owner that makes this attempt, and its lease. The grants of
    /// all others are not confirmed: their owners do not know of them.
    fn serve_sides(
        &self,
        name: &str,
        caller: Option<(&str, Duration)>,
    ) -> Result<Vec<(String, Decision)>> {
        let queue = self.without_the_dead(name)?;
        let entering = queue.entering();
        let Some(first) = entering.first() else {
            return Ok(Vec::new());
        };
        if first.kind.is_fair() {
            let granted = self.take(name, &first.owner, unconfirmed(first.asked()), 0)?;
            if matches!(granted, Decision::Granted(..)) {
                self.leave_queue(&first.owner)?;
            }
            return Ok(vec![(first.owner.clone(), granted)]);
        }
        let beside = queue.holders.first();
        let held_as = beside.and_then(|holder| holder.held_as.clone());
        let held_as = held_as.unwrap_or_else(|| holds_as(&first.owner));
        let mut served = Vec::new();
        for waiter in &entering {
            let lease = match caller {
                Some((owner, lease)) if owner == waiter.owner => lease,
                _ => unconfirmed(waiter.asked()),
            };
            let decision = self.let_in(&waiter.owner, lease, &held_as)?;
            let granted = matches!(decision, Decision::Granted(..));
            served.push((waiter.owner.clone(), decision));
            if !granted {
                break;
            }
        }
        self.show_holders(name, &held_as)?;
        Ok(served)
    }

    /// Lets a reader in beside the writer that it follows.
    fn join(
        &self,
        ticket: &Ticket,
        lease: Duration,
        writer: &QueuedRow,
    ) -> Result<Option<Decision>> {
        let Some(held_as) = &writer.held_as else {
            return Ok(Some(Decision::NotFollowed));
        };
        self.take_side_place(ticket, lease, FairPosition::First)?;
        let decision = self.let_in(ticket.owner.text(), lease, held_as)?;
        self.show_holders(ticket.name.as_str(), held_as)?;
        Ok(Some(decision))
    }

    fn let_in(&self, owner: &str, lease: Duration, held_as: &str) -> Result<Decision> {
        let (token, _) = match self.next_token(0)? {
            Ok(next) => next,
            Err(value) => return Ok(Decision::NoToken(value)),
        };
        self.hold_side(owner, lease, held_as, token)?;
        Ok(Decision::Granted(Some(token), 0))
    }

    fn extend_holder(&self, name: &str, holder: &QueuedRow, lease: Duration) -> Result<()> {
        self.extend_side(holder, lease)?;
        self.show_holders(name, holder.held_as.as_deref().unwrap_or_default())
    }

    /// As [`renew`](Self::renew), for a side.
    pub(crate) fn renew_side(&self, renewal: &Renewal) -> Result<bool> {
        let Ticket { name, owner, .. } = &renewal.ticket;
        if !self.has_sides()? {
            return Ok(false);
        }
        let own = self.side_of(name.as_str(), owner.text())?;
        match own.filter(|own| own.held_as.is_some()) {
            Some(holder) => self
                .extend_holder(name.as_str(), &holder, renewal.lease)
                .map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`release`](Self::release), for a side. A place in the queue is given up too.
    pub(crate) fn release_side(&self, ticket: &Ticket) -> Result<Released> {
        if !self.has_sides()? {
            return Ok(Released::NotHeld);
        }
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        // Rows that cannot be read are deleted too, or nobody would get the lock any more.
        let Some(own) = unless_unreadable(self.side_of(name, owner))? else {
            self.remove_row_of_last(name, owner)?;
            self.remove_side(owner)?;
            return Ok(Released::NotHeld);
        };
        self.remove_side(owner)?;
        let Some(held_as) = own.and_then(|own| own.held_as) else {
            return Ok(Released::NotHeld);
        };
        // If the row of another holder cannot be read, that of the lock stays as it is.
        unless_unreadable(self.show_holders(name, &held_as))?;
        Ok(Released::Freed)
    }

    /// As [`look_at_queue`](Self::look_at_queue), for a name with sides. The second value tells whether a waiter may enter
    /// now.
    pub(crate) fn look_at_sides(&self, name: &str, client: &str) -> Result<(QueueLook, bool)> {
        let queue = self.side_queue(name)?;
        let own = |waiter: &&QueuedRow| waiter.client == client;
        let waiting = queue.waiters.iter().filter(own);
        let first = queue.waiters.iter().position(|waiter| own(&waiter));
        let ahead = first.map_or(0, |first| {
            let ahead = queue.waiters[..first].iter().map(|waiter| waiter.kind);
            turns_ahead(ahead, queue.waiters[first].kind).min(COUNTED)
        });
        let look = QueueLook {
            waiting: waiting.map(|waiter| waiter.owner.clone()).collect(),
            ahead,
            left: queue.left().unwrap_or_default(),
        };
        Ok((look, !queue.entering().is_empty()))
    }
}

/// Whether nobody enters when this ticket comes. The holder of the lock has an answer of its own.
fn is_kept_out(queue: &SideQueue, ticket: &Ticket, position: FairPosition) -> bool {
    let owner = ticket.owner.text();
    if queue.has_waiter(owner) {
        return queue.entering().is_empty();
    }
    queue.holder(owner).is_none() && queue.keeps_out(ticket, position)
}

#[cfg(test)]
mod tests;
