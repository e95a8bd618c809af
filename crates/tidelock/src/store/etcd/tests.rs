//! The store at a model of etcd, and what its tests ask for.

mod broken_connections;
mod checks;
mod connecting;
mod delays;
mod inspections;
mod locks;
mod marks;
mod members;
pub(crate) mod model;
mod operators;
mod permit_leases;
mod permits;
mod queue_views;
mod releases;
mod renewals;
pub(crate) mod server;
mod settings;
mod sides;
mod waiters;
mod watches;

use tonic::Code;

use self::server::{ModelServer, Turn};
use super::*;
use crate::store::etcd::api::{KeyValue, LeaseRequest};
use crate::store::tests::clock::simulated;
use crate::store::tls::handshake::peer::in_time;
use crate::store::{Attempt, ReplicaAck, Wait};
use crate::types::OwnerMint;

/// The response timeout. No test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// The lease of the clients and of their attempts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The id of the first lease that the model grants.
pub(crate) const FIRST: i64 = 0x1a;

/// The error of a member that cannot serve. It has not executed the request.
pub(crate) const NO_LEADER: Turn = Turn::Fails(Code::Unavailable, "etcdserver: no leader");

/// What a client at a model of etcd is given.
pub(crate) fn env() -> Env {
    let (background, timers) = simulated();
    Env {
        lease: LEASE,
        ..Env::of_limits(timers, background, LIMIT)
    }
}

impl ModelServer {
    pub(crate) fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}/shop", self.port)
    }

    /// A client of this server. It connects with its first request.
    pub(crate) fn client(&self) -> Etcd {
        client_at(&self.url(), &env())
    }

    /// The key with this name.
    pub(crate) fn key(&self, name: &str) -> Option<KeyValue> {
        self.etcd(|etcd| etcd.key(name).cloned())
    }

    /// The names of all keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.etcd(|etcd| etcd.names())
    }

    /// The leases that exist.
    pub(crate) fn leases(&self) -> Vec<i64> {
        self.etcd(|etcd| etcd.live_leases())
    }

    /// The length in seconds of the lease that a key is under.
    pub(crate) fn ttl_of(&self, key: &str) -> Option<i64> {
        let lease = self.key(key)?.lease;
        Some(self.etcd(|etcd| etcd.ttl(lease)))
    }

    /// The leases that it was asked to keep alive or to revoke, by this method.
    fn heard_of(&self, method: &str) -> Vec<i64> {
        let heard = self.heard::<LeaseRequest>(method).into_iter();
        heard.map(|lease| lease.id).collect()
    }
}

/// A client of the servers at this URL. It connects with its first request.
pub(crate) fn client_at(url: &str, env: &Env) -> Etcd {
    let target = Address::parse(url).unwrap();
    let login = Credentials {
        user: target.user,
        password: target.password,
    };
    let endpoint = Arc::new(Endpoint::new(target.places, login, env));
    let connection = Arc::new(Connection::new(endpoint, ConnectionRuntime::Caller));
    let shared = Shared::new(Keys::new(&target.prefix), &connection, env);
    Etcd { connection, shared }
}

impl Etcd {
    /// Makes an attempt that is granted. Returns its token, or 0 if it has none.
    pub(crate) async fn grants(&self, ask: &AttemptRequest) -> u64 {
        match self.attempt(ask).await.outcome {
            Ok(Attempt::Acquired(grant)) => grant.token.map_or(0, FencingToken::get),
            other => panic!("{other:?}"),
        }
    }

    /// Makes an attempt that finds the lock held.
    pub(crate) async fn refuses(&self, ask: &AttemptRequest) -> Wait {
        match self.attempt(ask).await.outcome {
            Ok(Attempt::Held(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    /// Makes an attempt that fails.
    pub(crate) async fn fails(&self, ask: &AttemptRequest) -> Error {
        self.attempt(ask).await.outcome.unwrap_err()
    }

    /// Renews one hold.
    pub(crate) async fn renews(&self, ticket: &Ticket, lease: Duration) -> Renewed {
        let one = Renewal {
            ticket: ticket.clone(),
            lease,
            wish: ReplicaAck::Off,
        };
        let mut all = self.renew(&[one]).await.unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// Waits until what was begun in the background has been done.
    pub(crate) async fn settles(&self) {
        in_time(self.shared.in_flight.none()).await;
    }
}

/// A ticket for the name `stock`, of a client of its own.
pub(crate) fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: stock(),
        owner: OwnerMint::new().fresh(),
    }
}

pub(crate) fn stock() -> Name {
    Name::new("stock").unwrap()
}

/// An attempt of a caller that does not wait.
pub(crate) fn ask(kind: LockKind) -> AttemptRequest {
    AttemptRequest::once(ticket(kind), LEASE, ReplicaAck::Off)
}

/// An attempt of a caller that waits.
pub(crate) fn patient(kind: LockKind) -> AttemptRequest {
    AttemptRequest {
        patience: LIMIT,
        ..ask(kind)
    }
}

/// A revision of the store as a token.
pub(crate) fn token_at(revision: i64) -> u64 {
    u64::try_from(revision).unwrap()
}
