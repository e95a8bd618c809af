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

mod collector;
mod company;
mod line;
mod standing;
mod undoing;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::oneshot;

pub(super) use self::company::Company;
#[cfg(feature = "fuzzing")]
pub(super) use self::standing::has_replicas;
pub(super) use self::standing::{Standing, look};
pub(super) use self::undoing::Undoing;

use self::collector::{Collector, Order};
use self::standing::{Replicas, View};
use super::conn::Conn;
use super::errors::unanswered;
use super::link::Link;
use super::reply::Reply;
use super::scripts::Script;
use crate::backend::{Acknowledge, Moment};
use crate::error::{Error, Result};

/// How long we trust that a server has no replicas. After this time we check again, because one may have connected.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The `WAIT` connections that belong to one reconnecting connection. Each opens when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// One batcher per policy. Otherwise a slow replica that only `All` waits for would delay the other policies.
    acquires: [Collector; 3],
    renewals: Collector,
}

impl Lines {
    fn of(&self, demand: &Demand) -> &Collector {
        match (demand.purpose, demand.policy) {
            (Purpose::Renew, _) => &self.renewals,
            (Purpose::Acquire, Acknowledge::All) => &self.acquires[2],
            (Purpose::Acquire, Acknowledge::Majority) => &self.acquires[1],
            (Purpose::Acquire, _) => &self.acquires[0],
        }
    }

    pub(super) fn close(&self) {
        self.renewals.close();
        for collector in &self.acquires {
            collector.close();
        }
    }
}

/// The purpose of a script. Renewals have a batcher of their own, so a renewal never waits behind an acquire request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Acquire,
    Renew,
}

/// The acknowledgement that one script needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) purpose: Purpose,
    pub(super) policy: Acknowledge,
    /// How many replicas have disconnected or fallen out of sync recently, at the server that misses most.
    missed: u32,
    within: Duration,
    lease: Duration,
}

/// Yields the replica count of a script that has its reply.
pub(super) struct Receipt(Source);

enum Source {
    Known(Heard),
    /// We hold the connection, because its last user stops the ack batcher. A node that serves a single `ASK` redirect
    /// has no other user: without this one the batcher would stop before it reports the count.
    Line(oneshot::Receiver<Heard>, Moment, Link),
}

/// The report about the replicas.
#[derive(Debug, Clone)]
pub(super) enum Heard {
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
enum Way {
    /// On the shared connection, without `WAIT`. Carries the report.
    Alone(Heard),
    /// On the shared connection, with a concurrent check whether the server has replicas by now.
    Look(Heard),
    /// In the ack batcher, with a `WAIT`.
    Queue,
}

impl Receipt {
    /// The receipt of a request that asks no replica.
    pub(super) fn of_nobody() -> Self {
        Self(Source::Known(Heard::Unasked))
    }

    pub(super) async fn heard(self) -> Heard {
        match self.0 {
            Source::Known(heard) => heard,
            Source::Line(tally, until, link) => match link.timers().until(until, tally).await {
                Some(Ok(heard)) => heard,
                Some(Err(_)) | None => Heard::Nothing,
            },
        }
    }
}

impl Link {
    /// Runs a script as [`eval_as`](Self::eval_as) does, and asks the replicas, if there are any, to acknowledge it.
    pub(super) async fn eval_acknowledged(
        &self,
        asking: bool,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: Demand,
        deadline: Moment,
    ) -> Result<(Reply, Receipt)> {
        let conn = self.get(deadline).await?;
        let heard = match self.way(&conn, demand, deadline)? {
            Way::Alone(heard) => heard,
            // We box the rare paths. Otherwise the future of every request would carry their state.
            Way::Look(heard) => {
                let reply = self.eval_on(&conn, asking, script, keys, args, deadline);
                let looks = look(&conn, self.timers());
                let looks = self.timers().until(deadline, looks);
                let (reply, _) = Box::pin(join(reply, looks)).await;
                let heard = match (demand.policy, conn.standing.view()) {
                    // A replica has connected since the last check, and it has acknowledged nothing. We report zero, so
                    // that the grant is released and requested again.
                    (
                        Acknowledge::Majority | Acknowledge::All,
                        Some((View::Replicas(replicas), _)),
                    ) => Heard::Count {
                        replicas,
                        reached: 0,
                    },
                    _ => heard,
                };
                return Ok((reply?, Receipt(Source::Known(heard))));
            }
            Way::Queue => {
                return Box::pin(self.queue(asking, script, keys, args, demand, deadline)).await;
            }
        };
        let reply = self.eval_on(&conn, asking, script, keys, args, deadline);
        Ok((reply.await?, Receipt(Source::Known(heard))))
    }

    /// Chooses the path of a script by the last known replication status.
    fn way(&self, conn: &Conn, demand: Demand, deadline: Moment) -> Result<Way> {
        if demand.policy == Acknowledge::Off {
            return Ok(Way::Alone(Heard::Unasked));
        }
        // The common case, a server without replicas: one atomic load, no lock and no clock read.
        let acquires = matches!(demand.purpose, Purpose::Acquire);
        if acquires
            && demand.policy <= Acknowledge::Any
            && conn.standing.is_alone(deadline, self.limit())
        {
            return Ok(Way::Alone(Heard::Unasked));
        }
        let now = self.timers().now();
        Ok(match conn.standing.view() {
            Some((View::Replicas(replicas), at)) if replicas.count == 0 => {
                let nobody = Heard::Count {
                    replicas: replicas.clone(),
                    reached: 0,
                };
                // `Majority` and `All` check on each request. A server that was just promoted has no replicas for a
                // moment, and the next failover forgets the grants of that moment.
                if now.since(at) < LOOK_AGAIN && demand.policy <= Acknowledge::Any {
                    return Ok(Way::Alone(nobody));
                }
                conn.standing.set(View::Replicas(replicas), now); // so that one request checks, not all
                Way::Look(nobody)
            }
            Some((View::Forbidden(why), _)) => {
                demand.give_up_if_strict(&why)?;
                Way::Alone(Heard::Forbidden(why))
            }
            Some((View::Replicas(_), _)) | None => Way::Queue,
        })
    }

    async fn queue(
        &self,
        asking: bool,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: Demand,
        deadline: Moment,
    ) -> Result<(Reply, Receipt)> {
        let (answer, answered) = oneshot::channel();
        let (tally, tallied) = oneshot::channel();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let order = Order {
            asking,
            script,
            keys: owned(keys),
            args: owned(args),
            demand,
            deadline,
            answer,
            tally,
        };
        self.lines().of(&demand).send(self, order)?;
        match self.timers().until(deadline, answered).await {
            Some(Ok(reply)) => {
                let until = self.patience(&demand, deadline);
                Ok((reply?, Receipt(Source::Line(tallied, until, self.clone()))))
            }
            Some(Err(_)) => Err(unanswered("the connection was given up")),
            None => Err(unanswered(format_args!(
                "no answer within {:?}",
                self.limit()
            ))),
        }
    }
}

impl Link {
    /// The deadline for the count. It is later than the timeout of `WAIT` itself: the server's reply carries the count,
    /// and the server checks its timeouts only ten times a second. It leaves a quarter of the limit for releasing the
    /// lock.
    fn patience(&self, demand: &Demand, deadline: Moment) -> Moment {
        let now = self.timers().now();
        let left = deadline.since(now).saturating_sub(self.limit() / 4);
        now + left.min(demand.limit() + demand.limit() / 4 + Duration::from_millis(150))
    }
}

impl Demand {
    /// The timeout of `WAIT`. It is at most a sixth of the lease, so that time remains for the steps after it.
    pub(super) fn limit(&self) -> Duration {
        let limit = self.within.min(self.lease / 6);
        limit.max(Duration::from_millis(1))
    }

    /// Fails for `Majority` and `All`: the caller chose them explicitly, so we grant nothing if we may not ask the
    /// replicas.
    pub(super) fn give_up_if_strict(&self, why: &Error) -> Result<()> {
        if self.policy <= Acknowledge::Any {
            return Ok(());
        }
        Err(Error::new(why.kind()).because(format!(
            "whether replicas have a lock cannot be known here; acknowledge `any` or `off` works without: {}",
            why.detail().unwrap_or_default()
        )))
    }
}
