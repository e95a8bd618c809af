//! `zookeeper://host:port,…/base`: a queue of ephemeral nodes, in the layout of Curator's `InterProcessMutex` and
//! `InterProcessReadWriteLock`.
//!
//! A ticket that wants the lock has a node under the lock's path, and the first node holds it, together with the readers
//! behind it if it is a reader's ([`turn`]); each waiter watches only the last one that has to go before it. A node lives as long as the session that made it ([`link`]). Leases are this process's
//! own affair: it removes what was not renewed in time ([`keep`]), and if it cannot, the session ends.

mod books;
mod delay;
mod entry;
mod examine;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod keep;
mod leave;
mod link;
mod look;
mod looks;
mod names;
mod note;
mod place;
mod trouble;
mod turn;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use self::books::Books;
use self::link::Link;
use self::looks::Looks;
use self::place::Place;
use super::glob::matches_glob;
use crate::backend::{
    Ask, Attempt, Backend, Background, BoxFuture, Capabilities, ClientId, Env, Name, Page,
    Released, Renewal, Renewed, Signals, Store, Ticket, Timers, TlsFiles,
};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Snapshot};

/// How often the client's lease is halved for a session of its own.
const HALVINGS: u32 = 5;

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    wakes: true,
    tokens: true,
    queues: true,
    shared: true,
    durable: true,
    delays: true,
    sequencers: true,
    read_write: true,
};

/// Opens `zookeeper://…`.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    if env.tls != TlsFiles::default() {
        return Err(Error::new(ErrorKind::InvalidOptions)
            .because("certificates are given, but this client speaks no TLS to ZooKeeper"));
    }
    let place = Place::parse(url)?;
    let link = |lease| Arc::new(Link::new(env, place.clone(), lease));
    // Whoever says how long a session is means all of them.
    let halvings = if place.session_timeout.is_some() {
        0
    } else {
        HALVINGS
    };
    let shared = Arc::new(Shared {
        link: link(env.lease),
        short: (1..=halvings).map(|n| link(env.lease / (1 << n))).collect(),
        books: Books::default(),
        sights: delay::Sights::default(),
        looks: Looks::default(),
        signals: Signals::new(env.timers.clone(), |_| {}),
        timers: env.timers.clone(),
        background: env.background.clone(),
        lease: env.lease,
        response_timeout: env.response_timeout,
        info: Mutex::default(),
    });
    shared.link.session(shared.link.deadline()).await?;
    env.background
        .spawn(keep::keep_leases(Arc::downgrade(&shared)));
    // One face: a node can be renewed only in the session that made it, and no caller can block that.
    Ok(Store::single(Arc::new(ZooKeeper(shared))))
}

/// What an open store has.
struct Shared {
    /// The session of leases as long as the client's, and of whatever belongs to no lease.
    link: Arc<Link>,
    /// Sessions of half that length, a quarter and so on: a session ends for all of its leases, and who holds a lock for a
    /// short lease is to be followed as soon when it crashes. Made when they are needed.
    short: Vec<Arc<Link>>,
    books: Books,
    sights: delay::Sights,
    /// What of the queues is being looked at.
    looks: Looks<turn::At, turn::Seen>,
    /// A channel for each ticket: its watch wakes nobody else.
    signals: Signals,
    timers: Timers,
    background: Background,
    lease: Duration,
    response_timeout: Duration,
    /// What nodes say about this process.
    info: Mutex<Option<ClientInfo>>,
}

impl Shared {
    /// The link of this ticket: that of its node, or the one for its lease.
    fn link_for(&self, ticket: &Ticket, lease: Duration) -> Arc<Link> {
        if let Some(link) = self.books.link(&ticket.owner) {
            return link;
        }
        let fits = |link: &&Arc<Link>| lease <= link.lease();
        let link = self.short.iter().rev().find(fits).unwrap_or(&self.link);
        Arc::clone(link)
    }

    /// The node under which a lock's tickets queue.
    fn path(&self, name: &Name) -> String {
        self.link.place().path(&names::escape(name.as_str()))
    }

    fn note(&self, ticket: &Ticket) -> Vec<u8> {
        let info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        note::write(ticket.owner.text(), info.as_ref())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.books.bell.notify_one(); // the keeper sees that it has nothing to keep
    }
}

struct ZooKeeper(Arc<Shared>);

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeper").field(&self.0.link).finish()
    }
}

impl Backend for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(turn::attempt(&self.0, ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(keep::renew(&self.0, batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(leave::leave(&self.0, ticket, false))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(leave::leave(&self.0, ticket, true))
    }

    fn check<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(look::check(&self.0, name, generation))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        Box::pin(leave::force(&self.0, name))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(look::inspect(&self.0, name))
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(look::list(&self.0, pattern, cursor))
    }

    /// Every node made from now on says it, and goes with its session.
    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        info: &'a ClientInfo,
        _keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        *self.0.info.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn retract<'a>(&'a self, _client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(()))) // they are in the nodes of its locks, and go with them
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(examine::examine(&self.0))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.books.clear();
            // Side by side: a server that does not answer would be waited for once for each session.
            let links = self.0.short.iter().chain([&self.0.link]);
            join_all(links.map(|link| link.close())).await;
        })
    }
}
