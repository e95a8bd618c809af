//! Release and withdrawal of a fair lock.

use crate::error::Result;
use crate::store::redis::layouts::{answer, scripts};
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, keys, millis};
use crate::store::{Released, Ticket};

impl Redis {
    pub(crate) async fn release_fair(&self, ticket: &Ticket, withdraw: bool) -> Result<Released> {
        let (name, owner) = (&ticket.name, ticket.owner.text());
        // A waiter that leaves must not be kept in the queue by a beat.
        self.shared.beats.leave(name, &ticket.owner);
        let (queue, times, grant) = (
            keys::fair_queue(name),
            keys::fair_times(name),
            keys::unconfirmed(name),
        );
        let (tombstone, channel) = (keys::tombstone(name, owner), keys::channel(name));
        let kept = millis(TOMBSTONE_KEPT).to_string();
        let all = [name.as_str(), &queue, &times, &grant, &tombstone];
        let args = [owner, &channel, self.how(), &kept];
        // While a slot migrates, a node refuses a script with several keys of which one is missing, and a lock for which
        // nobody waits has no queue. So in a cluster a release declares the lock alone.
        let declared = if self.router.is_cluster() { 1 } else { 4 };
        let (used, args) = if withdraw {
            (&all[..], &args[..])
        } else {
            (&all[..declared], &args[..3])
        };
        let deadline = self.router.deadline();
        let script = &scripts::FAIR_RELEASE;
        let reply = self.tell(script, used, args, 2, deadline).await?;
        // Only a waiter behind Redisson has subscribed to it, and nobody will wait on it again.
        let own = keys::fair_channel(name, owner);
        self.shared.subscriber.end(&own);
        match reply {
            Reply::Int(0) => Ok(Released::NotHeld),
            Reply::Int(1) => Ok(Released::Freed),
            Reply::Int(3) => Err(answer::unnoted()),
            Reply::Int(4) => Ok(Released::WrongType),
            other => Err(unexpected(&other)),
        }
    }
}
