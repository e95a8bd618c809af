//! The memcached store: one item per lock. `add` with a time to live acquires it; compare-and-swap renews and releases
//! it.
//!
//! Best effort: a cache forgets its items when it restarts, and may evict them when it is full.
//!
//! No command reads two items, so the command that acquires a lock cannot check for a withdrawal. We check right after
//! it instead: after an `add`, the client reads its own tombstone on the same connection, and deletes the item if the
//! tombstone exists. A client that finds the lock taken reads the holder's tombstone; if it exists, the item is void
//! and is deleted.

mod acquire;
pub(crate) mod address;
mod connection;
mod doctor;
mod errors;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod handshake;
mod inspect;
mod keys;
mod live_connection;
mod ttl;
mod wire;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;

use self::wire::Command;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::memcached::address::{Address, SYNTAX};
use crate::store::memcached::connection::{Connection, Endpoint};
use crate::store::{
    AttemptReply, AttemptRequest, Backend, Background, BoxFuture, CLIENT_INFO_TTL, Capabilities,
    ClientId, Env, Extensions, Incarnation, LockKind, Name, Operate, Page, Released, Renewal,
    Renewed, ServerRuns, Store, Ticket, certain, ready,
};

/// One handle of the store, with a connection of its own.
struct Memcached {
    connection: Connection,
    /// Runs the extra connections for long requests, such as the list of locks.
    background: Background,
}

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[LockKind::Mutex],
    wakes: false,
    queues: false,
    shared: true,
    durable: false,
    delays: false,
    sequencers: false,
    raises_tokens: false,
    marks: false,
    counts: false,
};

/// Connects, and checks the connection with one request.
///
/// # Errors
///
/// Fails at once if the URL is invalid, if TLS is configured, if the server cannot be reached, or if it lacks a command
/// or setting that locks need.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let endpoint = Arc::new(Endpoint {
        address: target(url, env)?,
        timers: env.timers.clone(),
        limit: env.response_timeout,
        credentials: env.credentials.clone(),
    });
    // Two connections: a long answer to a caller must not delay the renewals of the steward.
    let [front, back] = [(), ()].map(|()| {
        Arc::new(Memcached {
            connection: Connection::new(Arc::clone(&endpoint), &env.background),
            background: env.background.clone(),
        })
    });
    let deadline = front.connection.deadline() + env.connect_slack();
    front
        .connection
        .ask_one(Command::line("mn"), None, deadline)
        .await?;
    Ok(Store::new(front, back))
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    let tls = &env.tls;
    if tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some() {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "TLS certificates are set, but tidelock has no TLS for memcached; remove them",
        ));
    }
    let address = Address::parse(url)?;
    // The credentials may have the password of the user.
    if env.credentials.is_none() {
        SYNTAX.check_login(address.user.as_deref(), address.password.as_deref())?;
    }
    Ok(address)
}

impl Backend for Memcached {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            server_runs: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        certain(self.decide(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(async move {
            // Send all renewals concurrently. Otherwise each would wait for both round trips of the one before it.
            let each = batch.iter().map(|renewal| async move {
                self.renew_one(renewal)
                    .await
                    .unwrap_or_else(Renewed::Failed)
            });
            Ok(join_all(each).await)
        })
    }

    fn lane(&self, _name: &Name) -> u64 {
        // All locks share one connection, so their renewals fail together: one lane.
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(ticket))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.revoke(ticket))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.connection.close();
        ready(())
    }
}

impl ServerRuns for Memcached {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        Box::pin(doctor::incarnation(&self.connection))
    }
}

impl Operate for Memcached {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(self.show(name))
    }

    fn list<'a>(
        &'a self,
        pattern: &'a str,
        _after: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(pattern))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.free(name, seen))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        match info {
            Some(info) => Box::pin(self.publish_client_info(client, info, CLIENT_INFO_TTL)),
            None => Box::pin(self.remove_client_info(client)),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(doctor::examine(&self.connection))
    }
}

impl fmt::Debug for Memcached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memcached").field(&self.connection).finish()
    }
}

#[cfg(test)]
mod tests;
