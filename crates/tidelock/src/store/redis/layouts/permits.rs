//! A semaphore: Redisson's `RPermitExpirableSemaphore`.
//!
//! The key is a string, the number of permits that nobody holds. A sorted set beside it has the id of each permit that
//! is out, with the end of its lease. A permit whose lease has ended is taken back by the next request of any client. So each request
//! that gives permits back removes their ids first, and counts only the ids that it has removed: a repeated release, or
//! one after the end of the lease or after a forced release, counts nothing.
//!
//! A permit of tidelock has the form of Redisson's, 16 bytes. The first 14 are those of the acquisition, so that a
//! repeated attempt finds its own permits: 8 of the client's UUID, and 6 for the number of the acquisition.

use crate::error::Result;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::redisson::muted;
use crate::store::redis::layouts::{Layout, answer, scripts};
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, keys, millis};
use crate::store::{
    AttemptRequest, BootInstant, BoxFuture, Name, PermitChange, PermitCounter, Released, Ticket,
};

impl Redis {
    pub(crate) async fn acquire_permits(
        &self,
        ask: &AttemptRequest,
        deadline: BootInstant,
    ) -> Result<(Reply, Option<PendingAck>)> {
        let ticket = &ask.ticket;
        let (owner, out) = (keys::owner_of(ticket), keys::permits_out(&ticket.name));
        let tombstone = keys::tombstone(&ticket.name, ticket.owner.text());
        let lease = millis(ask.lease).to_string();
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::ACQUIRE_PERMITS,
                keys: &[ticket.name.as_str(), &out, &tombstone],
                args: &[&lease, &owner, self.how()],
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ask.wish,
            lease: ask.lease,
            policy: &self.shared.ack_policy,
        };
        self.router.run(&job).await
    }

    pub(crate) async fn release_permits(
        &self,
        ticket: &Ticket,
        withdraw: bool,
    ) -> Result<Released> {
        let (name, owner) = (&ticket.name, keys::owner_of(ticket));
        let (out, tombstone) = (
            keys::permits_out(name),
            keys::tombstone(name, ticket.owner.text()),
        );
        let kept = millis(TOMBSTONE_KEPT).to_string();
        let keys = [name.as_str(), &out, &tombstone];
        let args = [&*owner, self.how(), &kept];
        let (keys, args) = if withdraw {
            (&keys[..], &args[..])
        } else {
            (&keys[..2], &args[..2])
        };
        let (script, deadline) = (&scripts::RELEASE_PERMITS, self.router.deadline());
        match self.router.eval(script, keys, args, deadline).await? {
            Reply::Int(0) => Ok(Released::NotHeld),
            Reply::Int(1) => Ok(Released::Freed),
            Reply::Int(2) => {
                muted(name);
                Ok(Released::Freed)
            }
            Reply::Int(3) => Err(answer::unnoted()),
            other => Err(unexpected(&other)),
        }
    }

    async fn change_permits(&self, name: &Name, change: PermitChange) -> Result<bool> {
        self.router.check(name)?;
        let (what, number) = match change {
            PermitChange::SetIfNew(total) => ("new", i64::from(total)),
            PermitChange::Set(total) => ("set", i64::from(total)),
            PermitChange::Add(more) => ("add", i64::from(more)),
        };
        let (out, number) = (keys::permits_out(name), number.to_string());
        let keys = [name.as_str(), &out];
        let args = [what, &number, self.how()];
        let (script, deadline) = (&scripts::CHANGE_PERMITS, self.router.deadline());
        let reply = self.router.eval(script, &keys, &args, deadline).await?;
        match reply.list().unwrap_or_default() {
            [Reply::Int(0)] => Ok(false),
            [Reply::Int(1)] => Ok(true),
            [Reply::Int(7), kind] => Err(answer::not_semaphore(kind.text().unwrap_or_default())),
            _ => Err(unexpected(&reply)),
        }
    }

    /// This store's permits, unless its locks are plain keys.
    pub(crate) fn permit_counter(&self) -> Option<&dyn PermitCounter> {
        (self.layout == Layout::Redisson).then_some(self as _)
    }
}

impl PermitCounter for Redis {
    fn queues(&self) -> bool {
        false
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.change_permits(name, change))
    }
}
