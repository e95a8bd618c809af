//! Redis and Valkey, one server, what sentinels name as the primary, or a cluster: the locks of Java's Redisson, byte for
//! byte as other clients can see them.

mod ack;
mod birth;
mod board;
mod cluster;
mod conn;
mod decode;
mod doctor;
mod driver;
mod ending;
mod errors;
mod events;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod gate;
mod greeting;
mod keys;
mod link;
mod look;
mod open;
mod pipe;
mod place;
mod plain;
mod plain_rights;
mod renew;
mod reply;
mod request;
mod rights;
mod routes;
mod scripts;
mod sentinel;
mod session;
mod slots;
mod solo;
mod stations;
mod subscriber;
mod survey;
mod target;
mod tokens;
mod unscripted;
mod url;
mod wire;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use self::open::{connect, connect_servers};

use self::ack::{Company, Purpose, Receipt, Undoing};
use self::errors::unexpected;
use self::events::Events;
pub(crate) use self::plain::Layout;
use self::reply::Reply;
use self::routes::Routes;
use self::stations::Stations;
use self::subscriber::{Subscriber, Ways};
use crate::backend::{
    Ask, Attempt, Backend, Background, BoxFuture, Capabilities, ClientId, Grant, Heard,
    Incarnation, Kind, Moment, Name, Page, Released, Renewal, Renewed, Ticket, Timers, Wait, Wake,
};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};

/// How long a tombstone stays: longer than a request can lie in the buffers of a server that is frozen.
const TOMBSTONE_KEPT: Duration = Duration::from_secs(300);

/// Names of locks without a time to live that were warned about; a limit, so that it cannot grow without end.
const MOST_WARNINGS: usize = 1000;

/// One face of the store: its own connections for commands; the subscriptions are shared.
struct Redis {
    routes: Routes,
    shared: Arc<Shared>,
    layout: Layout,
}

struct Shared {
    stations: Stations,
    ways: Ways,
    subscriber: Arc<Subscriber>,
    events: Events,
    lease: Duration,
    acknowledge_within: Duration,
    timers: Timers,
    background: Background,
    warned: Mutex<HashSet<Name>>,
    /// It has been said that replicas cannot be asked.
    unasked: AtomicBool,
    company: Company,
    undoing: Undoing,
    /// This user may not run scripts: plain locks go without.
    unscripted: AtomicBool,
}

/// Milliseconds, rounded up: what the server keeps is never shorter than what the client relies on.
pub(super) fn millis(time: Duration) -> u64 {
    let part = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1000).saturating_add(part)
}

impl Redis {
    async fn decide(&self, ask: &Ask) -> Result<Attempt> {
        self.routes.check(&ask.ticket.name)?;
        let deadline = self.routes.deadline();
        // Before the script: from here on no release is missed.
        let wake = self.wake_for(ask).await;
        let (reply, receipt) = self.acquire(ask, deadline).await?;
        let answer = reply.list().unwrap_or_default();
        match (
            answer.first().and_then(Reply::int),
            answer.get(1).and_then(Reply::int),
        ) {
            (Some(1), Some(token)) => Ok(Attempt::Acquired(Grant {
                token: tokens::first(ask.ticket.kind, token)?,
                more: answer.get(2).map_or(0, Reply::count),
                acknowledged: self.acknowledged(ask, receipt, deadline).await?,
                bond: None,
            })),
            (Some(0), Some(left)) => {
                // The script for a plain lock also answers the owner.
                if let Some(owner) = answer.get(2) {
                    self.shared.events.saw(&ask.ticket.name, owner);
                }
                Ok(Attempt::Held(self.wait(ask, wake, left)))
            }
            (Some(2), None) => {
                Err(Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn"))
            }
            (Some(3), None) => {
                Err(Error::new(ErrorKind::WrongType).because(self.layout.stranger()))
            }
            _ => Err(unexpected(&reply)),
        }
    }

    async fn wake_for(&self, ask: &Ask) -> Option<Wake> {
        if self.layout == Layout::Plain {
            return self.shared.events.wake_for(ask, &self.routes).await;
        }
        if ask.armed {
            return None;
        }
        let subscriber = &self.shared.subscriber;
        if ask.patience.is_zero() {
            return subscriber.arm_if_live(|| keys::channel(&ask.ticket.name));
        }
        let channel = keys::channel(&ask.ticket.name);
        // Half of the time: the script is to be answered too. Behind a pointer, as all that few requests need: it would lie
        // in every one of them, and be copied with it.
        Box::pin(subscriber.arm(&channel, self.routes.limit() / 2)).await
    }

    async fn acquire(&self, ask: &Ask, deadline: Moment) -> Result<(Reply, Receipt)> {
        if self.layout == Layout::Plain {
            return self.acquire_plain(ask, deadline).await;
        }
        let ticket = &ask.ticket;
        let owner = ticket.owner.text();
        let tombstone = keys::tombstone(&ticket.name, owner);
        let (mut digits, mut tokens) = (itoa::Buffer::new(), itoa::Buffer::new());
        let lease = digits.format(millis(ask.lease));
        let args = [lease, owner, tokens.format(ask.spare.saturating_add(1))];
        let token = match ticket.kind {
            Kind::Fenced => keys::token(&ticket.name),
            _ => String::new(),
        };
        let keys = [ticket.name.as_str(), &*tombstone, &*token];
        let (keys, args) = match ticket.kind {
            Kind::Fenced => (&keys[..], &args[..]),
            _ => (&keys[..2], &args[..2]),
        };
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        self.routes
            .eval_acknowledged(&scripts::ACQUIRE, keys, args, demand, deadline)
            .await
    }

    fn wait(&self, ask: &Ask, wake: Option<Wake>, left: i64) -> Wait {
        let cap = self.shared.lease;
        let recheck = if let Ok(left) = u64::try_from(left) {
            // One more, so that it is over then.
            Duration::from_millis(left + 1).min(cap)
        } else {
            self.warn_of_no_limit(&ask.ticket.name);
            cap
        };
        let recheck = if self.layout == Layout::Redisson && self.polls(ask, wake.is_some()) {
            recheck.min((recheck / 20).clamp(Duration::from_millis(100), Duration::from_secs(1)))
        } else {
            recheck
        };
        Wait {
            wake,
            recheck: Some(recheck),
        }
    }

    /// A release may not be heard here.
    fn polls(&self, ask: &Ask, armed: bool) -> bool {
        if ask.patience.is_zero() {
            return false;
        }
        let subscriber = &self.shared.subscriber;
        !(armed || ask.armed) || subscriber.is_deaf(|| keys::channel(&ask.ticket.name))
    }

    fn warn_of_no_limit(&self, name: &Name) {
        let mut warned = self
            .shared
            .warned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MOST_WARNINGS && warned.insert(name.clone()) {
            tracing::warn!(lock = %name, "its key has no time to live: if its holder has died, only a forced release frees it");
        }
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.layout.capabilities()
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.decide(ask))
    }

    fn in_doubt(&self, ticket: &Ticket) -> bool {
        self.shared.undoing.take(&ticket.owner)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.keep_each(batch))
    }

    fn lane(&self, name: &Name) -> u64 {
        self.routes.lane(name)
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
            Layout::Redisson => Box::pin(look::at(&self.routes, self.shared.ways, name)),
            Layout::Plain => Box::pin(self.show_plain(name)),
        }
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(look::page(&self.routes, self.layout, pattern, cursor))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(look::announce(&self.routes, client, info, keep))
    }

    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        Box::pin(look::retract(&self.routes, client))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let Shared {
            subscriber,
            ways,
            timers,
            ..
        } = &*self.shared;
        let rights: BoxFuture<'_, Result<Vec<Finding>>> = match self.layout {
            Layout::Redisson => Box::pin(rights::findings(&self.routes, subscriber, *ways)),
            Layout::Plain => Box::pin(self.plain_findings()),
        };
        Box::pin(survey::examine(&self.routes, rights, *ways, timers))
    }

    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(birth::incarnation(&self.routes, &self.shared.timers))
    }

    fn pause(&self, name: &Name) -> Option<Duration> {
        match self.layout {
            Layout::Redisson => None,
            Layout::Plain => self.shared.events.pause(name),
        }
    }

    fn heard(&self, name: &Name) -> Option<Heard> {
        match self.layout {
            Layout::Redisson => self.shared.subscriber.heard(|| keys::channel(name)),
            Layout::Plain => self.shared.events.heard(name),
        }
    }

    fn plain(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Self {
            routes: self.routes.clone(),
            shared: Arc::clone(&self.shared),
            layout: Layout::Plain,
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.subscriber.close();
        self.shared.events.close();
        self.routes.close();
        self.shared.stations.close();
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.routes).finish()
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
