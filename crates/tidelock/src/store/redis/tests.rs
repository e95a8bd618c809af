//! Stores at scripted servers, and what tests ask of them.

mod lanes;
mod listening;

use std::time::Duration;

use crate::error::Result;
use crate::store::redis::connect;
use crate::store::redis::wire::tests::{LIMIT, ScriptedServer, simulated};
use crate::store::{AttemptRequest, Env, LockKind, Name, Released, ReplicaAck, Store, Ticket};
use crate::types::OwnerMint;

/// The lease of the stores and of their attempts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The answer to `INFO replication` of a primary with one replica.
pub(crate) const ONE_REPLICA: &str = "'role:master\r\nconnected_slaves:1\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nmaster_replid:ab\r\n";

impl ScriptedServer {
    /// The store at this server.
    pub(crate) async fn store(&self) -> Store {
        self.store_at("redis").await
    }

    /// The store at a cluster in which this server has all slots.
    pub(crate) async fn cluster(&self) -> Store {
        self.store_at("redis+cluster").await
    }

    async fn store_at(&self, scheme: &str) -> Store {
        let (background, timers) = simulated();
        let env = Env {
            lease: LEASE,
            ..Env::of_limits(timers, background, LIMIT)
        };
        let url = format!("{scheme}://127.0.0.1:{}", self.port);
        connect(&url, &env).await.unwrap()
    }
}

pub(crate) fn stock() -> Name {
    Name::new("stock").unwrap()
}

/// A ticket for the name `stock`, of a client of its own.
pub(crate) fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: stock(),
        owner: OwnerMint::new().fresh(),
    }
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

/// Compares the result of a release. An error is given by a part of its text, and leaves open what became of the lock.
pub(crate) fn assert_released(
    released: Result<Released>,
    expected: Result<Released, &str>,
    reply: &str,
) {
    match (released, expected) {
        (Ok(released), Ok(expected)) => assert_eq!(released, expected, "{reply}"),
        (Err(error), Err(said)) => {
            assert!(error.outcome_unknown(), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        (released, _) => panic!("{reply}: {released:?}"),
    }
}
