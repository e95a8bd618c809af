//! Runs a script: chooses its path, and returns its reply before the report about the replicas.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::oneshot;

use crate::error::Result;
use crate::store::redis::replicas::batcher::AckBatcher;
use crate::store::redis::replicas::demand::{AckDemand, AckResult, Purpose, give_up_if_strict};
use crate::store::redis::replicas::wait_connection::AckRequest;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::topology::replication::{NO_REPLICAS_TTL, ReplicaView, ReplicationStatus};
use crate::store::redis::wire::errors::unanswered;
use crate::store::redis::wire::reply::Reply;
use crate::store::{Background, BootInstant, ReplicaAck};

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

/// Yields the replica count of a script that has its reply.
pub(crate) struct PendingAck {
    pub(crate) demand: AckDemand,
    pub(crate) source: AckSource,
}

pub(crate) enum AckSource {
    Known(AckResult),
    /// We hold the connection, because its last user stops the ack batcher. A node that serves a single `ASK` redirect
    /// has no other user: without this one the batcher would stop before it reports the count.
    Wait(oneshot::Receiver<AckResult>, BootInstant, Connection),
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
    pub(crate) async fn result(self) -> AckResult {
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

/// Runs a script as [`ScriptJob::eval`] does, and asks the replicas, if there are any, to acknowledge it.
pub(crate) async fn eval(
    connection: &Connection,
    conn: &Arc<LiveConnection>,
    asking: bool,
    job: &ScriptJob<'_>,
    demand: AckDemand,
    background: &Background,
) -> Result<(Reply, PendingAck)> {
    let route = demand.route(&conn.server.replication, connection.timers().now());
    let (reply, source) = match route? {
        AckRoute::Alone(acknowledged) => {
            let reply = job.eval(connection, conn, asking).await?;
            (reply, AckSource::Known(acknowledged))
        }
        AckRoute::CheckReplicas(nobody) => {
            let now = connection.timers().now();
            let until = release_starts(now, job.deadline, connection.limit());
            let reads = conn.read_replication(connection.timers());
            let reads = connection.timers().until(until, reads);
            let (reply, read) = join(job.eval(connection, conn, asking), reads).await;
            let reply = reply?;
            let acknowledged = match read.flatten() {
                _ if demand.policy <= ReplicaAck::Any => nobody,
                // If a replica has connected since the last check, it has acknowledged nothing. We report zero, so
                // that the grant is released and requested again.
                Some(ReplicaView::Replicas(replicas)) => AckResult::Count {
                    replicas,
                    reached: 0,
                },
                // The server may have replicas by now. If we took the last status, the grant would stand without any
                // of them. The release must not wait behind a reply that does not come, so it goes on another
                // connection.
                Some(ReplicaView::Forbidden(_)) | None => {
                    connection.retire(conn);
                    AckResult::Nothing
                }
            };
            (reply, AckSource::Known(acknowledged))
        }
        AckRoute::Queue => queue(connection, asking, job, demand, background).await?,
    };
    Ok((reply, PendingAck { demand, source }))
}

async fn queue(
    connection: &Connection,
    asking: bool,
    job: &ScriptJob<'_>,
    demand: AckDemand,
    background: &Background,
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
    wait_connections
        .of(&demand)
        .send(connection, background, order);
    match connection.timers().until(job.deadline, answered).await {
        Some(Ok(reply)) => {
            let now = connection.timers().now();
            let until = demand.patience(now, job.deadline, connection.limit());
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

/// Until then a report about the replicas may come. A quarter of the limit is left for releasing the lock.
fn release_starts(now: BootInstant, deadline: BootInstant, limit: Duration) -> BootInstant {
    now + deadline.since(now).saturating_sub(limit / 4)
}

impl AckDemand {
    /// Chooses the path of a script by the last known replication status.
    fn route(&self, replication: &ReplicationStatus, now: BootInstant) -> Result<AckRoute> {
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
    /// and the server checks its timeouts only ten times a second.
    fn patience(&self, now: BootInstant, deadline: BootInstant, limit: Duration) -> BootInstant {
        let comes = self.limit() + self.limit() / 4 + Duration::from_millis(150);
        (now + comes).min(release_starts(now, deadline, limit))
    }
}

#[cfg(test)]
mod tests;
