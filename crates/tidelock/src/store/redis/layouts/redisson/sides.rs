//! The sides of a read-write lock: the hash of Redisson's `RReadWriteLock`, and a queue of tidelock's waiters beside it.
//!
//! Redisson has no queue for them: a reader joins the readers inside, so among Java services a stream of readers keeps
//! every writer out. Each waiter of tidelock has a position in a queue that Redisson never reads, and gets in only when
//! no other kind is ahead of it. A waiter that leaves withdraws its ticket; that of a process that has died loses its
//! position when it has made no attempt for a lease.

use std::time::Duration;

use crate::error::Result;
use crate::store::redis::layouts::answer;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::redisson::release::muted;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, keys, millis};
use crate::store::{AttemptRequest, BootInstant, OwnerId, Released, Ticket};

impl Redis {
    /// How long a waiter keeps its position without an attempt. It makes one every third of this.
    pub(crate) fn position_kept(&self) -> Duration {
        self.shared.lease
    }

    pub(crate) async fn acquire_side(
        &self,
        ask: &AttemptRequest,
        deadline: BootInstant,
    ) -> Result<(Reply, Option<PendingAck>)> {
        let ticket = &ask.ticket;
        let (name, owner) = (&ticket.name, ticket.owner.text());
        let tombstone = keys::tombstone(name, owner);
        let (queue, deadlines) = (
            keys::read_write_queue(name),
            keys::read_write_deadlines(name),
        );
        let (hold, counter) = (keys::read_hold(ticket), keys::token(name));
        let keys = [
            name.as_str(),
            &tombstone,
            &queue,
            &deadlines,
            &hold,
            &counter,
        ];
        let fenced = usize::from(ticket.kind.is_fenced());
        let lease = millis(ask.lease).to_string();
        let writer = ask.downgrade_of.as_ref().map_or("", OwnerId::text);
        let kept = if ask.patience.is_zero() {
            String::new()
        } else {
            millis(self.position_kept()).to_string()
        };
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::ACQUIRE_SIDE,
                keys: &keys[..5 + fenced],
                args: &[&lease, owner, &kept, self.how(), writer],
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ask.wish,
            lease: ask.lease,
            policy: &self.shared.ack_policy,
        };
        self.router.run(&job).await
    }

    pub(crate) async fn release_side(&self, ticket: &Ticket, withdraw: bool) -> Result<Released> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let (hold, deadline) = (keys::read_hold(ticket), self.router.deadline());
        let tombstone = keys::tombstone(&ticket.name, owner);
        let kept = millis(TOMBSTONE_KEPT).to_string();
        let (keys, args) = ([name, &hold, &tombstone], [owner, self.how(), &kept]);
        let (keys, args) = if withdraw {
            (&keys[..], &args[..])
        } else {
            (&keys[..2], &args[..2])
        };
        let script = &scripts::RELEASE_SIDE;
        match self.router.eval(script, keys, args, deadline).await? {
            Reply::Int(0) => Ok(Released::NotHeld),
            Reply::Int(1) => Ok(Released::Freed),
            Reply::Int(2) => {
                muted(&ticket.name);
                Ok(Released::Freed)
            }
            Reply::Int(3) => Err(answer::unnoted()),
            other => Err(unexpected(&other)),
        }
    }
}
