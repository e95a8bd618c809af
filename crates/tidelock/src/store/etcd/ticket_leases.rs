//! Ticket leases: for each ticket, its leases, its key, and its requests in flight, as far as this client knows.
//!
//! A key is only written under a lease whose grant was answered. So once the leases of a ticket are revoked, the server
//! refuses any late request of the ticket, because it does not know the lease. If every request was answered, nothing
//! can arrive late, and the lease is reused for the next acquisition.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ticket_key::TicketKey;
use crate::store::{BootInstant, Name, OwnerId, Ticket, Timers};

/// Bounds how long a ticket is remembered after its last use and the length of its lease. A withdrawn ticket is refused
/// for that time.
const WITHDRAWN_TTL: Duration = Duration::from_secs(60);

/// Bounds the spare leases that are kept for reuse. The list of locks known to be taken is cleaned up at the same size.
const SPARE: usize = 256;

/// Bounds how long a lock that was found taken is assumed to be still taken.
const RECENT: Duration = Duration::from_millis(500);

/// A lease that the server has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// The requested length, in seconds; the server may grant more.
    pub(crate) asked: u64,
    pub(crate) ttl: Duration,
    /// When the newest request was sent that has granted it or kept it alive.
    pub(crate) kept_at: BootInstant,
}

impl Lease {
    /// Whether a waiter may queue under it without another keep-alive. The waiter's next one comes after a third of the
    /// lease, and half of it is left then. Under an older lease its key, and so its place, could end before that.
    pub(crate) fn is_young(&self, now: BootInstant) -> bool {
        now < self.kept_at + self.ttl / 6
    }
}

/// The leases and keys of all tickets of this client.
#[derive(Debug)]
pub(crate) struct TicketLeases {
    known: Mutex<TicketLeasesState>,
    timers: Timers,
}

#[derive(Debug, Default)]
struct TicketLeasesState {
    tickets: HashMap<TicketKey, TicketRecord>,
    /// The number of tickets at which expired ones are removed next.
    crowded: usize,
    /// Leases without a key, each with the instant until which a reuse makes sense.
    spare: Vec<(Lease, BootInstant)>,
    /// Locks that were found taken, each with the instant until which we assume so.
    taken: HashMap<Name, BootInstant>,
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts of their own")]
struct TicketRecord {
    /// The id of the ticket's first lease, which names its key.
    id: Option<i64>,
    /// All leases of the ticket. The last is the one its key is under, or will be written under.
    leases: Vec<Lease>,
    /// The leases its marker may be under. All of them are kept alive, and a release revokes all of them.
    markers: Vec<Lease>,
    /// How long the marker outlives the key. Not zero: the key has a marker.
    delay: Duration,
    /// The ticket holds or held the lock. From then on only a release removes its marker; otherwise the marker expires.
    granted: bool,
    /// The newest answer that showed its key: the store's revision in that answer, and the creation revision of the key.
    revision: Option<(i64, i64)>,
    /// Its key may exist.
    may_exist: bool,
    /// For a reader that was a writer: what it has of that writer.
    joined: Option<TakenPlace>,
    /// A reader may have taken over the place of this writer.
    followed: bool,
    /// The store was restored from a snapshot: keys of earlier tickets may be under its leases.
    doubted: bool,
    /// In-flight counter: requests that write its key and were not answered.
    unanswered: usize,
    stage: TicketStage,
    /// The instant from which the entry may be forgotten.
    until: BootInstant,
}

/// What a reader has of the writer that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenPlace {
    /// The id in the writer's keys, and in those of the reader.
    pub(crate) id: i64,
    /// The creation revision of the writer's keys.
    pub(crate) revision: i64,
}

/// The state of a ticket. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TicketStage {
    Open,
    /// Withdrawn: no more requests are sent for it.
    Withdrawn,
    /// Withdrawn, and its leases are being revoked. They are not reused; otherwise the revocation would delete the key
    /// of another ticket.
    Revoked,
}

/// The work that a withdrawal has left to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Nothing: no key exists, and no request is in flight.
    Nothing,
    /// Delete the key, which may exist.
    Key,
    /// Revoke these leases: a request in flight may still write a key under one of them.
    Requests(Vec<i64>),
}

impl TicketLeases {
    pub(crate) fn new(timers: Timers) -> Self {
        Self {
            known: Mutex::default(),
            timers,
        }
    }

    /// The lease its key is under, or will be written under. An error: the ticket has been withdrawn.
    pub(crate) fn lease(&self, ticket: &Ticket) -> Result<Option<Lease>> {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        entry.refuse_if_withdrawn()?;
        Ok(entry.leases.last().copied())
    }

    /// Takes a spare lease of the same requested length. `None`: there is none. An error: the ticket has been
    /// withdrawn.
    pub(crate) fn reuse(&self, ticket: &Ticket, asked: u64) -> Result<Option<Lease>> {
        let now = self.timers.now();
        let mut known = self.lock();
        known.spare.retain(|(_, until)| *until > now);
        // A lease's length is fixed, so only a lease of the same requested length fits.
        let fits = known
            .spare
            .iter()
            .rposition(|(lease, _)| lease.asked == asked);
        let Some((lease, _)) = fits.map(|at| known.spare.swap_remove(at)) else {
            return Ok(None);
        };
        self.at(&mut known, ticket).add(lease).map(|()| Some(lease))
    }

    /// Records a lease before anything is written under it. An error: the ticket has been withdrawn meanwhile, and
    /// nothing may be written.
    pub(crate) fn granted(&self, ticket: &Ticket, lease: Lease) -> Result<()> {
        let mut known = self.lock();
        self.at(&mut known, ticket).add(lease)
    }

    /// Records that the server has kept a lease of the ticket alive, by a request that was sent at that time.
    pub(crate) fn kept_alive(&self, ticket: &Ticket, id: i64, sent: BootInstant) {
        if let Some(entry) = self.lock().tickets.get_mut(&TicketKey::of(ticket)) {
            for lease in entry.leases.iter_mut().filter(|lease| lease.id == id) {
                lease.kept_at = lease.kept_at.max(sent);
            }
        }
    }

    /// Counts a request that writes its key, before it is sent. An error: the ticket has been withdrawn; do not send.
    pub(crate) fn sending(&self, ticket: &Ticket) -> Result<()> {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        entry.refuse_if_withdrawn()?;
        entry.unanswered += 1;
        entry.may_exist = true;
        Ok(())
    }

    /// Counts that request as done: it was answered, or it certainly had no effect.
    pub(crate) fn answered(&self, ticket: &Ticket) {
        if let Some(entry) = self.lock().tickets.get_mut(&TicketKey::of(ticket)) {
            entry.unanswered = entry.unanswered.saturating_sub(1);
        }
    }

    /// An answer showed that its key did not exist at that revision of the store. A request in flight may still write it,
    /// or has done so since. Without the second, the answer to an attempt that is overtaken by a repeated one would undo
    /// what that one has recorded, and the release would leave the key.
    pub(crate) fn absent(&self, ticket: &Ticket, seen: i64) {
        if let Some(entry) = self.lock().tickets.get_mut(&TicketKey::of(ticket)) {
            let is_newer = entry.revision.is_some_and(|(_, created)| created > seen);
            entry.may_exist = entry.unanswered > 0 || is_newer;
        }
    }

    /// Records that another client holds the lock.
    pub(crate) fn taken(&self, name: &Name) {
        let now = self.timers.now();
        let taken = &mut self.lock().taken;
        if taken.len() >= SPARE {
            taken.retain(|_, until| *until > now);
        }
        taken.insert(name.clone(), now + RECENT);
    }

    /// Whether the lock was found taken a moment ago.
    pub(crate) fn is_taken(&self, name: &Name) -> bool {
        let until = self.lock().taken.get(name).copied();
        until.is_some_and(|until| until > self.timers.now())
    }

    /// Forgets a lease that no longer exists at the server, or that is about to be revoked.
    pub(crate) fn ended(&self, ticket: &Ticket, id: i64) {
        if let Some(entry) = self.lock().tickets.get_mut(&TicketKey::of(ticket)) {
            entry.leases.retain(|lease| lease.id != id);
            entry.markers.retain(|lease| lease.id != id);
            entry.doubted &= !entry.leases.is_empty();
        }
    }

    /// Records that the store has gone back: keys of earlier tickets may be under all leases, and the revisions are lower
    /// now, so any answer from now on counts as newer. Returns the spare leases, which serve nobody from now on.
    pub(crate) fn doubt_all(&self) -> Vec<i64> {
        let mut known = self.lock();
        for entry in known.tickets.values_mut() {
            entry.doubted = !entry.leases.is_empty();
            entry.revision = entry.revision.map(|(_, created)| (0, created));
        }
        let spare = std::mem::take(&mut known.spare);
        spare.iter().map(|(lease, _)| lease.id).collect()
    }

    /// Whether keys of earlier tickets may be under its leases.
    pub(crate) fn is_doubted(&self, ticket: &Ticket) -> bool {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        entry.is_some_and(|entry| entry.doubted)
    }

    /// Records that a marker is about to be written, which outlives the key by `delay`.
    pub(crate) fn marking(&self, ticket: &Ticket, delay: Duration) {
        let mut known = self.lock();
        self.at(&mut known, ticket).delay = delay;
    }

    /// How long its marker outlives its key. Zero: it has no marker.
    pub(crate) fn delay(&self, ticket: &Ticket) -> Duration {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        entry.map_or(Duration::ZERO, |entry| entry.delay)
    }

    /// Records a lease for its marker before anything is written under it. An error: the ticket has been withdrawn.
    pub(crate) fn marked(&self, ticket: &Ticket, lease: Lease) -> Result<()> {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        entry.refuse_if_withdrawn()?;
        entry.markers.push(lease);
        Ok(())
    }

    /// The leases of its marker, newest last.
    pub(crate) fn markers(&self, ticket: &Ticket) -> Vec<i64> {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        entry.map_or_else(Vec::new, |entry| ids(&entry.markers))
    }

    /// Records a grant: from now on only a release removes its marker; otherwise the marker expires. A writer may be
    /// followed by a reader.
    pub(crate) fn holds(&self, ticket: &Ticket) {
        let mut known = self.lock();
        self.at(&mut known, ticket).granted = true;
    }

    /// The leases of its marker to revoke now: all of them, unless the hold ended without a release.
    pub(crate) fn needless(&self, ticket: &Ticket, released: bool) -> Vec<i64> {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        entry.map_or_else(Vec::new, |entry| entry.needless(released))
    }

    /// Records the lease its key is under. It is not the newest lease if moving the key to that one has failed.
    pub(crate) fn record_key_lease(&self, ticket: &Ticket, id: i64) {
        if let Some(entry) = self.lock().tickets.get_mut(&TicketKey::of(ticket)) {
            entry.leases.sort_by_key(|lease| lease.id == id);
        }
    }

    /// The leases that a request of unknown outcome may still move its key to. They are kept alive with the lease that the
    /// key is under; otherwise the key could end up under a lease that is about to expire.
    pub(crate) fn in_doubt(&self, ticket: &Ticket) -> Vec<i64> {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        let entry = entry.filter(|entry| entry.unanswered > 0);
        let split = entry.and_then(|entry| entry.leases.split_last());
        split.map_or_else(Vec::new, |(_, others)| ids(others))
    }

    /// Records the creation revision of its key, from an answer that showed the key at revision `seen` of the store. An older
    /// answer does not replace what a newer one has shown. Otherwise the answer to an attempt that is overtaken by a repeated
    /// one could bring back the revision of a key that has gone since: a renewal would report the hold as lost, and a release
    /// would not find the key.
    ///
    /// We compare what the answers have seen, not the creation revisions: after the store was restored from a snapshot, a key
    /// that is created again has a lower one.
    pub(crate) fn created(&self, ticket: &Ticket, revision: i64, seen: i64) {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        let newer = entry.revision.filter(|(newest, _)| *newest > seen);
        (entry.revision, entry.may_exist) = (newer.or(Some((seen, revision))), true);
    }

    pub(crate) fn revision(&self, ticket: &Ticket) -> Option<i64> {
        Some(self.lock().tickets.get(&TicketKey::of(ticket))?.revision?.1)
    }

    /// Records that a reader takes over the place of a writer, before anything is sent. `None`: the writer does not hold
    /// the lock, as far as this client knows. An error: the reader's ticket has been withdrawn.
    pub(crate) fn join(&self, reader: &Ticket, writer: &OwnerId) -> Result<Option<TakenPlace>> {
        let mut known = self.lock();
        if let Some(joined) = known
            .tickets
            .get(&TicketKey::of(reader))
            .and_then(|own| own.joined)
        {
            self.at(&mut known, reader).refuse_if_withdrawn()?;
            return Ok(Some(joined));
        }
        let of_writer = TicketKey {
            owner: writer.clone(),
            name: reader.name.clone(),
        };
        let held = known.tickets.get_mut(&of_writer);
        let Some(held) = held.filter(|held| held.granted && held.stage == TicketStage::Open) else {
            return Ok(None);
        };
        held.followed = true;
        let Some((id, (_, revision))) = held.id.zip(held.revision) else {
            return Ok(None);
        };
        let joined = TakenPlace { id, revision };
        let entry = self.at(&mut known, reader);
        entry.refuse_if_withdrawn()?;
        (entry.id, entry.joined) = (Some(id), Some(joined));
        Ok(Some(joined))
    }

    /// What this reader has of a writer. `None`: it joined none.
    pub(crate) fn joined(&self, ticket: &Ticket) -> Option<TakenPlace> {
        self.lock().tickets.get(&TicketKey::of(ticket))?.joined
    }

    /// Whether a reader may have taken over the place of this writer.
    pub(crate) fn is_followed(&self, ticket: &Ticket) -> bool {
        let known = self.lock();
        let entry = known.tickets.get(&TicketKey::of(ticket));
        entry.is_some_and(|entry| entry.followed)
    }

    /// The lease id that names its key. `None`: no request can have created a key.
    pub(crate) fn id(&self, ticket: &Ticket) -> Option<i64> {
        self.lock().tickets.get(&TicketKey::of(ticket))?.id
    }

    /// Withdraws a ticket: no more requests are sent for it. Returns the work that is left.
    pub(crate) fn withdraw(&self, ticket: &Ticket) -> Remains {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        // A request in flight can arrive at any time later. Only a revoked lease makes the server refuse it.
        let (remains, stage) = match (entry.unanswered, entry.may_exist) {
            (0, false) => (Remains::Nothing, TicketStage::Withdrawn),
            (0, true) => (Remains::Key, TicketStage::Withdrawn),
            _ => (Remains::Requests(ids(&entry.leases)), TicketStage::Revoked),
        };
        entry.stage = entry.stage.max(stage);
        remains
    }

    /// Records that its key does not exist any more, and returns the leases to revoke.
    ///
    /// With `lives`, the key was there until now, so its lease still exists. If also no request is in flight, the lease
    /// is kept for reuse.
    pub(crate) fn settle(&self, ticket: &Ticket, lives: bool) -> Vec<i64> {
        let now = self.timers.now();
        let mut known = self.lock();
        let Some(entry) = known.tickets.get_mut(&TicketKey::of(ticket)) else {
            return Vec::new();
        };
        entry.may_exist = false;
        let needless = entry.needless(lives);
        entry.markers.clear();
        // A lease with a request in flight, or one that is being revoked, must not serve another ticket.
        // The keys of the reader that followed a writer have the writer's id, so no other ticket may get that id.
        let clear = entry.unanswered == 0
            && entry.stage != TicketStage::Revoked
            && !entry.followed
            && !entry.doubted;
        let mut leases = std::mem::take(&mut entry.leases);
        // A withdrawn ticket stays, so that its late attempts are still refused.
        if entry.stage == TicketStage::Open {
            known.tickets.remove(&TicketKey::of(ticket));
        }
        if lives
            && clear
            && known.spare.len() < SPARE
            && let Some(lease) = leases.pop()
        {
            known.spare.push((lease, now + lease.ttl / 2));
        }
        needless.into_iter().chain(ids(&leases)).collect()
    }

    /// The entry of a ticket, created if missing. Extends its life, and removes expired entries from time to time.
    fn at<'a>(&self, known: &'a mut TicketLeasesState, ticket: &Ticket) -> &'a mut TicketRecord {
        let now = self.timers.now();
        // Clean up only after the map has doubled, so that the cost per call stays constant on average.
        if known.tickets.len() >= known.crowded.max(64) {
            known.tickets.retain(|_, entry| entry.until > now);
            known.crowded = known.tickets.len() * 2;
        }
        let entry = known.tickets.entry(TicketKey::of(ticket));
        let entry = entry.or_insert_with(|| TicketRecord {
            id: None,
            leases: Vec::new(),
            markers: Vec::new(),
            delay: Duration::ZERO,
            granted: false,
            revision: None,
            joined: None,
            followed: false,
            doubted: false,
            may_exist: false,
            unanswered: 0,
            stage: TicketStage::Open,
            until: now,
        });
        let until = entry
            .leases
            .last()
            .map_or(WITHDRAWN_TTL, |lease| lease.ttl + WITHDRAWN_TTL);
        entry.until = entry.until.max(now + until);
        entry
    }

    fn lock(&self) -> MutexGuard<'_, TicketLeasesState> {
        self.known.lock()
    }
}

fn ids(leases: &[Lease]) -> Vec<i64> {
    leases.iter().map(|lease| lease.id).collect()
}

impl TicketRecord {
    /// See [`TicketLeases::needless`].
    fn needless(&self, released: bool) -> Vec<i64> {
        if released || !self.granted {
            ids(&self.markers)
        } else {
            Vec::new()
        }
    }

    fn refuse_if_withdrawn(&self) -> Result<()> {
        if self.stage != TicketStage::Open {
            return Err(
                Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
            );
        }
        Ok(())
    }

    fn add(&mut self, lease: Lease) -> Result<()> {
        self.refuse_if_withdrawn()?;
        self.id.get_or_insert(lease.id);
        self.leases.push(lease);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
