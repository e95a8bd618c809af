//! Taking, keeping and giving back one lock. Every change compares first: with nothing there, or with what was just read.
//!
//! What is compared is a number that a server starts anew with its life, so it is sent on the connection it was read on, or
//! not at all.

use std::time::Duration;

use super::errors::{unanswered, unexpected, unsent};
use super::link::Line;
use super::wire::{Command, Item, Reply, Store};
use super::{Memcached, doctor, keys, ttl};
use crate::backend::{Ask, Attempt, Grant, Moment, Name, Released, Renewal, Renewed, Ticket, Wait};
use crate::error::{Error, ErrorKind, Result};

/// How long a tombstone stays: longer than a request can lie in the buffers of a server that is frozen.
const TOMBSTONE_KEPT: Duration = Duration::from_secs(300);

/// How often one question looks again because somebody has changed the item meanwhile. Mostly it is our own renewal.
const ROUNDS: usize = 5;

/// What was found of a lock.
pub(super) struct Found {
    pub(super) item: Item,
    pub(super) line: Line,
}

impl Found {
    pub(super) fn is_of(&self, owner: &str, name: &Name) -> bool {
        keys::read(&self.item.value) == Some((owner, name.as_str()))
    }

    /// For so long at least it stays.
    fn sure(&self) -> Duration {
        self.item.left.map_or(Duration::MAX, ttl::sure)
    }
}

/// What became of an `add`.
enum Added {
    Stored,
    /// Somebody was faster.
    Taken,
    /// Stored, but this owner had been withdrawn; given back.
    Withdrawn,
}

impl Memcached {
    pub(super) async fn decide(&self, ask: &Ask) -> Result<Attempt> {
        let Ticket { name, owner, .. } = &ask.ticket;
        let (key, deadline) = (keys::lock(name), self.link.deadline());
        for _ in 0..ROUNDS {
            let Some(found) = self.find(&key, deadline).await? else {
                match self.add(&key, ask, deadline).await? {
                    Added::Stored => return Ok(Attempt::Acquired(Grant::default())),
                    Added::Taken => continue,
                    Added::Withdrawn => return Err(withdrawn()),
                }
            };
            if found.is_of(owner.text(), name) {
                if self.is_withdrawn(owner.text(), deadline).await? {
                    self.remove(&key, &found, deadline).await?;
                    return Err(withdrawn());
                }
                if self.prolong(&key, &found, ask.lease, deadline).await? {
                    return Ok(Attempt::Acquired(Grant::default()));
                }
            } else if self.is_void(&found, deadline).await? {
                self.remove(&key, &found, deadline).await?;
            } else {
                return Ok(refused(found.item.left));
            }
        }
        Ok(refused(None))
    }

    /// What is there now.
    pub(super) async fn find(&self, key: &str, deadline: Moment) -> Result<Option<Found>> {
        match self.link.ask_one(Command::get(key), None, deadline).await? {
            (Reply::Value(item), line) => Ok(Some(Found { item, line })),
            (Reply::Missing, _) => Ok(None),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Only where nothing was seen: a server that has no memory left deletes what is there when it cannot add to it.
    async fn add(&self, key: &str, ask: &Ask, deadline: Moment) -> Result<Added> {
        let Ticket { name, owner, .. } = &ask.ticket;
        let ttl = self.ttl(ask.lease, deadline).await?;
        let value = keys::value(owner.text(), name);
        let add = Command::store(key, &value, ttl, Store::Add);
        // Behind it in one piece: a withdrawal that was there before the item is seen, and one that comes later sees the item.
        let look = Command::get(&keys::tombstone(owner.text()));
        let (replies, line) = self.link.ask(vec![add, look], None, deadline).await?;
        match (&replies[..], line) {
            ([Reply::Done(Some(_)), Reply::Missing], _) => Ok(Added::Stored),
            ([Reply::NotStored, _], _) => Ok(Added::Taken),
            ([Reply::Done(Some(cas)), Reply::Value(_)], line) => {
                let back = Command::delete(key, *cas);
                // Without an answer it may stand until its lease ends; but it is void.
                let given = self.link.ask_one(back, Some(line), deadline).await;
                given.map_err(|error| unanswered(error.detail().unwrap_or_default()))?;
                Ok(Added::Withdrawn)
            }
            ([Reply::Complaint(_), _], _) => Err(unexpected(&replies[0])),
            _ => Err(unanswered(format_args!(
                "the server's answer makes no sense: {replies:?}"
            ))),
        }
    }

    /// How the server is told of a lease.
    async fn ttl(&self, lease: Duration, deadline: Moment) -> Result<u64> {
        let seconds = ttl::seconds(lease);
        if !ttl::needs_a_date(seconds) {
            return Ok(seconds);
        }
        // By its own clock, not by ours.
        let now = doctor::server_time(&self.link, deadline).await?;
        Ok(now.saturating_add(seconds))
    }

    async fn is_withdrawn(&self, owner: &str, deadline: Moment) -> Result<bool> {
        let look = self.find(&keys::tombstone(owner), deadline).await?;
        Ok(look.is_some())
    }

    /// A lock of an owner that was withdrawn is none: the request that took it arrived too late, and nobody hears its answer.
    pub(super) async fn is_void(&self, found: &Found, deadline: Moment) -> Result<bool> {
        match keys::read(&found.item.value) {
            Some((owner, _)) => self.is_withdrawn(owner, deadline).await,
            None => Ok(false),
        }
    }

    /// Deletes exactly what was found. False: it is something else by now.
    async fn remove(&self, key: &str, found: &Found, deadline: Moment) -> Result<bool> {
        let delete = Command::delete(key, found.item.cas);
        match self
            .link
            .ask_one(delete, Some(found.line), deadline)
            .await?
        {
            (Reply::Done(_), _) => Ok(true),
            (Reply::Missing | Reply::Changed, _) => Ok(false),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Gives exactly what was found more time, never less than it has. False: it is something else by now.
    async fn prolong(
        &self,
        key: &str,
        found: &Found,
        lease: Duration,
        deadline: Moment,
    ) -> Result<bool> {
        if found.sure() >= lease {
            return Ok(true);
        }
        let ttl = self.ttl(lease, deadline).await?;
        let how = Store::Replace(found.item.cas);
        let again = Command::store(key, &found.item.value, ttl, how);
        match self.link.ask_one(again, Some(found.line), deadline).await? {
            (Reply::Done(_), _) => Ok(true),
            // Without memory it may even have been deleted: another look tells.
            (Reply::Missing | Reply::Changed | Reply::NotStored | Reply::Complaint(_), _) => {
                Ok(false)
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub(super) async fn keep(&self, renewal: &Renewal) -> Result<Renewed> {
        let Ticket { name, owner, .. } = &renewal.ticket;
        let (key, deadline) = (keys::lock(name), self.link.deadline());
        for _ in 0..ROUNDS {
            match self.find(&key, deadline).await? {
                Some(found) if found.is_of(owner.text(), name) => {
                    if self.prolong(&key, &found, renewal.lease, deadline).await? {
                        return Ok(Renewed::Kept);
                    }
                }
                _ => return Ok(Renewed::Gone),
            }
        }
        Err(unsent("the item could not be stored anew"))
    }

    pub(super) async fn end(&self, ticket: &Ticket) -> Result<Released> {
        let Ticket { name, owner, .. } = ticket;
        let (key, deadline) = (keys::lock(name), self.link.deadline());
        for _ in 0..ROUNDS {
            match self.find(&key, deadline).await? {
                Some(found) if found.is_of(owner.text(), name) => {
                    if self.remove(&key, &found, deadline).await? {
                        return Ok(Released::Freed);
                    }
                }
                _ => return Ok(Released::NotHeld),
            }
        }
        Err(unsent("the item changes again and again"))
    }

    pub(super) async fn revoke(&self, ticket: &Ticket) -> Result<Released> {
        let Ticket { name, owner, .. } = ticket;
        let look = Command::get(&keys::lock(name));
        let ttl = ttl::seconds(TOMBSTONE_KEPT);
        let mark = Command::store(&keys::tombstone(owner.text()), b"1", ttl, Store::Set);
        // The mark before the end: from here on an attempt of this owner that arrives late takes no effect. And the look
        // before the mark: behind it whoever waits may remove the item, and it would seem as if it had not been held.
        let deadline = self.link.deadline();
        let (replies, line) = self.link.ask(vec![look, mark], None, deadline).await?;
        let held = match replies.first() {
            Some(Reply::Value(item)) => {
                let item = item.clone();
                Found { item, line }.is_of(owner.text(), name)
            }
            _ => false,
        };
        // Whatever failed, the mark may stand: asked again, others may have removed the item meanwhile.
        let ended = self.end(ticket).await;
        let ended = ended.map_err(|error| unanswered(error.detail().unwrap_or_default()))?;
        match replies.get(1) {
            Some(Reply::Done(_)) if held => Ok(Released::Freed),
            Some(Reply::Done(_)) => Ok(ended),
            // Asked again it says that nothing is held: that must not look as if somebody else had taken it.
            _ => Err(unanswered(
                "freed, but a request on its way may still take it again: the server refuses to note that it must not",
            )),
        }
    }

    pub(super) async fn free(&self, name: &Name) -> Result<bool> {
        let (key, deadline) = (keys::lock(name), self.link.deadline());
        for _ in 0..ROUNDS {
            let Some(found) = self.find(&key, deadline).await? else {
                return Ok(false);
            };
            let held = !self.is_void(&found, deadline).await?;
            if self.remove(&key, &found, deadline).await? {
                return Ok(held);
            }
        }
        Err(unsent("the item changes again and again"))
    }
}

/// The loop looks again by itself; here it is said when that is of use at the latest.
fn refused(left: Option<u64>) -> Attempt {
    Attempt::Held(Wait {
        wake: None,
        recheck: left.map(|left| ttl::sure(left).max(Duration::from_secs(1))),
    })
}

fn withdrawn() -> Error {
    Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn")
}
