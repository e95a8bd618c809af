//! The lease table: one entry for every hold of the client, ordered by the instant at which something is due.
//!
//! An entry is due at the earliest of its next renewal (`renew_at`), the end of its proof (`valid_until`) and the cap
//! on the hold (`ends_at`). Callers insert and remove entries, and only the steward acts on due ones. The algorithm:
//!
//! 1. The steward sleeps until `next_check_at`. An entry that is due earlier moves `next_check_at` forward and notifies the
//!    steward. Removing an entry leaves `next_check_at` as it is, so that short holds of an idle client do not wake it.
//! 2. `take_due` walks the due entries in order. It removes an entry whose proof has ended or whose cap is reached. It
//!    puts an entry whose renewal is due into the batch of its store and lane, at most 100 entries each.
//! 3. A batch with room also takes entries of its lane whose renewal is due within a ninth of the lease. From the next
//!    period on they are renewed together.
//! 4. The steward sends the batches and applies the replies: `renewed` for a proof or a failure, `taken` if the store
//!    says that the hold is gone.
//!
//! ```text
//!   insert ─► held ─renew_at─► in flight ┬─ kept ──► held; renew_at = sent + lease/3
//!                                        ├─ failed ► held; renew_at ≤ now + lease/15
//!                                        ├─ silent ► sent again after min(lease/6, response timeout)
//!                                        └─ gone ──► removed, lost: Taken
//!   held or in flight ┬─ remove (release) ───► removed; the caller ends the status
//!                     ├─ hand_over ──────────► held by the next waiter
//!                     ├─ valid_until, ends_at ► removed, lost: Expired, MaxHold
//!                     ├─ drain (close) ──────► removed; the client reports Closed and releases the lock
//!                     └─ abandon ────────────► lost: Unattended, as is every later insert
//! ```
//!
//! Invariants:
//! 1. `order` contains each entry exactly once, under the instant that `entries` stores beside it. Only `insert`,
//!    `forget`, `drain` and `change` write to the two, and each of them writes to both.
//! 2. That instant may be earlier than the entry is due, because a bond moves `valid_until` without a write to the
//!    table; step 2 then only moves the entry. It is later only if a bond was severed. The bond reports that itself.
//! 3. `next_check_at` is never later than the first instant in `order`. It may be earlier.
//! 4. No id is used twice. A reply that comes after its entry was removed therefore changes nothing.
//! 5. Whoever removes an entry decides about the release. If a client that closes removes it, the status says so from
//!    then on, and the holder sends no release of its own. Otherwise the second of two releases would find nothing, which
//!    looks like a loss.
//! 6. After `abandon` no hold starts: `insert` reports it lost, and `hand_over` refuses. Otherwise nobody would report
//!    its loss.
//!
//! Lock order: callers hold no lock of the local queues. Under the table's lock we take only the lock of a bond's
//! listeners, in `hand_over`; the store's `lane` and the functions of a bond run under it too, and must not wait. We
//! report a loss after we have released the table's lock. The report ends the leader term, which takes the lock of the
//! local queues, and it wakes tasks: a task that runs then may drop a guard, which takes the table's lock again.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound::{Excluded, Included};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::instruments::{HoldOutcome, Instruments};
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::guests::Guest;
use crate::engine::lease::renewal_batch::{BATCH, Batch, Batches};
use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::event::Event;
use crate::engine::runtime::id_hasher::IdHasher;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::store_handle::StoreHandle;
use crate::store::{BootInstant, Name};
use crate::types::Drift;
use crate::types::LostReason;

/// References to a status without listeners: one of the hold, one of the table.
const OWN: usize = 2;

/// The entry of one hold.
#[derive(Debug)]
pub(crate) struct LeaseEntry {
    pub(crate) store: Arc<StoreHandle>,
    pub(crate) status: Arc<HoldStatus>,
    /// The source location of the acquire.
    pub(crate) location: &'static Location<'static>,
    /// When to send the next renewal. `FAR`: never.
    pub(crate) renew_at: BootInstant,
    /// A renewal is in flight, so the entry does not join a batch before it is due.
    pub(crate) asked: bool,
    /// The cap on the whole hold. `FAR`: no cap.
    pub(crate) ends_at: BootInstant,
    /// The hold at the clients of the other members, if it is one of a set. They wait for it.
    pub(crate) guest: Option<Arc<Guest>>,
}

impl LeaseEntry {
    pub(crate) fn granted(&self) -> &GrantedTicket {
        self.status.granted()
    }

    /// The instant at which something is due.
    fn next(&self) -> BootInstant {
        self.renew_at
            .min(self.status.valid_until())
            .min(self.ends_at)
    }
}

/// The holds of a client. A write wakes the steward only if an entry is due before its next look.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    inner: Mutex<LeaseTableState>,
    /// Wakes the steward: `next_check_at` has moved forward, or the client was closed.
    pub(crate) notify: Notify,
    /// Notified when the last entry has been removed.
    emptied: Event,
    instruments: Arc<Instruments>,
}

#[derive(Debug)]
struct LeaseTableState {
    /// Each entry with its instant in `order`.
    entries: HashMap<u64, (BootInstant, LeaseEntry), BuildHasherDefault<IdHasher>>,
    /// The entries by the instant at which something is due.
    order: BTreeSet<(BootInstant, u64)>,
    next_id: u64,
    /// When the steward looks next. Invariant: never later than the first instant in `order`; it may be earlier.
    next_check_at: BootInstant,
    /// The steward has ended. Invariant: no entry is inserted or handed over after that.
    unattended: bool,
}

impl Default for LeaseTableState {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            order: BTreeSet::new(),
            next_id: 0,
            next_check_at: BootInstant::FAR,
            unattended: false,
        }
    }
}

impl LeaseTable {
    pub(crate) fn new(instruments: Arc<Instruments>) -> Self {
        Self {
            instruments,
            ..Self::default()
        }
    }

    /// Reports a loss to the holder, and counts it.
    fn lose(&self, status: &HoldStatus, reason: LostReason) {
        status.lose(reason);
        status.record_end(&self.instruments, HoldOutcome::Lost(reason));
    }

    /// Adds an entry and returns its id. After the steward has ended, the hold is lost at once instead.
    pub(crate) fn insert(&self, entry: LeaseEntry) -> u64 {
        let mut inner = self.lock();
        inner.next_id += 1;
        let (id, next) = (inner.next_id, entry.next());
        if inner.unattended {
            drop(inner);
            self.lose(&entry.status, LostReason::Unattended);
            return id;
        }
        inner.order.insert((next, id));
        inner.entries.insert(id, (next, entry));
        self.look_by(inner, next);
        id
    }

    /// The steward has ended: every hold is lost, and so is every later grant. Otherwise its holder would never hear of
    /// a loss.
    pub(crate) fn abandon(&self) {
        self.lock().unattended = true;
        for status in self.statuses() {
            self.lose(&status, LostReason::Unattended);
        }
    }

    /// Removes an entry. `None`: it was removed before.
    pub(crate) fn remove(&self, id: u64) -> Option<LeaseEntry> {
        self.take(id, |_| {})
    }

    /// As [`remove`](Self::remove), because a client has closed: the caller releases the lock.
    pub(crate) fn remove_by_close(&self, id: u64) -> Option<LeaseEntry> {
        self.take(id, HoldStatus::take_by_close)
    }

    fn take(&self, id: u64, mark: impl FnOnce(&HoldStatus)) -> Option<LeaseEntry> {
        let mut inner = self.lock();
        let entry = inner.forget(id);
        if let Some(entry) = &entry {
            mark(&entry.status);
        }
        let empty = inner.entries.is_empty();
        drop(inner);
        if empty {
            self.emptied.notify();
        }
        entry
    }

    /// Resolves when no entry is left.
    pub(crate) async fn emptied(&self) {
        self.emptied.until(|| self.len() == 0).await;
    }

    /// Removes and returns all entries, because the client has closed: the caller releases their locks. None of them is
    /// renewed any more.
    pub(crate) fn drain(&self) -> Vec<LeaseEntry> {
        let mut inner = self.lock();
        inner.order.clear();
        let all: Vec<LeaseEntry> = inner.entries.drain().map(|(_, (_, entry))| entry).collect();
        for entry in &all {
            entry.status.take_by_close();
        }
        drop(inner);
        self.emptied.notify();
        all
    }

    /// Where this client acquired the lock of that name that it holds. For the log line that explains a wait.
    pub(crate) fn location_of(&self, name: &Name) -> Option<&'static Location<'static>> {
        let inner = self.lock();
        let mut entries = inner.entries.values();
        entries
            .find(|(_, entry)| entry.granted().ticket.name == *name)
            .map(|(_, entry)| entry.location)
    }

    /// The longest holds, the longest first. It looks at each entry, and keeps no more than it returns.
    pub(crate) fn longest(&self, most: usize) -> Vec<Arc<HoldStatus>> {
        let inner = self.lock();
        let mut oldest = BTreeSet::new();
        for (id, (_, entry)) in &inner.entries {
            if let Some(since) = entry.status.since() {
                oldest.insert((since, *id));
                if oldest.len() > most {
                    oldest.pop_last();
                }
            }
        }
        let entries = oldest.iter().filter_map(|(_, id)| inner.entries.get(id));
        entries
            .map(|(_, entry)| Arc::clone(&entry.status))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// The statuses of all entries, so that the caller can report to them without the table's lock: a report may run or
    /// drop a task, and the drop of its guard takes that lock.
    pub(crate) fn statuses(&self) -> Vec<Arc<HoldStatus>> {
        let inner = self.lock();
        let all = inner.entries.values();
        all.map(|(_, entry)| Arc::clone(&entry.status)).collect()
    }

    /// Applies the result of a renewal to these entries. Entries that were removed in the meantime are skipped.
    pub(crate) fn renewed(
        &self,
        ids: impl IntoIterator<Item = u64>,
        mut change: impl FnMut(&mut LeaseEntry),
    ) {
        let mut inner = self.lock();
        for id in ids {
            inner.change(id, &mut change);
        }
        let next = inner.first();
        self.look_by(inner, next);
    }

    /// When the steward looks next. We move `next_check_at` back only after it has come. Otherwise every short hold of an
    /// idle client would be due before it, and would wake the steward.
    pub(crate) fn next_check(&self, now: BootInstant) -> BootInstant {
        let mut inner = self.lock();
        if now >= inner.next_check_at {
            inner.next_check_at = inner.first();
        }
        inner.next_check_at
    }

    /// Passes the entry to the next holder. The proof and the time of the next renewal stay. If a listener has the old
    /// status, the next holder gets a new one: that listener must not hear of later holds. `false`: the hold is lost or
    /// removed, or the steward has ended.
    pub(crate) fn hand_over(
        &self,
        id: u64,
        status: &mut Arc<HoldStatus>,
        location: &'static Location<'static>,
        ends_at: BootInstant,
    ) -> bool {
        let mut inner = self.lock();
        // `abandon` is about to report the loss to the statuses it has read. It would miss a new one.
        if inner.unattended {
            return false;
        }
        let Some((_, entry)) = inner.entries.get_mut(&id) else {
            return false;
        };
        if entry.status.is_lost() {
            return false;
        }
        // Only the table, under this lock, and the holder, which is our caller, can clone the status. So the count does
        // not grow now.
        let mut old = None;
        if Arc::strong_count(status) > OWN {
            let next = Arc::new(status.next());
            status.end();
            entry.status = Arc::clone(&next);
            old = Some(std::mem::replace(status, next));
        }
        entry.location = location;
        if entry.ends_at == ends_at {
            drop(inner);
        } else {
            inner.change(id, |entry| entry.ends_at = ends_at);
            let next = inner.first();
            self.look_by(inner, next);
        }
        drop(old);
        true
    }

    /// Takes out a hold that the store has given up, and tells it.
    pub(crate) fn lost(&self, id: u64, reason: LostReason) {
        if let Some(entry) = self.remove(id) {
            self.lose(&entry.status, reason);
        }
    }

    /// Removes the holds that have ended, reports their loss, and returns the renewals that are due. It marks each
    /// renewal as in flight. Without a reply the renewal is sent again; `again` says after how long, by the lease.
    ///
    /// A batch with room also takes entries that are nearly due: from the next period on they are renewed together. It
    /// takes no others. Otherwise all renewals would end up at one instant, and the server and this process would take
    /// long to get through them.
    pub(crate) fn take_due(
        &self,
        now: BootInstant,
        again: impl Fn(Duration) -> Duration,
        drift: &Drift,
    ) -> Vec<Batch> {
        let mut inner = self.lock();
        let (mut due, mut over) = (Batches::default(), Vec::new());
        let mut soon = None;
        while let Some(&(at, id)) = inner.order.first() {
            if at > now {
                break;
            }
            // Cannot happen, by invariant 1. Without the removal it would be an endless loop.
            let Some((_, entry)) = inner.entries.get(&id) else {
                inner.order.remove(&(at, id));
                continue;
            };
            if now >= entry.status.valid_until() || entry.status.is_lost() {
                over.push((LostReason::Expired, inner.forget(id)));
            } else if now >= entry.ends_at {
                over.push((LostReason::MaxHold, inner.forget(id)));
            } else if now >= entry.renew_at {
                soon.get_or_insert(now + entry.granted().lease / 9);
                inner.send(id, now, (&again, drift), &mut due);
            } else {
                inner.change(id, |_| {}); // the proof was extended since: only move the entry in `order`
            }
        }
        if let Some(soon) = soon {
            inner.fill(now, soon, (&again, drift), &mut due);
        }
        let empty = inner.entries.is_empty();
        // After the lock is released: see the lock order above.
        drop(inner);
        for (reason, entry) in over {
            if let Some(entry) = entry {
                self.lose(&entry.status, reason);
            }
        }
        if empty {
            self.emptied.notify();
        }
        due.all()
    }

    /// Makes the steward look at that instant or earlier. Releases the lock.
    fn look_by(&self, mut inner: MutexGuard<'_, LeaseTableState>, at: BootInstant) {
        if at < inner.next_check_at {
            inner.next_check_at = at;
            drop(inner);
            self.notify.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTableState> {
        self.inner.lock()
    }
}

impl LeaseTableState {
    /// The first instant at which something is due.
    fn first(&self) -> BootInstant {
        self.order.first().map_or(BootInstant::FAR, |(at, _)| *at)
    }

    /// Changes an entry, and moves it in `order` if it is due at another instant then.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut LeaseEntry)) {
        if let Some((next, entry)) = self.entries.get_mut(&id) {
            change(entry);
            let before = std::mem::replace(next, entry.next());
            if *next != before {
                self.order.remove(&(before, id));
                self.order.insert((*next, id));
            }
        }
    }

    fn forget(&mut self, id: u64) -> Option<LeaseEntry> {
        let (next, entry) = self.entries.remove(&id)?;
        self.order.remove(&(next, id));
        Some(entry)
    }

    /// Fills the batches that have room with entries that are due by `soon`. It skips at most `BATCH` entries that
    /// cannot join: many may be in flight or never renewed, and a scan of all would hold the lock for long.
    fn fill(
        &mut self,
        now: BootInstant,
        soon: BootInstant,
        (again, drift): (&impl Fn(Duration) -> Duration, &Drift),
        due: &mut Batches,
    ) {
        let (mut from, mut in_vain) = ((now, u64::MAX), 0);
        while due.have_room() && in_vain < BATCH {
            let ahead = (Excluded(from), Included((soon, u64::MAX)));
            let Some(&(at, id)) = self.order.range(ahead).next() else {
                return;
            };
            from = (at, id);
            // An entry of a lane without a batch does not join: it would open one, which would take more entries.
            let joins = |entry: &LeaseEntry| {
                entry.renew_at <= soon
                    && !entry.asked
                    && due.have_room_for(&entry.store, &entry.granted().ticket.name)
            };
            if self.entries.get(&id).is_some_and(|(_, entry)| joins(entry)) {
                self.send(id, now, (again, drift), due);
            } else {
                in_vain += 1;
            }
        }
    }

    /// Adds the renewal of an entry to its batch and marks it as in flight.
    fn send(
        &mut self,
        id: u64,
        now: BootInstant,
        (again, drift): (&impl Fn(Duration) -> Duration, &Drift),
        to: &mut Batches,
    ) {
        self.change(id, |entry| {
            entry.renew_at = now + again(entry.granted().lease);
            entry.asked = true;
            let renewal = entry.status.renewal(entry.granted().lease, now, drift);
            to.add(&entry.store, id, renewal);
        });
    }
}

impl LeaseEntry {
    /// The lease was renewed by a request sent at `sent`.
    pub(crate) fn proved(&mut self, sent: BootInstant, drift: &Drift) {
        self.status.prove(sent + drift.proved(self.granted().lease));
        self.status.confirmed(sent);
        self.renew_at = sent + self.granted().lease / 3;
        self.asked = false;
    }

    /// A renewal sent at `sent` brought no proof. The next one follows within a fifteenth of the lease.
    pub(crate) fn failed(&mut self, sent: BootInstant, now: BootInstant) {
        self.status.failed(sent);
        self.renew_at = self.renew_at.min(now + self.granted().lease / 15);
        self.asked = false;
    }
}

#[cfg(test)]
mod tests;
