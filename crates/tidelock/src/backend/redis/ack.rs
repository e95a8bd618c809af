//! Acknowledgement by replicas.
//!
//! `WAIT` says how many replicas have what *its own connection* has written, and it holds up everything behind it. So a
//! script that is to be acknowledged goes with its `WAIT` on a connection kept for that, and not on the one that all
//! requests share; and all scripts that come while a `WAIT` is under way share the next one.

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

/// A server that had no replicas is looked at again after this time: one may have been attached.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The connections kept for `WAIT` beside one link. None stands before it is needed.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Each policy by itself: what only `All` waits for holds up nobody else.
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

/// What a script is for. A renewal never waits behind an acquisition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Acquire,
    Renew,
}

/// What is demanded for a script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) purpose: Purpose,
    pub(super) policy: Acknowledge,
    /// Replicas that were in sync not long ago and are not now, at the server that misses most.
    missed: u32,
    within: Duration,
    lease: Duration,
}

/// Where the number of replicas that have it will be said, once the script has been answered.
pub(super) struct Receipt(Source);

enum Source {
    Known(Heard),
    /// With the link: a node that is asked once, for a slot on its way to it, goes with its last link, and the task that
    /// would tell the number with it.
    Line(oneshot::Receiver<Heard>, Moment, Link),
}

/// What was heard about the replicas.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    /// None is wished.
    Unasked,
    /// The server does not let us ask.
    Forbidden(Arc<Error>),
    Count {
        replicas: Replicas,
        reached: u32,
    },
    /// It did not say in time.
    Nothing,
}

/// How a script that is to be acknowledged goes.
enum Way {
    /// As any other: nobody is asked, and that is what was heard.
    Alone(Heard),
    /// As any other, and beside it the server is asked anew whether it has replicas.
    Look(Heard),
    /// With others, on a connection for that.
    Queue,
}

impl Receipt {
    /// Nobody is asked.
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
    /// Runs a script as [`eval_as`](Self::eval_as) does, and has the replicas asked for it where there are any.
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
            // Behind pointers: a request on a server without replicas need not carry what these need.
            Way::Look(heard) => {
                let reply = self.eval_on(&conn, asking, script, keys, args, deadline);
                let looks = look(&conn, self.timers());
                let looks = self.timers().until(deadline, looks);
                let (reply, _) = Box::pin(join(reply, looks)).await;
                let heard = match (demand.policy, conn.standing.view()) {
                    // One has come. It has not been asked: this grant is given back, and asked for again.
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

    /// How a script goes, by what is known of the server.
    fn way(&self, conn: &Conn, demand: Demand, deadline: Moment) -> Result<Way> {
        if demand.policy == Acknowledge::Off {
            return Ok(Way::Alone(Heard::Unasked));
        }
        // Most servers are alone, and most requests are these: they touch nothing that others write to, nor the clock.
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
                // Who wants more than one asks each time: a server that has just been promoted has none for a moment, and
                // what it grants without them the next failover forgets.
                if now.since(at) < LOOK_AGAIN && demand.policy <= Acknowledge::Any {
                    return Ok(Way::Alone(nobody));
                }
                conn.standing.set(View::Replicas(replicas), now); // one looks, not all at once
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
    /// Until when a tally is waited for: longer than the server waits, because its answer says how many it was, and it
    /// looks at its clock ten times a second only; but not so long that no time is left for giving the lock back.
    fn patience(&self, demand: &Demand, deadline: Moment) -> Moment {
        let now = self.timers().now();
        let left = deadline.since(now).saturating_sub(self.limit() / 4);
        now + left.min(demand.limit() + demand.limit() / 4 + Duration::from_millis(150))
    }
}

impl Demand {
    /// How long the replicas are waited for: it must leave time for what comes after within the lease.
    pub(super) fn limit(&self) -> Duration {
        let limit = self.within.min(self.lease / 6);
        limit.max(Duration::from_millis(1))
    }

    /// `Majority` and `All` were asked for by name: without the right to ask nothing is given.
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
