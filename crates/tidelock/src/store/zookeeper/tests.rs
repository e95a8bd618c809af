//! The store at a server on loopback, and what its tests ask of it.

mod acquires;
mod connecting;
mod delays;
mod diagnoses;
mod downgrades;
mod jute;
mod marks;
mod numbers;
mod operators;
mod permits;
mod releases;
mod renewals;
mod reply;
mod request;
mod server;
mod tree;

use std::time::Duration;

use super::*;
use crate::engine::runtime::event::Event;
use crate::store::tests::clock::{in_time, simulated, skip};
use crate::store::zookeeper::tests::server::{ServerFault, TestServer};
use crate::store::zookeeper::tests::tree::{ModelTree, NO_AUTH, NO_NODE, THROTTLED};
use crate::store::{Attempt, Bond, Grant, ReplicaAck, Wait};
use crate::types::OwnerMint;

/// The response timeout. No test waits for it in real time.
const LIMIT: Duration = Duration::from_secs(10);

/// The lease of the stores and of their attempts.
const LEASE: Duration = Duration::from_secs(30);

/// The path of the lock `stock`.
const STOCK: &str = "/tidelock/stock";

/// The path of its delay node.
const MARK: &str = "/tidelock/%delays/stock";

/// The number of permits of the semaphore `stock`.
const NUMBER: &str = "/tidelock/stock/%permits__WRIT__-1";

/// The path of its claims.
const CLAIMS: &str = "/tidelock/%permits/stock";

/// The beginning of a request that creates a node in the queue of `stock`.
const CREATE: &str = "create /tidelock/stock/_c_";

/// A session of another client.
const FOREIGN: i64 = 9;

/// The name of the lock of these tests.
fn stock() -> Name {
    Name::new("stock").unwrap()
}

/// A ticket for `stock`, of a client of its own.
fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: stock(),
        owner: OwnerMint::new().fresh(),
    }
}

/// An attempt of a caller that does not wait.
fn ask(kind: LockKind) -> AttemptRequest {
    AttemptRequest::once(ticket(kind), LEASE, ReplicaAck::Off)
}

/// An attempt of a caller that waits.
fn patient(kind: LockKind) -> AttemptRequest {
    AttemptRequest {
        patience: LIMIT,
        ..ask(kind)
    }
}

/// Renews this hold for its lease.
fn renewal(ask: &AttemptRequest) -> Renewal {
    Renewal {
        ticket: ask.ticket.clone(),
        lease: ask.lease,
        wish: ReplicaAck::Off,
    }
}

async fn granted(store: &ZooKeeper, ask: &AttemptRequest) -> Grant {
    match store.attempt(ask).await.outcome.unwrap() {
        Attempt::Acquired(grant) => grant,
        Attempt::Held(wait) => panic!("refused: {wait:?}"),
    }
}

async fn refused(store: &ZooKeeper, ask: &AttemptRequest) -> Wait {
    match store.attempt(ask).await.outcome.unwrap() {
        Attempt::Acquired(grant) => panic!("granted: {grant:?}"),
        Attempt::Held(wait) => wait,
    }
}

async fn failed(store: &ZooKeeper, ask: &AttemptRequest) -> Error {
    let reply = store.attempt(ask).await;
    assert!(!reply.in_doubt);
    reply.outcome.unwrap_err()
}

/// Waits for the answer to a request that the server does not answer.
async fn unanswered<T>(server: &TestServer, request: &str, answer: impl Future<Output = T>) -> T {
    let known = server.heard(request).len();
    let timeout = async {
        server.hears(request, known + 1).await;
        skip(LIMIT).await;
    };
    let (answer, ()) = tokio::join!(answer, timeout);
    answer
}

/// Waits for the end of a bond.
async fn is_severed(bond: &Bond) {
    let event = Arc::<Event>::default();
    bond.listen(&event);
    let severed = event.until_some(|| bond.is_severed().then_some(()));
    in_time(severed).await;
}

/// The environment of a store on tokio's clock.
fn env() -> Env {
    let (background, timers) = simulated();
    Env {
        lease: LEASE,
        ..Env::of_limits(timers, background, LIMIT)
    }
}

impl TestServer {
    /// The store at this server.
    async fn store(&self) -> ZooKeeper {
        self.open("", "", &env()).await.unwrap()
    }

    /// The same with this login (`user:password@`) and these options of the URL.
    async fn open(&self, login: &str, options: &str, env: &Env) -> Result<ZooKeeper> {
        let url = format!("zookeeper://{login}127.0.0.1:{}{options}", self.port);
        open(&url, env).await.map(ZooKeeper)
    }

    /// The path of the ticket's node in the queue of `stock`.
    fn path_of(&self, ticket: &Ticket) -> String {
        let prefix = keys::prefix(ticket);
        let nodes = self.children(STOCK).into_iter();
        let own: Vec<String> = nodes.filter(|node| node.starts_with(&prefix)).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        format!("{STOCK}/{}", own[0])
    }

    /// The transaction that created this node.
    fn created(&self, path: &str) -> u64 {
        self.tree(|tree| tree.node(path).unwrap().created.unsigned_abs())
    }
}
