//! What each ticket has at the server, as far as this client knows: its leases, its key, and requests without an answer.
//!
//! A key is only ever written under a lease whose grant was answered. So once the leases of a ticket have been revoked, a
//! request that still lies somewhere is refused by the server: its lease is unknown there. Where every request was
//! answered nothing can lie anywhere, and the lease serves the next acquisition.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{Moment, Name, OwnerId, Ticket, Timers};
use crate::error::{Error, ErrorKind, Result};

/// How long a withdrawn ticket is refused here, and how long one is remembered that nobody asks about any more.
const KEEP: Duration = Duration::from_secs(60);

/// More leases than this are not kept for later.
const SPARE: usize = 256;

/// A lock that was taken so recently most likely still is.
const RECENT: Duration = Duration::from_millis(500);

/// A lease as the server has granted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// In seconds, what was asked for; the server may give more.
    pub(super) asked: u64,
    pub(super) ttl: Duration,
}

/// What is known of the tickets of this client.
#[derive(Debug)]
pub(super) struct Claims {
    known: Mutex<Known>,
    timers: Timers,
}

#[derive(Debug, Default)]
struct Known {
    tickets: HashMap<(OwnerId, Name), Claim>,
    /// At this size those that are over are looked for.
    crowded: usize,
    /// Leases nobody stands under, with the time up to which it is worth while to try them.
    spare: Vec<(Lease, Moment)>,
    /// Locks that were found taken, and up to when that is worth knowing.
    taken: HashMap<Name, Moment>,
}

#[derive(Debug)]
struct Claim {
    /// Of its first lease: the name of its key.
    id: Option<i64>,
    /// The one its key stands under, or is to be written under, is the last.
    leases: Vec<Lease>,
    /// Those its marker stands under, or may; all of them are kept, and all end with a release.
    markers: Vec<Lease>,
    /// How long the marker is to stand alone. Not zero: there is one beside its key.
    delay: Duration,
    /// It holds the lock, or held it: its marker ends with a release, or by itself.
    granted: bool,
    /// The revision at which its key was created.
    revision: Option<i64>,
    /// Its key may be there.
    stands: bool,
    /// Requests that write its key and were not answered.
    unanswered: usize,
    stage: Stage,
    until: Moment,
}

/// How far a ticket has come; never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nothing more is sent for it.
    Withdrawn,
    /// And its leases are being revoked: what others wrote under them would go, so they serve nobody else.
    Revoked,
}

/// What a withdrawal has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// Nothing can be there, and nothing can come.
    Nothing,
    /// Its key may be there.
    Key,
    /// A request may still arrive, and find these leases.
    Requests(Vec<i64>),
}

impl Claims {
    pub(super) fn new(timers: Timers) -> Self {
        Self {
            known: Mutex::default(),
            timers,
        }
    }

    /// The lease its key stands under, or is to be written under.
    pub(super) fn lease(&self, ticket: &Ticket) -> Result<Option<Lease>> {
        let mut known = self.lock();
        let claim = self.at(&mut known, ticket);
        claim.refuse_if_withdrawn()?;
        Ok(claim.leases.last().copied())
    }

    /// A lease that an earlier acquisition has left.
    pub(super) fn reuse(&self, ticket: &Ticket, asked: u64) -> Result<Option<Lease>> {
        let now = self.timers.now();
        let mut known = self.lock();
        known.spare.retain(|(_, until)| *until > now);
        let fits = known
            .spare
            .iter()
            .rposition(|(lease, _)| lease.asked == asked);
        let Some((lease, _)) = fits.map(|at| known.spare.swap_remove(at)) else {
            return Ok(None);
        };
        self.at(&mut known, ticket).add(lease).map(|()| Some(lease))
    }

    /// Notes a lease before anything is written under it. An error: the ticket has been withdrawn meanwhile, and nothing
    /// may be written.
    pub(super) fn granted(&self, ticket: &Ticket, lease: Lease) -> Result<()> {
        let mut known = self.lock();
        self.at(&mut known, ticket).add(lease)
    }

    /// A request that writes its key is about to leave.
    pub(super) fn sending(&self, ticket: &Ticket) -> Result<()> {
        let mut known = self.lock();
        let claim = self.at(&mut known, ticket);
        claim.refuse_if_withdrawn()?;
        claim.unanswered += 1;
        claim.stands = true;
        Ok(())
    }

    /// That request was answered, or was surely not carried out.
    pub(super) fn answered(&self, ticket: &Ticket) {
        if let Some(claim) = self.lock().tickets.get_mut(&key(ticket)) {
            claim.unanswered = claim.unanswered.saturating_sub(1);
        }
    }

    /// After an answer: its key is not there.
    pub(super) fn absent(&self, ticket: &Ticket) {
        if let Some(claim) = self.lock().tickets.get_mut(&key(ticket)) {
            claim.stands = claim.unanswered > 0;
        }
    }

    /// The lock is somebody else's.
    pub(super) fn taken(&self, name: &Name) {
        let now = self.timers.now();
        let taken = &mut self.lock().taken;
        if taken.len() >= SPARE {
            taken.retain(|_, until| *until > now);
        }
        taken.insert(name.clone(), now + RECENT);
    }

    /// It was so a moment ago.
    pub(super) fn is_taken(&self, name: &Name) -> bool {
        let until = self.lock().taken.get(name).copied();
        until.is_some_and(|until| until > self.timers.now())
    }

    /// The server does not know it any more.
    pub(super) fn ended(&self, ticket: &Ticket, id: i64) {
        if let Some(claim) = self.lock().tickets.get_mut(&key(ticket)) {
            claim.leases.retain(|lease| lease.id != id);
            claim.markers.retain(|lease| lease.id != id);
        }
    }

    /// A marker is about to be written beside its key, to stand alone for that time.
    pub(super) fn marking(&self, ticket: &Ticket, delay: Duration) {
        let mut known = self.lock();
        self.at(&mut known, ticket).delay = delay;
    }

    /// How long its marker is to stand alone. Zero: it has none.
    pub(super) fn delay(&self, ticket: &Ticket) -> Duration {
        let known = self.lock();
        let claim = known.tickets.get(&key(ticket));
        claim.map_or(Duration::ZERO, |claim| claim.delay)
    }

    /// Notes a lease for its marker before anything is written under it. An error: the ticket has been withdrawn.
    pub(super) fn marked(&self, ticket: &Ticket, lease: Lease) -> Result<()> {
        let mut known = self.lock();
        let claim = self.at(&mut known, ticket);
        claim.refuse_if_withdrawn()?;
        claim.markers.push(lease);
        Ok(())
    }

    /// The leases of its marker, the newest last.
    pub(super) fn markers(&self, ticket: &Ticket) -> Vec<i64> {
        let known = self.lock();
        let claim = known.tickets.get(&key(ticket));
        claim.map_or_else(Vec::new, |claim| ids(&claim.markers))
    }

    /// From now on its marker ends only with a release, or by itself.
    pub(super) fn holds(&self, ticket: &Ticket) {
        let mut known = self.lock();
        self.at(&mut known, ticket).granted = true;
    }

    /// The leases of its marker that have to end now: all, unless its hold has ended without a release.
    pub(super) fn needless(&self, ticket: &Ticket, released: bool) -> Vec<i64> {
        let known = self.lock();
        let claim = known.tickets.get(&key(ticket));
        claim.map_or_else(Vec::new, |claim| claim.needless(released))
    }

    /// Its key stands under this one: the newest of those it has been granted, or an older one if moving it has failed.
    pub(super) fn stands_under(&self, ticket: &Ticket, id: i64) {
        if let Some(claim) = self.lock().tickets.get_mut(&key(ticket)) {
            claim.leases.sort_by_key(|lease| lease.id == id);
        }
    }

    pub(super) fn created(&self, ticket: &Ticket, revision: i64) {
        let mut known = self.lock();
        self.at(&mut known, ticket).revision = Some(revision);
    }

    pub(super) fn revision(&self, ticket: &Ticket) -> Option<i64> {
        self.lock().tickets.get(&key(ticket))?.revision
    }

    /// The number that names its key. `None`: nothing was ever sent that could have made one.
    pub(super) fn id(&self, ticket: &Ticket) -> Option<i64> {
        self.lock().tickets.get(&key(ticket))?.id
    }

    /// From now on nothing is sent for this ticket.
    pub(super) fn withdraw(&self, ticket: &Ticket) -> Remains {
        let mut known = self.lock();
        let claim = self.at(&mut known, ticket);
        let (remains, stage) = match (claim.unanswered, claim.stands) {
            (0, false) => (Remains::Nothing, Stage::Withdrawn),
            (0, true) => (Remains::Key, Stage::Withdrawn),
            _ => (Remains::Requests(ids(&claim.leases)), Stage::Revoked),
        };
        claim.stage = claim.stage.max(stage);
        remains
    }

    /// Its key has gone. Where nothing of it is under way its lease may serve another. Yields those that shall not.
    pub(super) fn settle(&self, ticket: &Ticket, lives: bool) -> Vec<i64> {
        let now = self.timers.now();
        let mut known = self.lock();
        let Some(claim) = known.tickets.get_mut(&key(ticket)) else {
            return Vec::new();
        };
        claim.stands = false;
        let needless = claim.needless(lives);
        claim.markers.clear();
        let clear = claim.unanswered == 0 && claim.stage != Stage::Revoked;
        let mut leases = std::mem::take(&mut claim.leases);
        if claim.stage == Stage::Open {
            known.tickets.remove(&key(ticket));
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

    fn at<'a>(&self, known: &'a mut Known, ticket: &Ticket) -> &'a mut Claim {
        let now = self.timers.now();
        if known.tickets.len() >= known.crowded.max(64) {
            known.tickets.retain(|_, claim| claim.until > now);
            known.crowded = known.tickets.len() * 2;
        }
        let claim = known.tickets.entry(key(ticket));
        let claim = claim.or_insert_with(|| Claim {
            id: None,
            leases: Vec::new(),
            markers: Vec::new(),
            delay: Duration::ZERO,
            granted: false,
            revision: None,
            stands: false,
            unanswered: 0,
            stage: Stage::Open,
            until: now,
        });
        let keep = claim.leases.last().map_or(KEEP, |lease| lease.ttl + KEEP);
        claim.until = claim.until.max(now + keep);
        claim
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With the name: the parts of a set of locks have one owner.
fn key(ticket: &Ticket) -> (OwnerId, Name) {
    (ticket.owner.clone(), ticket.name.clone())
}

fn ids(leases: &[Lease]) -> Vec<i64> {
    leases.iter().map(|lease| lease.id).collect()
}

impl Claim {
    fn needless(&self, released: bool) -> Vec<i64> {
        if released || !self.granted {
            ids(&self.markers)
        } else {
            Vec::new()
        }
    }

    fn refuse_if_withdrawn(&self) -> Result<()> {
        if self.stage != Stage::Open {
            return Err(Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn"));
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
mod tests {
    use super::*;
    use crate::backend::Kind;
    use crate::core::clock::Clock;
    use crate::owner::OwnerMint;

    #[test]
    fn a_lease_that_is_being_revoked_serves_nobody_else() {
        let claims = Claims::new(Timers::new(Clock::Boot));
        let mint = OwnerMint::new();
        let ticket = |name: &str| Ticket {
            kind: Kind::Mutex,
            name: Name::new(name).unwrap(),
            owner: mint.fresh(),
        };
        let lease = |id| Lease {
            id,
            asked: 3,
            ttl: Duration::from_secs(3),
        };
        for (id, is_answered) in [(1, true), (2, false)] {
            let late = ticket("late");
            claims.granted(&late, lease(id)).unwrap();
            claims.sending(&late).unwrap();
            if is_answered {
                claims.answered(&late);
                assert_eq!(claims.withdraw(&late), Remains::Key);
            } else {
                assert_eq!(claims.withdraw(&late), Remains::Requests(vec![id]));
                // The answer comes after all, and a second withdrawal finds the key.
                claims.answered(&late);
                assert_eq!(claims.withdraw(&late), Remains::Key);
            }
            claims.settle(&late, true);
            let served = claims.reuse(&ticket("next"), 3).unwrap();
            assert_eq!(served, is_answered.then(|| lease(id)));
        }
    }
}
