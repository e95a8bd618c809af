//! The store for Redis and Valkey: one server, the primary that sentinels name, or a cluster. Its locks are those of
//! Java's Redisson, byte for byte as other clients see them.

pub(crate) mod address;
mod doctor;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod handle;
mod inspect;
pub(crate) mod keys;
pub(crate) mod layouts;
mod marks;
mod open;
pub(crate) mod pubsub;
mod recent_holders;
mod replicas;
pub(crate) mod slots;
pub(crate) mod topology;
pub(crate) mod wire;

use std::time::Duration;

pub(crate) use self::handle::{Layout, Redis, Shared, TOMBSTONE_KEPT, millis};
pub(crate) use self::open::{connect, connect_topology, target, target_of};

use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, CLIENT_INFO_TTL, Capabilities, ClientId,
    Extensions, HearReleases, Incarnation, Name, Operate, Page, Released, ReleasesSeen, Renewal,
    Renewed, ServerRuns, Ticket, TokenCounter, ready,
};

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.layout.capabilities()
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            token_counter: Some(self),
            marks: Some(self),
            permit_counter: self.permit_counter(),
            counts: self.counts(),
            server_runs: Some(self),
            releases: Some(self),
            awaited: Some(self),
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
        self.shared.beats.close();
        self.router.close();
        self.shared.channel_router.close();
        ready(())
    }
}

impl ServerRuns for Redis {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(self.router.incarnation(&self.shared.timers))
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

    fn hears_turns(&self, ticket: &Ticket) -> bool {
        matches!(self.layout, Layout::Redisson) && Redis::hears_turns(self, ticket)
    }

    fn poll_interval(&self, name: &Name) -> Option<Duration> {
        match self.layout {
            Layout::Redisson => None,
            Layout::Plain => self.shared.events.pause(name),
        }
    }
}

impl TokenCounter for Redis {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.raise_counter(name, newest))
    }
}

impl Operate for Redis {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        match self.layout {
            Layout::Redisson => Box::pin(inspect::at(&self.router, self.shared.ways, name)),
            Layout::Plain => Box::pin(self.show_plain(name)),
        }
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(inspect::page(
            &self.router,
            self.shared.ways,
            self.layout,
            pattern,
            after,
        ))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.free(name, seen)
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

#[cfg(test)]
mod tests;
