//! The store for Redis and Valkey: one server, the primary that sentinels name, or a cluster. Its locks are those of
//! Java's Redisson, byte for byte as other clients see them.

mod address;
mod doctor;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod inspect;
pub(crate) mod keys;
pub(crate) mod layouts;
mod open;
pub(crate) mod pubsub;
mod replicas;
pub(crate) mod slots;
pub(crate) mod topology;
pub(crate) mod wire;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use self::open::{connect, connect_topology};

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::redis::layouts::answer::AcquireAnswer;
pub(crate) use crate::store::redis::layouts::plain::Layout;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::keyspace_events::KeyspaceEvents;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::replicas::{PendingAck, PoisonedTickets, Purpose, ReplicaHistory};
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::reply::Reply;
use crate::store::{
    Attempt, AttemptRequest, Backend, Background, BootInstant, BoxFuture, Capabilities, ClientId,
    Grant, Incarnation, LockKind, Name, Page, Released, ReleasesSeen, Renewal, Renewed, Ticket,
    Timers, Wake,
};

/// How long a tombstone lives: longer than a request can stay in the buffers of a frozen server.
const TOMBSTONE_KEPT: Duration = Duration::from_secs(300);

/// A store handle with its own connections for commands. Both handles share the subscriptions.
struct Redis {
    router: Router,
    shared: Arc<Shared>,
    layout: Layout,
}

struct Shared {
    channel_router: ChannelRouter,
    ways: PublishModes,
    subscriber: Arc<Subscriber>,
    events: KeyspaceEvents,
    lease: Duration,
    acknowledge_within: Duration,
    timers: Timers,
    background: Background,
    warned: Mutex<HashSet<Name>>,
    /// We have logged that replicas cannot acknowledge.
    unasked: AtomicBool,
    replica_history: ReplicaHistory,
    poisoned_tickets: PoisonedTickets,
    /// The user is not allowed to run scripts: plain locks use transactions instead.
    unscripted: AtomicBool,
}

/// Milliseconds, rounded up: a lease on the server must never be shorter than the one the client relies on.
pub(crate) fn millis(time: Duration) -> u64 {
    let part = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1000).saturating_add(part)
}

impl Redis {
    async fn decide(&self, ask: &AttemptRequest) -> Result<Attempt> {
        self.router.check(&ask.ticket.name)?;
        let deadline = self.router.deadline();
        // We subscribe before we run the script. Otherwise we would miss a release between the two.
        let wake = self.wake_for(ask).await;
        let sleeps = wake.is_some() || !ask.patience.is_zero();
        let mut asked_again = false;
        loop {
            let (reply, receipt) = self.acquire(ask, sleeps, deadline).await?;
            return match AcquireAnswer::read(&reply)? {
                AcquireAnswer::Granted { last, more } => Ok(Attempt::Acquired(Grant {
                    token: crate::store::redis::layouts::tokens::first(
                        ask.ticket.kind,
                        last,
                        more,
                        || self.counter(ask),
                    )?,
                    more,
                    acknowledged: self.acknowledged(ask, receipt, deadline).await?,
                    bond: None,
                })),
                AcquireAnswer::Held(refusal) => {
                    let refusal = self.refusal(ask, &reply, refusal);
                    if !asked_again && self.begin_to_hear(ask, refusal).await {
                        asked_again = true; // we may have missed a release
                        continue;
                    }
                    Ok(Attempt::Held(self.wait(ask, wake, refusal)))
                }
                AcquireAnswer::Withdrawn => {
                    Err(Error::new(ErrorKind::Cancelled)
                        .because("the attempt was withdrawn before"))
                }
                AcquireAnswer::Stranger { mode: Some(mode) } => {
                    Err(crate::store::redis::layouts::answer::read_write(mode))
                }
                AcquireAnswer::Stranger { mode: None } => Err(Error::new(ErrorKind::WrongType)
                    .because(crate::store::redis::layouts::plain::STRANGER)),
                AcquireAnswer::NoToken { value } => Err(
                    crate::store::redis::layouts::answer::no_token(&self.counter(ask), value),
                ),
            };
        }
    }

    fn counter(&self, ask: &AttemptRequest) -> String {
        match self.layout {
            Layout::Redisson => crate::store::redis::keys::token(&ask.ticket.name),
            Layout::Plain => crate::store::redis::keys::plain_token(&ask.ticket.name),
        }
    }

    async fn wake_for(&self, ask: &AttemptRequest) -> Option<Wake> {
        if self.layout == Layout::Plain {
            return self.shared.events.wake_for(ask, &self.router).await;
        }
        if ask.armed {
            return None;
        }
        let subscriber = &self.shared.subscriber;
        if ask.patience.is_zero() {
            return subscriber.arm_if_live(|| crate::store::redis::keys::channel(&ask.ticket.name));
        }
        let channel = crate::store::redis::keys::channel(&ask.ticket.name);
        // Half of the timeout: the script needs the rest. The future is boxed because few requests need it; inline,
        // it would enlarge every request's future and be copied with it.
        Box::pin(subscriber.arm(&channel, self.router.limit() / 2)).await
    }

    /// `sleeps`: if the lock is held, the caller sleeps, so the script reports how it hears of the release.
    async fn acquire(
        &self,
        ask: &AttemptRequest,
        sleeps: bool,
        deadline: BootInstant,
    ) -> Result<(Reply, PendingAck)> {
        if self.layout == Layout::Plain {
            return self.acquire_plain(ask, deadline).await;
        }
        let ticket = &ask.ticket;
        let owner = ticket.owner.text();
        let tombstone = crate::store::redis::keys::tombstone(&ticket.name, owner);
        let (mut digits, mut tokens) = (itoa::Buffer::new(), itoa::Buffer::new());
        let lease = digits.format(millis(ask.lease));
        let tokens = tokens.format(ask.spare.saturating_add(1));
        let args = [lease, owner, if sleeps { "sleeps" } else { "" }, tokens];
        let token = match ticket.kind {
            LockKind::Fenced => crate::store::redis::keys::token(&ticket.name),
            _ => String::new(),
        };
        let keys = [ticket.name.as_str(), &*tombstone, &*token];
        let (keys, args) = match ticket.kind {
            LockKind::Fenced => (&keys[..], &args[..]),
            _ => (&keys[..2], &args[..2 + usize::from(sleeps)]),
        };
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        self.router
            .eval_acknowledged(
                &crate::store::redis::layouts::scripts::ACQUIRE,
                keys,
                args,
                demand,
                deadline,
            )
            .await
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.layout.capabilities()
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.decide(ask))
    }

    fn in_doubt(&self, ticket: &Ticket) -> bool {
        self.shared.poisoned_tickets.take(&ticket.owner)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.keep_each(batch))
    }

    fn lane(&self, name: &Name) -> u64 {
        self.router.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(ticket, false))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(ticket, true))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.free(name))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        match self.layout {
            Layout::Redisson => Box::pin(inspect::at(&self.router, self.shared.ways, name)),
            Layout::Plain => Box::pin(self.show_plain(name)),
        }
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(inspect::page(&self.router, self.layout, pattern, cursor))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(inspect::announce(&self.router, client, info, ttl))
    }

    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        Box::pin(inspect::retract(&self.router, client))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let Shared {
            subscriber,
            ways,
            timers,
            ..
        } = &*self.shared;
        let rights: BoxFuture<'_, Result<Vec<Finding>>> = match self.layout {
            Layout::Redisson => Box::pin(crate::store::redis::doctor::rights::findings(
                &self.router,
                subscriber,
                *ways,
            )),
            Layout::Plain => Box::pin(self.plain_findings()),
        };
        Box::pin(crate::store::redis::doctor::topology::examine(
            &self.router,
            rights,
            *ways,
            timers,
        ))
    }

    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(crate::store::redis::topology::server_run::incarnation(
            &self.router,
            &self.shared.timers,
        ))
    }

    fn pause(&self, name: &Name) -> Option<Duration> {
        match self.layout {
            Layout::Redisson => None,
            Layout::Plain => self.shared.events.pause(name),
        }
    }

    fn releases_seen(&self, name: &Name) -> Option<ReleasesSeen> {
        match self.layout {
            Layout::Redisson => self
                .shared
                .subscriber
                .releases_seen(|| crate::store::redis::keys::channel(name)),
            Layout::Plain => self.shared.events.releases_seen(name),
        }
    }

    fn plain(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Self {
            router: self.router.clone(),
            shared: Arc::clone(&self.shared),
            layout: Layout::Plain,
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.subscriber.close();
        self.shared.events.close();
        self.router.close();
        self.shared.channel_router.close();
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.router).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_rounded_up_to_whole_milliseconds() {
        for (nanos, whole) in [
            (1, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (30_000_000_000, 30_000),
        ] {
            assert_eq!(millis(Duration::from_nanos(nanos)), whole);
        }
    }
}
