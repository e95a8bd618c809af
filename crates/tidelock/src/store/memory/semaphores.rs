//! The requests for permits of semaphores.

use std::sync::Arc;

use super::world::World;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::{
    Attempt, AttemptRequest, BoxFuture, Name, PermitChange, PermitCounter, Released, Renewal,
    Renewed, Ticket, Timers, WakeChannels, ready,
};

/// The semaphores of the store, as one client sees them.
#[derive(Debug)]
pub(crate) struct Semaphores {
    pub(crate) world: Arc<World>,
    pub(crate) signals: WakeChannels,
    pub(crate) timers: Timers,
}

/// Wakes every waiter of a semaphore or a latch: each may ask for another number of permits. Not under the records' lock, see
/// [`Records::left`](super::world::Records::left).
pub(crate) fn tell_all(listeners: Option<Vec<WakeChannels>>, name: &Name) {
    for signals in listeners.into_iter().flatten() {
        signals.wake_all(name.as_str());
    }
}

impl Semaphores {
    pub(crate) fn take(&self, ask: &AttemptRequest, count: u16) -> Result<Attempt> {
        let Ticket { name, owner, .. } = &ask.ticket;
        // We arm before we lock the records; otherwise a release between the two would be missed.
        let wake = ask
            .armed_by
            .is_none()
            .then(|| self.signals.arm(name.as_str()));
        let now = self.timers.now();
        let mut records = self.world.lock();
        records.refuse_withdrawn(owner)?;
        records.refuse_lock(name, now)?;
        records.refuse_latch(name)?;
        let Some(semaphore) = records.semaphores.get_mut(name) else {
            return Ok(Attempt::held(wake, None)); // it has no permits yet
        };
        let back = semaphore.take_back(|hold| hold.ends <= now);
        let taken = semaphore.take(owner, count, now + ask.lease);
        let wakes = back > 0 && semaphore.has_free(1);
        let first_end = semaphore.first_end();
        let listeners = wakes.then(|| records.listeners.clone());
        drop(records);
        tell_all(listeners, name);
        if taken {
            return Ok(Attempt::granted(None));
        }
        Ok(Attempt::held(wake, first_end.map(|end| end.since(now))))
    }

    pub(crate) fn give_back(&self, ticket: &Ticket) -> Released {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let Some(semaphore) = records.semaphores.get_mut(&ticket.name) else {
            return Released::NotHeld;
        };
        let was_held = semaphore.held_by(&ticket.owner);
        let was_held = was_held.is_some_and(|hold| hold.ends > now);
        let back = semaphore.take_back(|hold| hold.owner == ticket.owner || hold.ends <= now);
        let listeners = (back > 0).then(|| records.listeners.clone());
        drop(records);
        tell_all(listeners, &ticket.name);
        if was_held {
            Released::Freed
        } else {
            Released::NotHeld
        }
    }

    pub(crate) fn renew(&self, renewal: &Renewal) -> Renewed {
        let now = self.timers.now();
        let Ticket { name, owner, .. } = &renewal.ticket;
        let mut records = self.world.lock();
        let semaphore = records.semaphores.get_mut(name);
        match semaphore.and_then(|semaphore| semaphore.held_by(owner)) {
            Some(hold) if hold.ends > now => {
                hold.ends = hold.ends.max(now + renewal.lease);
                Renewed::Kept
            }
            _ => Renewed::Gone,
        }
    }

    /// `None`: the name is no semaphore.
    pub(crate) fn force(&self, name: &Name, seen: Option<&Snapshot>) -> Option<bool> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        // Of a lock that had this name before. A look shows it.
        let token = records.tokens.get(name);
        let semaphore = records.semaphores.get_mut(name)?;
        if let Some(seen) = seen {
            let mut shown = Snapshot::free(name.as_str());
            semaphore.show(&mut shown, now);
            if !seen.is_of(&mut shown.owners(), token) {
                return Some(false);
            }
        }
        let was_held = semaphore.is_held(now);
        let back = semaphore.take_back(|_| true);
        let listeners = (back > 0).then(|| records.listeners.clone());
        drop(records);
        tell_all(listeners, name);
        Some(was_held)
    }

    fn changed(&self, name: &Name, change: PermitChange) -> Result<bool> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        records.refuse_lock(name, now)?;
        records.refuse_latch(name)?;
        let known = records.semaphores.contains_key(name);
        let semaphore = records.semaphores.entry(name.clone()).or_default();
        if known && matches!(change, PermitChange::SetIfNew(_)) {
            return Ok(false);
        }
        let more = semaphore.change(change);
        let listeners = (more > 0).then(|| records.listeners.clone());
        drop(records);
        tell_all(listeners, name);
        Ok(more != 0 || !known)
    }
}

impl PermitCounter for Semaphores {
    fn queues(&self) -> bool {
        false
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        ready(self.changed(name, change))
    }
}
