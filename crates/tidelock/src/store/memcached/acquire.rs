//! Acquires, renews and releases one lock. Every change is conditional: either no item exists, or its CAS number is the
//! one that was just read.
//!
//! A server restarts its CAS numbers when it restarts. So a conditional command is only sent on the connection on which
//! the CAS number was read; otherwise it could match another item.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::memcached::errors::{unanswered, unexpected, unsent};
use crate::store::memcached::live_connection::ConnectionId;
use crate::store::memcached::wire::{Command, Item, Reply, StoreMode};
use crate::store::memcached::{Memcached, doctor, inspect, keys, ttl};
use crate::store::{
    Attempt, AttemptRequest, BootInstant, Grant, Name, Released, Renewal, Renewed, Ticket,
};

/// Lifetime of a tombstone. It bounds how long a request may lie in the buffers of a frozen server and still be
/// harmless.
const TOMBSTONE_KEPT: Duration = Duration::from_secs(300);

/// Bounds the retries of one operation when the item changes concurrently. Mostly our own renewal changes it.
const MAX_CAS_ROUNDS: usize = 5;

/// An item of a lock, with the connection it was read on.
pub(crate) struct Found {
    pub(crate) item: Item,
    pub(crate) connection_id: ConnectionId,
}

impl Found {
    pub(crate) fn is_of(&self, owner: &str, name: &Name) -> bool {
        keys::read(&self.item.value) == Some((owner, name.as_str()))
    }

    /// The least time until the item expires.
    fn sure(&self) -> Duration {
        self.item.left.map_or(Duration::MAX, ttl::sure)
    }
}

/// The outcome of an `add`.
enum Added {
    Stored,
    /// Another client was faster.
    Taken,
    /// Stored, but this owner had been withdrawn, so the item was deleted again.
    Withdrawn,
}

impl Memcached {
    /// See [`Backend::attempt`](crate::store::Backend::attempt).
    pub(crate) async fn decide(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let Ticket { name, owner, .. } = &ask.ticket;
        let (key, deadline) = (keys::lock(name), self.connection.deadline());
        for _ in 0..MAX_CAS_ROUNDS {
            let Some(found) = self.find(&key, deadline).await? else {
                match self.add(&key, ask, deadline).await? {
                    Added::Stored => return Ok(Attempt::Acquired(Grant::default())),
                    Added::Taken => continue,
                    Added::Withdrawn => return Err(withdrawn()),
                }
            };
            if found.is_of(owner.text(), name) {
                // A retry of an attempt that succeeded without our knowledge: the item is ours already.
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

    /// Reads the item of a key. `None`: there is none.
    pub(crate) async fn find(&self, key: &str, deadline: BootInstant) -> Result<Option<Found>> {
        match self
            .connection
            .ask_one(Command::get(key), None, deadline)
            .await?
        {
            (Reply::Value(item), connection_id) => Ok(Some(Found {
                item,
                connection_id,
            })),
            (Reply::Missing, _) => Ok(None),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Adds the item of a lock. Call it only if no item was found: without free memory, a server whose `add` fails
    /// deletes the existing item.
    async fn add(&self, key: &str, ask: &AttemptRequest, deadline: BootInstant) -> Result<Added> {
        let Ticket { name, owner, .. } = &ask.ticket;
        let ttl = self.ttl(ask.lease, deadline).await?;
        let value = keys::value(owner.text(), name);
        let add = Command::store(key, &value, ttl, StoreMode::Add);
        // The read of the tombstone is sent in one piece with the `add`, after it. A withdrawal before the `add` is
        // seen here; a later withdrawal finds the item.
        let look = Command::get(&keys::tombstone(owner.text()));
        let (replies, connection_id) = self.connection.ask(vec![add, look], None, deadline).await?;
        match (&replies[..], connection_id) {
            ([Reply::Done(Some(_)), Reply::Missing], _) => Ok(Added::Stored),
            ([Reply::NotStored, _], _) => Ok(Added::Taken),
            ([Reply::Done(Some(cas)), Reply::Value(_)], connection_id) => {
                let back = Command::delete(key, *cas);
                // Without an answer the item may stay until its lease ends, but its tombstone makes it void.
                let given = self
                    .connection
                    .ask_one(back, Some(connection_id), deadline)
                    .await;
                given.map_err(|error| unanswered(error.detail().unwrap_or_default()))?;
                Ok(Added::Withdrawn)
            }
            ([Reply::Server(_), _], _) => Err(unexpected(&replies[0])),
            _ => Err(unanswered(format_args!(
                "unexpected reply from the server: {replies:?}"
            ))),
        }
    }

    /// The server's form of a lease: a number of seconds, or a date if the lease is long.
    async fn ttl(&self, lease: Duration, deadline: BootInstant) -> Result<u64> {
        let seconds = ttl::seconds(lease);
        if !ttl::needs_a_date(seconds) {
            return Ok(seconds);
        }
        // Use the server's clock: ours may differ.
        let now = doctor::server_time(&self.connection, deadline).await?;
        Ok(now.saturating_add(seconds))
    }

    /// Whether the owner has a tombstone.
    async fn is_withdrawn(&self, owner: &str, deadline: BootInstant) -> Result<bool> {
        let look = self.find(&keys::tombstone(owner), deadline).await?;
        Ok(look.is_some())
    }

    /// Whether the item belongs to a withdrawn owner, so that it holds no lock: the request that stored it arrived too
    /// late, and nobody received its answer.
    pub(crate) async fn is_void(&self, found: &Found, deadline: BootInstant) -> Result<bool> {
        match keys::read(&found.item.value) {
            Some((owner, _)) => self.is_withdrawn(owner, deadline).await,
            None => Ok(false),
        }
    }

    /// Deletes the item that was found. False: the item has changed or is gone.
    async fn remove(&self, key: &str, found: &Found, deadline: BootInstant) -> Result<bool> {
        let delete = Command::delete(key, found.item.cas);
        match self
            .connection
            .ask_one(delete, Some(found.connection_id), deadline)
            .await?
        {
            (Reply::Done(_), _) => Ok(true),
            (Reply::Missing | Reply::Changed, _) => Ok(false),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Extends the item that was found to the lease; never shortens it. False: the item has changed or is gone.
    async fn prolong(
        &self,
        key: &str,
        found: &Found,
        lease: Duration,
        deadline: BootInstant,
    ) -> Result<bool> {
        if found.sure() >= lease {
            return Ok(true);
        }
        let ttl = self.ttl(lease, deadline).await?;
        let how = StoreMode::Replace(found.item.cas);
        let again = Command::store(key, &found.item.value, ttl, how);
        match self
            .connection
            .ask_one(again, Some(found.connection_id), deadline)
            .await?
        {
            (Reply::Done(_), _) => Ok(true),
            // Without free memory the server may even have deleted the item. The caller reads it again.
            (Reply::Missing | Reply::Changed | Reply::NotStored | Reply::Server(_), _) => Ok(false),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Renews one hold.
    pub(crate) async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed> {
        let Ticket { name, owner, .. } = &renewal.ticket;
        let (key, deadline) = (keys::lock(name), self.connection.deadline());
        for _ in 0..MAX_CAS_ROUNDS {
            match self.find(&key, deadline).await? {
                Some(found) if found.is_of(owner.text(), name) => {
                    if self.prolong(&key, &found, renewal.lease, deadline).await? {
                        return Ok(Renewed::Kept);
                    }
                }
                _ => return Ok(Renewed::Gone),
            }
        }
        Err(unsent("the item could not be stored"))
    }

    /// Releases one hold: deletes the item if it is ours.
    pub(crate) async fn end(&self, ticket: &Ticket) -> Result<Released> {
        let Ticket { name, owner, .. } = ticket;
        let (key, deadline) = (keys::lock(name), self.connection.deadline());
        for _ in 0..MAX_CAS_ROUNDS {
            match self.find(&key, deadline).await? {
                Some(found) if found.is_of(owner.text(), name) => {
                    if self.remove(&key, &found, deadline).await? {
                        return Ok(Released::Freed);
                    }
                }
                _ => return Ok(Released::NotHeld),
            }
        }
        Err(unsent("the item changed during every try"))
    }

    /// Withdraws a ticket: writes its tombstone, then deletes its item.
    pub(crate) async fn revoke(&self, ticket: &Ticket) -> Result<Released> {
        let Ticket { name, owner, .. } = ticket;
        let look = Command::get(&keys::lock(name));
        let ttl = ttl::seconds(TOMBSTONE_KEPT);
        let mark = Command::store(&keys::tombstone(owner.text()), b"1", ttl, StoreMode::Set);
        // We write the tombstone before we delete the item: from then on a late attempt of this owner has no effect. We
        // read the item before we write the tombstone. Otherwise a waiter could delete the void item first, and it
        // would look as if we had not held the lock.
        let deadline = self.connection.deadline();
        let (replies, connection_id) = self
            .connection
            .ask(vec![look, mark], None, deadline)
            .await?;
        let held = match replies.first() {
            Some(Reply::Value(item)) => {
                let item = item.clone();
                Found {
                    item,
                    connection_id,
                }
                .is_of(owner.text(), name)
            }
            _ => false,
        };
        // On any error the outcome is unknown: the tombstone may exist, and by the time of a retry a waiter may have
        // deleted the item.
        let ended = self.end(ticket).await;
        let ended = ended.map_err(|error| unanswered(error.detail().unwrap_or_default()))?;
        match replies.get(1) {
            Some(Reply::Done(_)) if held => Ok(Released::Freed),
            Some(Reply::Done(_)) => Ok(ended),
            // The outcome is unknown. A retry finds nothing held, and that must not look as if another client had taken
            // the lock.
            _ => Err(unanswered(
                "freed, but a request on its way may still take it again: the server refuses to note that it must not",
            )),
        }
    }

    /// Forced release: deletes the item of any owner, or of an owner in `seen`. False: nobody held the lock, or somebody else.
    pub(crate) async fn free(&self, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
        let (key, deadline) = (keys::lock(name), self.connection.deadline());
        for _ in 0..MAX_CAS_ROUNDS {
            let Some(found) = self.find(&key, deadline).await? else {
                return Ok(false);
            };
            let held = !self.is_void(&found, deadline).await?;
            if let Some(seen) = seen
                && !(held && seen.has_owner(&inspect::owner(&found.item.value)))
            {
                return Ok(false);
            }
            if self.remove(&key, &found, deadline).await? {
                return Ok(held);
            }
        }
        Err(unsent("the item changed during every try"))
    }
}

/// A refusal. There are no wakes, so the acquire loop polls; the remaining lease bounds the time until its next poll.
fn refused(left: Option<u64>) -> Attempt {
    let recheck = left.map(|left| ttl::sure(left).max(Duration::from_secs(1)));
    Attempt::held(None, recheck)
}

fn withdrawn() -> Error {
    Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
}

#[cfg(test)]
mod tests;
