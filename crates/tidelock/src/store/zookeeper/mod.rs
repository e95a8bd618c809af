//! The ZooKeeper store, `zookeeper://host:port,…/base`: a queue of ephemeral nodes, in the layout of Curator's
//! `InterProcessMutex` and `InterProcessReadWriteLock`.
//!
//! Each ticket that wants the lock creates an ephemeral sequential node under the lock's path. The first node in the
//! queue holds the lock. If it belongs to a reader, the readers directly behind it hold the lock too. Each waiter
//! watches only the last node that blocks it; otherwise every release would wake every waiter.
//!
//! The holders and waiters of a semaphore have nodes too, in a folder of their own.
//!
//! A node lives as long as the session that created it. The server knows no leases, so this process enforces them: it
//! deletes each node that was not renewed in time. If it cannot, because it is frozen or cut off, the session expires
//! and takes the node with it.

mod acquire;
pub(crate) mod address;
mod claims;
mod connection;
mod delay;
mod delay_node;
mod doctor;
mod downgrade;
mod entry;
mod errors;
mod force;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod inspect;
mod keys;
mod marks;
mod node_change;
mod note;
mod own_node;
mod permit_counter;
mod permit_requests;
mod permit_steps;
mod permit_view;
mod permits;
mod queue;
mod registry;
mod release;
mod renew;
mod semaphores;
mod sequence;
mod shared;
mod single_flight;
mod transaction;
mod unreachable;
mod watch_list;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::zookeeper::address::{Address, SYNTAX};
use crate::store::zookeeper::connection::Connection;
use crate::store::zookeeper::delay_node::DelaySightings;
use crate::store::zookeeper::queue::QueueReader;
use crate::store::zookeeper::registry::NodeRegistry;
use crate::store::zookeeper::shared::Shared;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Env, Extensions,
    LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store, Ticket, TlsFiles,
    VerifySequencers, WakeChannels, ready,
};
use crate::types::FencingToken;

/// Bounds the number of extra sessions for short leases: the n-th one serves leases up to the client's lease / 2^n.
const HALVINGS: u32 = 5;

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Read,
        LockKind::Write,
        LockKind::Fair,
        LockKind::FairFenced,
        LockKind::ReadFenced,
        LockKind::WriteFenced,
        LockKind::Permits(1),
    ],
    wakes: true,
    queues: true,
    shared: true,
    durable: true,
    delays: true,
    sequencers: true,
    raises_tokens: false,
    marks: true,
    counts: false,
};

/// Connects to the servers and opens the store. TLS files are refused with `InvalidOptions`.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let shared = open(url, env).await?;
    // One store handle serves callers and steward: only the session that created a node can renew it, and no caller
    // can block that session.
    Ok(Store::single(Arc::new(ZooKeeper(shared))))
}

/// Connects to the servers, and starts the lease task.
async fn open(url: &str, env: &Env) -> Result<Arc<Shared>> {
    let address = target(url, env)?;
    let connection = |lease| Arc::new(Connection::new(env, address.clone(), lease));
    // A session timeout in the URL applies to every session, so shorter sessions are pointless.
    let halvings = if address.session_timeout.is_some() {
        0
    } else {
        HALVINGS
    };
    let shared = Arc::new(Shared {
        connection: connection(env.lease),
        short: (1..=halvings)
            .map(|n| connection(env.lease / (1 << n)))
            .collect(),
        registry: NodeRegistry::default(),
        deleting: Mutex::default(),
        closed: AtomicBool::new(false),
        sightings: DelaySightings::default(),
        queues: QueueReader::new(env.timers.clone(), env.background.clone()),
        signals: WakeChannels::new(env.timers.clone(), |_| {}),
        timers: env.timers.clone(),
        background: env.background.clone(),
        lease: env.lease,
        response_timeout: env.response_timeout,
        info: Mutex::default(),
    });
    shared
        .connection
        .session(shared.connection.deadline())
        .await?;
    env.background
        .spawn(renew::keep_leases(Arc::downgrade(&shared)));
    Ok(shared)
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    if env.tls != TlsFiles::default() {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "TLS certificates are set, but tidelock has no TLS for ZooKeeper; remove them",
        ));
    }
    let address = Address::parse(url)?;
    // The credentials may have the password of the user.
    if env.credentials.is_none() {
        SYNTAX.check_login(address.user.as_deref(), address.password.as_deref())?;
    }
    Ok(address)
}

struct ZooKeeper(Arc<Shared>);

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeper")
            .field(&self.0.connection)
            .finish()
    }
}

impl Backend for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sequencers: Some(self),
            marks: Some(self),
            permit_counter: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        let reply = |outcome| self.0.registry.reply(&ask.ticket, outcome);
        match ask.ticket.kind {
            LockKind::Permits(permits) => {
                Box::pin(permits::attempt(&self.0, ask, permits).map(reply))
            }
            _ => Box::pin(acquire::attempt(&self.0, ask).map(reply)),
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(renew::renew(&self.0, batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(release::leave(&self.0, ticket, false))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(release::leave(&self.0, ticket, true))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.closed.store(true, Ordering::SeqCst);
            self.0.registry.clear();
            // We close the sessions in parallel. In sequence, a mute server would cost one response timeout per
            // session.
            let connections = self.0.short.iter().chain([&self.0.connection]);
            join_all(connections.map(|connection| connection.close())).await;
        })
    }
}

impl VerifySequencers for ZooKeeper {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(inspect::verify(&self.0, name, generation))
    }
}

impl Operate for ZooKeeper {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(inspect::inspect(&self.0, name))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(inspect::list(&self.0, pattern, after))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(force::force(&self.0, name, seen))
    }

    /// Sends no request: each node created from now on carries the details, and disappears with its session.
    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        // The details are in the nodes of the held locks and disappear with them, so there is nothing to remove.
        if let Some(info) = info {
            *self.0.info.lock() = Some(info.clone());
        }
        ready(Ok(()))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(doctor::examine(&self.0))
    }
}

#[cfg(test)]
mod tests;
