//! The store for Redis and Valkey: one server, the primary that sentinels name, or a cluster. Its locks are those of
//! Java's Redisson, byte for byte as other clients see them.

pub(crate) mod address;
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
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use self::open::{connect, connect_topology};

use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
pub(crate) use crate::store::redis::layouts::Layout;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::keyspace_events::KeyspaceEvents;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::replicas::AckPolicy;
use crate::store::redis::topology::router::Router;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, Background, BoxFuture, CLIENT_INFO_TTL, Capabilities,
    ClientId, Extensions, HearReleases, Incarnation, Name, Operate, Page, Released, ReleasesSeen,
    Renewal, Renewed, ServerRuns, Ticket, Timers, ready,
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
    ack_policy: AckPolicy,
    timers: Timers,
    background: Background,
    warned: Mutex<HashSet<Name>>,
    /// The user is not allowed to run scripts: plain locks use transactions instead.
    unscripted: AtomicBool,
}

/// Milliseconds, rounded up: a lease on the server must never be shorter than the one the client relies on.
pub(crate) fn millis(time: Duration) -> u64 {
    let part = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1000).saturating_add(part)
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.layout.capabilities()
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            server_runs: Some(self),
            releases: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        self.decide(ask)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.keep_each(batch)
    }

    fn lane(&self, name: &Name) -> u64 {
        self.router.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.end(ticket, false)
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.end(ticket, true)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.subscriber.close();
        self.shared.events.close();
        self.router.close();
        self.shared.channel_router.close();
        ready(())
    }
}

impl ServerRuns for Redis {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(crate::store::redis::topology::server_run::incarnation(
            &self.router,
            &self.shared.timers,
        ))
    }
}

impl HearReleases for Redis {
    fn seen(&self, name: &Name) -> Option<ReleasesSeen> {
        match self.layout {
            Layout::Redisson => self
                .shared
                .subscriber
                .releases_seen(|| crate::store::redis::keys::channel(name)),
            Layout::Plain => self.shared.events.releases_seen(name),
        }
    }

    fn poll_interval(&self, name: &Name) -> Option<Duration> {
        match self.layout {
            Layout::Redisson => None,
            Layout::Plain => self.shared.events.pause(name),
        }
    }
}

impl Operate for Redis {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        match self.layout {
            Layout::Redisson => Box::pin(inspect::at(&self.router, self.shared.ways, name)),
            Layout::Plain => Box::pin(self.show_plain(name)),
        }
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(inspect::page(&self.router, self.layout, pattern, cursor))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        self.free(name)
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        match info {
            Some(info) => Box::pin(inspect::announce(
                &self.router,
                client,
                info,
                CLIENT_INFO_TTL,
            )),
            None => Box::pin(inspect::retract(&self.router, client)),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
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
