//! What the steward keeps: every hold of the client, in the order in which something is due.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound::{Excluded, Included};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acknowledge::Acknowledge;
use crate::backend::{Moment, Name, Renewal, Ticket};
use crate::core::batch::{BATCH, Batch, Batches};
use crate::core::hold::Status;
use crate::core::site::Site;
use crate::guard::LostReason;
use crate::options::Drift;

/// Who has the status of a hold that nobody listens to: the hold and the table.
const OWN: usize = 2;

/// One hold, as the steward sees it.
#[derive(Debug)]
pub(crate) struct Keep {
    pub(crate) site: Arc<Site>,
    pub(crate) ticket: Ticket,
    pub(crate) status: Arc<Status>,
    /// Where it was acquired.
    pub(crate) place: &'static Location<'static>,
    pub(crate) lease: Duration,
    /// How many replicas must acknowledge a renewal.
    pub(crate) wish: Acknowledge,
    /// An earlier request of this ticket may still arrive: its release must leave a tombstone.
    pub(crate) unclear: bool,
    /// When the next renewal is to be sent. `FAR`: never renewed.
    pub(crate) renew_at: Moment,
    /// A renewal is on its way.
    pub(crate) asked: bool,
    /// The cap on the whole hold.
    pub(crate) ends_at: Moment,
}

impl Keep {
    fn next(&self) -> Moment {
        self.renew_at
            .min(self.status.valid_until())
            .min(self.ends_at)
    }
}

/// The holds of a client. Callers write to it without waking the steward, unless something is due before it looks anyway.
#[derive(Debug, Default)]
pub(crate) struct Table {
    inner: Mutex<Inner>,
    pub(crate) bell: Notify,
    /// Rung when the last hold has gone.
    emptied: Notify,
}

#[derive(Debug)]
struct Inner {
    keeps: HashMap<u64, (Moment, Keep), BuildHasherDefault<Spread>>,
    order: BTreeSet<(Moment, u64)>,
    next_id: u64,
    /// When the steward will look. It may be earlier than the first due time, never later.
    looks_at: Moment,
    /// Nobody looks any more.
    unattended: bool,
}

/// Spreads ids that were counted up, and what was hashed with a secret already. Nobody outside chooses them, so the map
/// needs no defence, and each acquisition looks them up several times. Neighbours lie side by side: they are renewed together.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // An odd number near 2^64 divided by the golden ratio: blocks of 64 end up far apart. Within one of them the high
        // bits differ, by which the map tells neighbours from each other.
        let block = (id >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = block.wrapping_add(id & 63) ^ (id << 57);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            keeps: HashMap::default(),
            order: BTreeSet::new(),
            next_id: 0,
            looks_at: Moment::FAR,
            unattended: false,
        }
    }
}

impl Table {
    pub(crate) fn insert(&self, keep: Keep) -> u64 {
        let mut inner = self.lock();
        inner.next_id += 1;
        let (id, next) = (inner.next_id, keep.next());
        if inner.unattended {
            drop(inner);
            keep.status.lose(LostReason::Unattended);
            return id;
        }
        inner.order.insert((next, id));
        inner.keeps.insert(id, (next, keep));
        self.look_by(inner, next);
        id
    }

    /// Nobody looks from now on: what is held is lost, and so is whatever is still granted. Else its holder would never
    /// be told.
    pub(crate) fn abandon(&self) {
        self.lock().unattended = true;
        for status in self.statuses() {
            status.lose(LostReason::Unattended);
        }
    }

    pub(crate) fn remove(&self, id: u64) -> Option<Keep> {
        let mut inner = self.lock();
        let keep = inner.forget(id);
        let empty = inner.keeps.is_empty();
        drop(inner);
        if empty {
            self.emptied.notify_waiters();
        }
        keep
    }

    /// Resolves when nothing is held.
    pub(crate) async fn emptied(&self) {
        loop {
            let mut bell = std::pin::pin!(self.emptied.notified());
            bell.as_mut().enable(); // before the table is looked at, else the last one might go in between
            if self.len() == 0 {
                return;
            }
            bell.await;
        }
    }

    /// Takes all holds out: nothing of them is renewed any more.
    pub(crate) fn drain(&self) -> Vec<Keep> {
        let mut inner = self.lock();
        inner.order.clear();
        let all = inner.keeps.drain().map(|(_, (_, keep))| keep).collect();
        drop(inner);
        self.emptied.notify_waiters();
        all
    }

    /// Where a lock of that name was acquired which this client holds, so that a wait for it can be explained.
    pub(crate) fn place_of(&self, name: &Name) -> Option<&'static Location<'static>> {
        let inner = self.lock();
        let mut keeps = inner.keeps.values();
        keeps
            .find(|(_, keep)| keep.ticket.name == *name)
            .map(|(_, keep)| keep.place)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().keeps.len()
    }

    /// Of every hold. They are told of things when the table is free again: a task may be run or dropped inside of a
    /// wake-up, and its guard goes out through the table.
    pub(crate) fn statuses(&self) -> Vec<Arc<Status>> {
        let inner = self.lock();
        let all = inner.keeps.values();
        all.map(|(_, keep)| Arc::clone(&keep.status)).collect()
    }

    /// Writes down what a renewal brought to each of them.
    pub(crate) fn renewed(
        &self,
        ids: impl IntoIterator<Item = u64>,
        mut change: impl FnMut(&mut Keep),
    ) {
        let mut inner = self.lock();
        for id in ids {
            inner.change(id, &mut change);
        }
        let next = inner.first();
        self.look_by(inner, next);
    }

    /// When the steward is to look. It is put off only once it has come: else every short hold of an idle client would
    /// wake the steward anew.
    pub(crate) fn next_look(&self, now: Moment) -> Moment {
        let mut inner = self.lock();
        if now >= inner.looks_at {
            inner.looks_at = inner.first();
        }
        inner.looks_at
    }

    /// The hold goes on as another's: what is proved of it, and when it is renewed, stays. Its status is another one then,
    /// unless nobody else has the old one: who listens to that is told nothing of the holds that come after. False: it is not
    /// kept any more.
    pub(crate) fn hand_over(
        &self,
        id: u64,
        status: &mut Arc<Status>,
        place: &'static Location<'static>,
        ends_at: Moment,
    ) -> bool {
        let mut inner = self.lock();
        // All that was held when the steward went is about to be told: a new status would not be.
        if inner.unattended {
            return false;
        }
        let Some((_, keep)) = inner.keeps.get_mut(&id) else {
            return false;
        };
        if keep.status.is_lost() {
            return false;
        }
        // Only here and by its holder can it be cloned: the count does not grow while the table is locked.
        let mut old = None;
        if Arc::strong_count(status) > OWN {
            let next = Arc::new(status.next());
            status.end();
            keep.status = Arc::clone(&next);
            old = Some(std::mem::replace(status, next));
        }
        keep.place = place;
        if keep.ends_at == ends_at {
            drop(inner);
        } else {
            inner.change(id, |keep| keep.ends_at = ends_at);
            let next = inner.first();
            self.look_by(inner, next);
        }
        drop(old);
        true
    }

    /// Takes out a hold that the store has given up, and tells it.
    pub(crate) fn lost(&self, id: u64, reason: LostReason) -> Option<Ticket> {
        let keep = self.remove(id)?;
        keep.status.lose(reason);
        Some(keep.ticket)
    }

    /// Fires what is over and takes the renewals that are due. Each is marked as sent, to be asked again after `again`
    /// unless an answer comes.
    ///
    /// Batches that have room take those that are nearly due: from the next period on they go together. No others: all
    /// that is held would end up in one moment, which neither the server nor this process would get through quickly.
    pub(crate) fn take_due(&self, now: Moment, again: impl Fn(Duration) -> Duration) -> Vec<Batch> {
        let mut inner = self.lock();
        let (mut due, mut over) = (Batches::default(), Vec::new());
        let mut soon = None;
        while let Some(&(at, id)) = inner.order.first() {
            if at > now {
                break;
            }
            let Some((_, keep)) = inner.keeps.get(&id) else {
                inner.order.remove(&(at, id));
                continue;
            };
            if now >= keep.status.valid_until() || keep.status.is_lost() {
                over.push((LostReason::Expired, inner.forget(id)));
            } else if now >= keep.ends_at {
                over.push((LostReason::MaxHold, inner.forget(id)));
            } else if now >= keep.renew_at {
                soon.get_or_insert(now + keep.lease / 9);
                inner.send(id, now, &again, &mut due);
            } else {
                inner.change(id, |_| {}); // what it is bound to lasts longer than when it was looked at
            }
        }
        if let Some(soon) = soon {
            inner.fill(now, soon, &again, &mut due);
        }
        let empty = inner.keeps.is_empty();
        drop(inner);
        for (reason, keep) in over {
            if let Some(keep) = keep {
                keep.status.lose(reason);
            }
        }
        if empty {
            self.emptied.notify_waiters();
        }
        due.all()
    }

    fn look_by(&self, mut inner: MutexGuard<'_, Inner>, at: Moment) {
        if at < inner.looks_at {
            inner.looks_at = at;
            drop(inner);
            self.bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn first(&self) -> Moment {
        self.order.first().map_or(Moment::FAR, |(at, _)| *at)
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Keep)) {
        if let Some((next, keep)) = self.keeps.get_mut(&id) {
            change(keep);
            let before = std::mem::replace(next, keep.next());
            if *next != before {
                self.order.remove(&(before, id));
                self.order.insert((*next, id));
            }
        }
    }

    fn forget(&mut self, id: u64) -> Option<Keep> {
        let (next, keep) = self.keeps.remove(&id)?;
        self.order.remove(&(next, id));
        Some(keep)
    }

    /// What is on its way and what is never renewed may be many: no more than a batch of them is passed over.
    fn fill(
        &mut self,
        now: Moment,
        soon: Moment,
        again: &impl Fn(Duration) -> Duration,
        due: &mut Batches,
    ) {
        let (mut from, mut in_vain) = ((now, u64::MAX), 0);
        while due.have_room() && in_vain < BATCH {
            let ahead = (Excluded(from), Included((soon, u64::MAX)));
            let Some(&(at, id)) = self.order.range(ahead).next() else {
                return;
            };
            from = (at, id);
            // Of a lane that has no batch it would begin one, and that would take more.
            let joins = |keep: &Keep| {
                keep.renew_at <= soon
                    && !keep.asked
                    && due.have_room_for(&keep.site, &keep.ticket.name)
            };
            if self.keeps.get(&id).is_some_and(|(_, keep)| joins(keep)) {
                self.send(id, now, again, due);
            } else {
                in_vain += 1;
            }
        }
    }

    fn send(
        &mut self,
        id: u64,
        now: Moment,
        again: &impl Fn(Duration) -> Duration,
        to: &mut Batches,
    ) {
        self.change(id, |keep| {
            keep.renew_at = now + again(keep.lease);
            keep.asked = true;
            let renewal = Renewal {
                ticket: keep.ticket.clone(),
                lease: keep.lease,
                wish: keep.wish,
            };
            to.add(&keep.site, id, renewal);
        });
    }
}

impl Keep {
    /// The lease was renewed by a request sent at `sent`.
    pub(crate) fn proved(&mut self, sent: Moment, drift: &Drift) {
        self.status.prove(sent + drift.proved(self.lease));
        self.status.heard(sent);
        self.renew_at = sent + self.lease / 3;
        self.asked = false;
    }

    /// A renewal sent at `sent` brought no proof: it is asked for again soon.
    pub(crate) fn failed(&mut self, sent: Moment, now: Moment) {
        self.status.failed(sent);
        self.renew_at = self.renew_at.min(now + self.lease / 15);
        self.asked = false;
    }
}

#[cfg(test)]
mod tests;
