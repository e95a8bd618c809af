//! Acknowledgement by replicas.
//!
//! `WAIT` reports how many replicas have received the writes of *its own connection*, and it blocks every command
//! behind it. So a script that needs an acknowledgement does not use the connection that all requests share: it goes on
//! a separate connection, with a `WAIT` behind it. Scripts that arrive while a `WAIT` is in flight form the next batch
//! and share one `WAIT`.
//!
//! A script reaches this room only if its policy asks for replicas and its server may have some. The steps:
//!
//! 1. Choose the path by the policy and by the last known replication status: the shared connection, the shared
//!    connection plus a status check, or the ack batcher.
//! 2. The ack batcher runs the script and its `WAIT`. The script's reply comes first, the replica count later.
//! 3. The ack policy compares the count with the number it needs. The caller releases a grant that falls short.

mod batcher;
mod history;
mod policy;
mod wait_connection;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::oneshot;

pub(crate) use crate::store::redis::replicas::policy::AckPolicy;

use crate::error::{Error, Result};
use crate::store::redis::replicas::batcher::{AckBatcher, AckRequest};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::topology::replication;
use crate::store::redis::topology::replication::{NO_REPLICAS_TTL, ReplicaView, Replicas};
use crate::store::redis::wire::errors::unanswered;
use crate::store::redis::wire::reply::Reply;
use crate::store::{BootInstant, ReplicaAck};

/// The `WAIT` connections that belong to one reconnecting connection. Each opens when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct WaitConnections {
    /// One batcher per policy. Otherwise a slow replica that only `All` waits for would delay the other policies.
    acquires: [AckBatcher; 3],
    renewals: AckBatcher,
}

impl WaitConnections {
    fn of(&self, demand: &AckDemand) -> &AckBatcher {
        match (demand.purpose, demand.policy) {
            (Purpose::Renew, _) => &self.renewals,
            (Purpose::Acquire, ReplicaAck::All) => &self.acquires[2],
            (Purpose::Acquire, ReplicaAck::Majority) => &self.acquires[1],
            (Purpose::Acquire, _) => &self.acquires[0],
        }
    }
}

/// The purpose of a script. Renewals have a batcher of their own, so a renewal never waits behind an acquire request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Acquire,
    Renew,
}

/// The acknowledgement that one script needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckDemand {
    pub(crate) purpose: Purpose,
    pub(crate) policy: ReplicaAck,
    /// How many replicas have disconnected or fallen out of sync recently, at the server that misses most.
    missed: u32,
    within: Duration,
    lease: Duration,
}

/// Yields the replica count of a script that has its reply.
pub(crate) struct PendingAck {
    demand: AckDemand,
    source: AckSource,
}

enum AckSource {
    Known(AckResult),
    /// We hold the connection, because its last user stops the ack batcher. A node that serves a single `ASK` redirect
    /// has no other user: without this one the batcher would stop before it reports the count.
    Wait(oneshot::Receiver<AckResult>, BootInstant, Connection),
}

/// The report about the replicas.
#[derive(Debug, Clone)]
pub(crate) enum AckResult {
    /// The server forbids `WAIT` or `INFO`.
    Forbidden(Arc<Error>),
    Count {
        replicas: Replicas,
        reached: u32,
    },
    /// The server did not report a count in time.
    Nothing,
}

/// The path of a script.
enum AckRoute {
    /// On the shared connection, without `WAIT`. Carries the report.
    Alone(AckResult),
    /// On the shared connection, with a concurrent check whether the server has replicas by now.
    CheckReplicas(AckResult),
    /// In the ack batcher, with a `WAIT`.
    Queue,
}

impl AckSource {
    async fn result(self) -> AckResult {
        match self {
            Self::Known(acknowledged) => acknowledged,
            Self::Wait(tally, until, connection) => {
                match connection.timers().until(until, tally).await {
                    Some(Ok(acknowledged)) => acknowledged,
                    Some(Err(_)) | None => AckResult::Nothing,
                }
            }
        }
    }
}

/// Runs a script as [`Connection::eval`] does, and asks the replicas, if there are any, to acknowledge it.
pub(crate) async fn eval(
    connection: &Connection,
    conn: &Arc<LiveConnection>,
    asking: bool,
    job: &ScriptJob<'_>,
    demand: AckDemand,
) -> Result<(Reply, PendingAck)> {
    let (reply, source) = match demand.route(connection, conn)? {
        AckRoute::Alone(acknowledged) => {
            let reply = connection.eval(conn, asking, job).await?;
            (reply, AckSource::Known(acknowledged))
        }
        AckRoute::CheckReplicas(acknowledged) => {
            let reads = replication::read(conn, connection.timers());
            let reads = connection.timers().until(job.deadline, reads);
            let (reply, _) = join(connection.eval(conn, asking, job), reads).await;
            let acknowledged = match (demand.policy, conn.server.replication.view()) {
                // A replica has connected since the last check, and it has acknowledged nothing. We report zero, so
                // that the grant is released and requested again.
                (
                    ReplicaAck::Majority | ReplicaAck::All,
                    Some((ReplicaView::Replicas(replicas), _)),
                ) => AckResult::Count {
                    replicas,
                    reached: 0,
                },
                _ => acknowledged,
            };
            (reply?, AckSource::Known(acknowledged))
        }
        AckRoute::Queue => queue(connection, asking, job, demand).await?,
    };
    Ok((reply, PendingAck { demand, source }))
}

async fn queue(
    connection: &Connection,
    asking: bool,
    job: &ScriptJob<'_>,
    demand: AckDemand,
) -> Result<(Reply, AckSource)> {
    let (answer, answered) = oneshot::channel();
    let (tally, tallied) = oneshot::channel();
    let owned = |args: &[&str]| args.iter().map(|word| (*word).to_owned()).collect();
    let order = AckRequest {
        asking,
        script: job.script,
        keys: owned(job.keys),
        args: owned(job.args),
        demand,
        deadline: job.deadline,
        answer,
        tally,
    };
    let wait_connections = connection.attachments().get::<WaitConnections>();
    wait_connections.of(&demand).send(connection, order)?;
    match connection.timers().until(job.deadline, answered).await {
        Some(Ok(reply)) => {
            let until = demand.patience(connection, job.deadline);
            let source = AckSource::Wait(tallied, until, connection.clone());
            Ok((reply?, source))
        }
        Some(Err(_)) => Err(unanswered("the connection was given up")),
        None => Err(unanswered(format_args!(
            "no answer within {:?}",
            connection.limit()
        ))),
    }
}

impl AckDemand {
    /// Chooses the path of a script by the last known replication status.
    fn route(&self, connection: &Connection, conn: &LiveConnection) -> Result<AckRoute> {
        let replication = &conn.server.replication;
        let now = connection.timers().now();
        Ok(match replication.view() {
            Some((ReplicaView::Replicas(replicas), at)) if replicas.count == 0 => {
                let nobody = AckResult::Count {
                    replicas: replicas.clone(),
                    reached: 0,
                };
                // `Majority` and `All` check on each request. A server that was just promoted has no replicas for a
                // moment, and the next failover forgets the grants of that moment.
                if now.since(at) < NO_REPLICAS_TTL && self.policy <= ReplicaAck::Any {
                    return Ok(AckRoute::Alone(nobody));
                }
                replication.set(ReplicaView::Replicas(replicas), now); // so that one request checks, not all
                AckRoute::CheckReplicas(nobody)
            }
            Some((ReplicaView::Forbidden(why), _)) => {
                give_up_if_strict(self.policy, &why)?;
                AckRoute::Alone(AckResult::Forbidden(why))
            }
            Some((ReplicaView::Replicas(_), _)) | None => AckRoute::Queue,
        })
    }

    /// The deadline for the count. It is later than the timeout of `WAIT` itself: the server's reply carries the count,
    /// and the server checks its timeouts only ten times a second. It leaves a quarter of the limit for releasing the
    /// lock.
    fn patience(&self, connection: &Connection, deadline: BootInstant) -> BootInstant {
        let now = connection.timers().now();
        let left = deadline.since(now).saturating_sub(connection.limit() / 4);
        now + left.min(self.limit() + self.limit() / 4 + Duration::from_millis(150))
    }

    /// The timeout of `WAIT`. It is at most a sixth of the lease, so that time remains for the steps after it.
    pub(crate) fn limit(&self) -> Duration {
        let limit = self.within.min(self.lease / 6);
        limit.max(Duration::from_millis(1))
    }
}

/// Fails for `Majority` and `All`: the caller chose them explicitly, so we grant nothing if we may not ask the
/// replicas.
pub(crate) fn give_up_if_strict(policy: ReplicaAck, why: &Error) -> Result<()> {
    if policy <= ReplicaAck::Any {
        return Ok(());
    }
    Err(Error::new(why.kind()).because(format!(
        "this server cannot tell which replicas have a lock; use the policy `any` or `off`: {}",
        why.detail().unwrap_or_default()
    )))
}
