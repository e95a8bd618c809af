//! The store at a scripted server, and what the tests of all its files share.

mod diagnosis;
mod encrypted;
pub(crate) mod fake_server;
pub(crate) mod frozen;
mod logs;
mod pace;
mod plain;
mod statements;
mod texts;
pub(crate) mod wire;

use super::*;
use crate::store::ReplicaAck;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::tests::clock::simulated;
pub(crate) use crate::store::tests::clock::skip;
use crate::types::{FencingToken, OwnerMint};

/// The response timeout of the stores. No test waits for it in real time.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The lease of the stores and of their attempts.
pub(crate) const LEASE: Duration = Duration::from_secs(40);

/// The environment that a client on tokio's clock gives to a store.
pub(crate) fn env() -> Env {
    let (background, timers) = simulated();
    Env {
        lease: LEASE,
        ..Env::of_limits(timers, background, LIMIT)
    }
}

impl ScriptedDatabase {
    /// The URL of this server, with more options.
    pub(crate) fn url(&self, more: &str) -> String {
        let port = self.port;
        format!("postgres://me@127.0.0.1:{port}/d?sslmode=disable{more}")
    }

    /// The store at this server, which has been asked nothing else.
    pub(crate) async fn store(&self) -> Store {
        self.store_with("").await
    }

    /// As [`store`](Self::store), with more options.
    pub(crate) async fn store_with(&self, more: &str) -> Store {
        connect(&self.url(more), &env()).await.unwrap()
    }

    /// A connection to this server. It connects with the first request.
    pub(crate) fn connection(&self) -> Connection {
        let env = env();
        Connection::new(Arc::new(target(&self.url(""), &env).unwrap()), &env)
    }
}

/// The statements of the stores.
pub(crate) fn sql() -> Sql {
    Sql::new("tidelock_locks")
}

/// The statements of the stores for queues.
pub(crate) fn queue_texts() -> QueueSql {
    let sql = sql();
    QueueSql::new(&sql.table, &sql.channel, LIMIT / 2)
}

/// The name of the lock in most tests.
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
pub(crate) fn once(kind: LockKind) -> AttemptRequest {
    AttemptRequest::once(ticket(kind), LEASE, ReplicaAck::Off)
}

/// An attempt of a caller that waits.
pub(crate) fn patient(kind: LockKind) -> AttemptRequest {
    AttemptRequest {
        patience: LIMIT,
        ..once(kind)
    }
}

/// The token of a grant, when a refusal is to be checked again, or the kind of an error.
pub(crate) fn in_short(reply: &AttemptReply) -> String {
    match &reply.outcome {
        Ok(Attempt::Acquired(grant)) => match grant.token.map(FencingToken::get) {
            Some(token) => format!("granted {token}"),
            None => "granted".to_owned(),
        },
        Ok(Attempt::Held(wait)) => match wait.recheck {
            Some(recheck) => format!("held {recheck:?}"),
            None => "held".to_owned(),
        },
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// The wake of a refusal.
pub(crate) fn wake_of(reply: AttemptReply) -> Option<crate::store::Wake> {
    match reply.outcome.unwrap() {
        Attempt::Held(wait) => wait.wake,
        Attempt::Acquired(grant) => panic!("{grant:?}"),
    }
}
