//! Acknowledgement by replicas.
//!
//! `WAIT` reports how many replicas have received the writes of *its own connection*, and it blocks every command
//! behind it. So a script that needs an acknowledgement does not use the connection that all requests share: it goes on
//! a separate connection, with a `WAIT` behind it. Scripts that arrive while a `WAIT` is in flight form the next batch
//! and share one `WAIT`.
//!
//! The steps for one script:
//!
//! 1. Choose the path by the policy and by the last known replication status: the shared connection, the shared
//!    connection plus a status check, or the ack batcher.
//! 2. The ack batcher runs the script and its `WAIT`. The script's reply comes first, the replica count later.
//! 3. The ack policy compares the count with the number it needs. A grant that falls short is released.

mod batcher;
mod history;
mod poisoned_tickets;
mod policy;
mod status;
mod wait_connection;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::oneshot;

pub(crate) use crate::store::redis::replicas::history::ReplicaHistory;
pub(crate) use crate::store::redis::replicas::poisoned_tickets::PoisonedTickets;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::store::redis::replicas::status::has_replicas;
pub(crate) use crate::store::redis::replicas::status::{ReplicationStatus, look};

use crate::error::{Error, Result};
use crate::store::redis::replicas::batcher::{AckBatcher, AckRequest};
use crate::store::redis::replicas::status::{ReplicaView, Replicas};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::wire::errors::unanswered;
use crate::store::redis::wire::live_connection::LiveConnection;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::script::Script;
use crate::store::{BootInstant, ReplicaAck};

/// How long we trust that a server has no replicas. After this time we check again, because one may have connected.
const NO_REPLICAS_TTL: Duration = Duration::from_secs(5);

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

    pub(crate) fn close(&self) {
        self.renewals.close();
        for collector in &self.acquires {
            collector.close();
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
pub(crate) struct PendingAck(AckSource);

enum AckSource {
    Known(AckResult),
    /// We hold the connection, because its last user stops the ack batcher. A node that serves a single `ASK` redirect
    /// has no other user: without this one the batcher would stop before it reports the count.
    Wait(oneshot::Receiver<AckResult>, BootInstant, Connection),
}

/// The report about the replicas.
#[derive(Debug, Clone)]
pub(crate) enum AckResult {
    /// The policy needs no replica, or the server is known to have none.
    Unasked,
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

impl PendingAck {
    /// The receipt of a request that asks no replica.
    pub(crate) fn of_nobody() -> Self {
        Self(AckSource::Known(AckResult::Unasked))
    }

    pub(crate) async fn acknowledged(self) -> AckResult {
        match self.0 {
            AckSource::Known(acknowledged) => acknowledged,
            AckSource::Wait(tally, until, connection) => {
                match connection.timers().until(until, tally).await {
                    Some(Ok(acknowledged)) => acknowledged,
                    Some(Err(_)) | None => AckResult::Nothing,
                }
            }
        }
    }
}

impl Connection {
    /// Runs a script as [`eval_as`](Self::eval_as) does, and asks the replicas, if there are any, to acknowledge it.
    pub(crate) async fn eval_acknowledged(
        &self,
        asking: bool,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: AckDemand,
        deadline: BootInstant,
    ) -> Result<(Reply, PendingAck)> {
        let conn = self.get(deadline).await?;
        let acknowledged = match self.way(&conn, demand, deadline)? {
            AckRoute::Alone(acknowledged) => acknowledged,
            // We box the rare paths. Otherwise the future of every request would carry their state.
            AckRoute::CheckReplicas(acknowledged) => {
                let reply = self.eval_on(&conn, asking, script, keys, args, deadline);
                let looks = look(&conn, self.timers());
                let looks = self.timers().until(deadline, looks);
                let (reply, _) = Box::pin(join(reply, looks)).await;
                let acknowledged = match (demand.policy, conn.replication.view()) {
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
                return Ok((reply?, PendingAck(AckSource::Known(acknowledged))));
            }
            AckRoute::Queue => {
                return Box::pin(self.queue(asking, script, keys, args, demand, deadline)).await;
            }
        };
        let reply = self.eval_on(&conn, asking, script, keys, args, deadline);
        Ok((reply.await?, PendingAck(AckSource::Known(acknowledged))))
    }

    /// Chooses the path of a script by the last known replication status.
    fn way(
        &self,
        conn: &LiveConnection,
        demand: AckDemand,
        deadline: BootInstant,
    ) -> Result<AckRoute> {
        if demand.policy == ReplicaAck::Off {
            return Ok(AckRoute::Alone(AckResult::Unasked));
        }
        // The common case, a server without replicas: one atomic load, no lock and no clock read.
        let acquires = matches!(demand.purpose, Purpose::Acquire);
        if acquires
            && demand.policy <= ReplicaAck::Any
            && conn.replication.is_alone(deadline, self.limit())
        {
            return Ok(AckRoute::Alone(AckResult::Unasked));
        }
        let now = self.timers().now();
        Ok(match conn.replication.view() {
            Some((ReplicaView::Replicas(replicas), at)) if replicas.count == 0 => {
                let nobody = AckResult::Count {
                    replicas: replicas.clone(),
                    reached: 0,
                };
                // `Majority` and `All` check on each request. A server that was just promoted has no replicas for a
                // moment, and the next failover forgets the grants of that moment.
                if now.since(at) < NO_REPLICAS_TTL && demand.policy <= ReplicaAck::Any {
                    return Ok(AckRoute::Alone(nobody));
                }
                conn.replication.set(ReplicaView::Replicas(replicas), now); // so that one request checks, not all
                AckRoute::CheckReplicas(nobody)
            }
            Some((ReplicaView::Forbidden(why), _)) => {
                demand.give_up_if_strict(&why)?;
                AckRoute::Alone(AckResult::Forbidden(why))
            }
            Some((ReplicaView::Replicas(_), _)) | None => AckRoute::Queue,
        })
    }

    async fn queue(
        &self,
        asking: bool,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: AckDemand,
        deadline: BootInstant,
    ) -> Result<(Reply, PendingAck)> {
        let (answer, answered) = oneshot::channel();
        let (tally, tallied) = oneshot::channel();
        let owned = |args: &[&str]| args.iter().map(|word| (*word).to_owned()).collect();
        let order = AckRequest {
            asking,
            script,
            keys: owned(keys),
            args: owned(args),
            demand,
            deadline,
            answer,
            tally,
        };
        self.wait_connections().of(&demand).send(self, order)?;
        match self.timers().until(deadline, answered).await {
            Some(Ok(reply)) => {
                let until = self.patience(&demand, deadline);
                Ok((
                    reply?,
                    PendingAck(AckSource::Wait(tallied, until, self.clone())),
                ))
            }
            Some(Err(_)) => Err(unanswered("the connection was given up")),
            None => Err(unanswered(format_args!(
                "no answer within {:?}",
                self.limit()
            ))),
        }
    }
}

impl Connection {
    /// The deadline for the count. It is later than the timeout of `WAIT` itself: the server's reply carries the count,
    /// and the server checks its timeouts only ten times a second. It leaves a quarter of the limit for releasing the
    /// lock.
    fn patience(&self, demand: &AckDemand, deadline: BootInstant) -> BootInstant {
        let now = self.timers().now();
        let left = deadline.since(now).saturating_sub(self.limit() / 4);
        now + left.min(demand.limit() + demand.limit() / 4 + Duration::from_millis(150))
    }
}

impl AckDemand {
    /// The timeout of `WAIT`. It is at most a sixth of the lease, so that time remains for the steps after it.
    pub(crate) fn limit(&self) -> Duration {
        let limit = self.within.min(self.lease / 6);
        limit.max(Duration::from_millis(1))
    }

    /// Fails for `Majority` and `All`: the caller chose them explicitly, so we grant nothing if we may not ask the
    /// replicas.
    pub(crate) fn give_up_if_strict(&self, why: &Error) -> Result<()> {
        if self.policy <= ReplicaAck::Any {
            return Ok(());
        }
        Err(Error::new(why.kind()).because(format!(
            "this server cannot tell which replicas have a lock; use the policy `any` or `off`: {}",
            why.detail().unwrap_or_default()
        )))
    }
}
