//! The etcd store.
//!
//! Each lock is a queue of keys, one per holder or waiter, each under its own lease. The oldest key holds the lock. The
//! layout is that of etcd's own `concurrency` package and of `etcdctl lock`, so they can share locks with tidelock. The
//! sides of a read-write lock are in the same queue; a reader passes the keys of other readers.
//!
//! The holders and waiters of a semaphore have a queue of their own, beside that of the locks.

mod acquire;
pub(crate) mod address;
mod api;
mod calls;
mod connection;
mod delay;
mod doctor;
mod downgrade;
mod errors;
mod foreign_keys;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod inspect;
mod keys;
mod live_connection;
mod marks;
mod permit_keys;
mod permit_steps;
mod permit_view;
mod permits;
mod queue;
mod queue_view;
mod release;
mod renew;
mod restored;
mod store_revision;
mod stream;
mod ticket_leases;
mod wake;
mod watched;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use address::{Address, SYNTAX};
use connection::{Connection, Endpoint};
use keys::Keys;
use store_revision::StoreRevision;
use ticket_leases::TicketLeases;
use wake::Watcher;

use crate::Credentials;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::connect_once::ConnectionRuntime;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, Background, BoxFuture, CLIENT_INFO_TTL, Capabilities,
    ClientId, Env, Extensions, LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store,
    Ticket, VerifySequencers, WakeChannels, certain, tls,
};
use crate::types::FencingToken;

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

/// Connects, and checks the connection with one request.
///
/// # Errors
///
/// Fails at once if the URL or the TLS settings are invalid, if no member can be reached, or if the members refuse us.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let target = target(url, env)?;
    let secured = target.is_secured();
    let login = Credentials {
        user: target.user,
        password: target.password,
    };
    let endpoint = Arc::new(Endpoint::new(target.places, login, env));
    let back = ConnectionRuntime::Background(env.background.clone());
    // Two connections: a slow caller's runtime must not delay the renewals of the steward.
    let [front, back] = [ConnectionRuntime::Caller, back]
        .map(|home| Arc::new(Connection::new(Arc::clone(&endpoint), home)));
    let shared = Shared::new(Keys::new(&target.prefix), &front, env);
    let [front, back] = [front, back].map(|connection| {
        Arc::new(Etcd {
            connection,
            shared: Arc::clone(&shared),
        })
    });
    let greeted = front.greet().await;
    greeted.map_err(|error| missing_certificate(error, secured && env.tls.cert.is_none()))?;
    Ok(Store::new(front, back))
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    let target = Address::parse(url)?;
    // The credentials may have the password of the user.
    if env.credentials.is_none() {
        SYNTAX.check_login(target.user.as_deref(), target.password.as_deref())?;
    }
    if !target.is_secured() && tls::is_wanted(&env.tls) {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "TLS certificates are set, but the URL does not use TLS; write etcds:// instead of etcd://",
        ));
    }
    Ok(target)
}

/// Adds advice to the error of a failed connect if a missing client certificate may be the cause.
///
/// A server that requires a certificate rejects us only after the TLS handshake and then closes the connection, often
/// before we can read its reason.
fn missing_certificate(error: Error, none_shown: bool) -> Error {
    let why = error.detail().unwrap_or_default();
    let kind = match tls::kind(why) {
        ErrorKind::Refused => ErrorKind::Refused,
        _ => error.kind(),
    };
    if none_shown && why.contains("the connection broke") {
        let advice = "if the server requires a client certificate, set `tls_identity`";
        return Error::new(kind).because(format!("{why}; {advice}"));
    }
    if kind == error.kind() {
        return error;
    }
    Error::new(kind).because(why)
}

/// State that the store's two handles share: one serves callers, one serves the steward.
struct Shared {
    keys: Keys,
    revision: StoreRevision,
    ticket_leases: TicketLeases,
    signals: WakeChannels,
    watcher: Arc<Watcher>,
    background: Background,
    /// The writes in the background that a close waits for.
    in_flight: Arc<InFlightCounter>,
    lease: Duration,
}

impl Shared {
    /// Counts a write in the background, until it is dropped.
    fn count_write(&self) -> InFlight<Arc<InFlightCounter>> {
        InFlight::new(Arc::clone(&self.in_flight))
    }

    fn new(keys: Keys, connection: &Arc<Connection>, env: &Env) -> Arc<Self> {
        // Signals and watcher refer to each other. The watcher is created last and filled in here; the weak reference
        // prevents a cycle that would never be freed.
        let known: Arc<OnceLock<Weak<Watcher>>> = Arc::default();
        let seen = Arc::clone(&known);
        let signals = WakeChannels::new(env.timers.clone(), move |channel| {
            if let Some(watcher) = seen.get().and_then(Weak::upgrade) {
                watcher.leave(channel);
            }
        });
        let watcher =
            Arc::new_cyclic(|this| Watcher::new(Arc::clone(connection), signals.clone(), this));
        // Cannot fail: nothing else sets it.
        let _ = known.set(Arc::downgrade(&watcher));
        Arc::new(Self {
            keys,
            revision: StoreRevision::default(),
            ticket_leases: TicketLeases::new(env.timers.clone()),
            signals,
            watcher,
            background: env.background.clone(),
            in_flight: Arc::default(),
            lease: env.lease,
        })
    }
}

/// One handle of the store, with a connection of its own.
pub(crate) struct Etcd {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("link", &self.connection)
            .finish_non_exhaustive()
    }
}

impl Backend for Etcd {
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
        match ask.ticket.kind {
            LockKind::Permits(permits) => certain(self.acquire_permits(ask, permits)),
            _ => certain(self.acquire(ask)),
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.renew_batch(batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        // All locks share one connection, so their renewals fail together: one lane.
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.give_back(ticket))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.take_back(ticket))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.watcher.close();
        self.connection.close();
        // The background ends after this. Otherwise a write of a caller that has left, just before the close, would leave a
        // lease for as long as a mark is kept.
        let endpoint = &self.connection.endpoint;
        Box::pin(async move {
            let written = self.shared.in_flight.none();
            endpoint.timers.limit(endpoint.limit, written).await;
        })
    }
}

impl VerifySequencers for Etcd {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.holds(name, generation))
    }
}

impl Operate for Etcd {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(self.look(name))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(pattern, after))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.force(name, seen))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        match info {
            Some(info) => Box::pin(self.leave_details(client, info, CLIENT_INFO_TTL)),
            None => Box::pin(self.remove_details(client)),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.find_weaknesses())
    }
}

#[cfg(test)]
mod tests;
