//! Acknowledgement by replicas.
//!
//! `WAIT` says how many replicas have what *its own connection* has written, and it holds up everything behind it. So a
//! script that is to be acknowledged goes with its `WAIT` on a connection kept for that, and not on the one that all
//! requests share; and all scripts that come while a `WAIT` is under way share the next one.

mod collector;
mod company;
mod line;
mod standing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::oneshot;

pub(super) use self::company::Company;
pub(super) use self::standing::{Standing, look};

use self::collector::{Collector, Order};
use self::standing::{Replicas, View};
use super::Redis;
use super::errors::{unanswered, unsent};
use super::link::Link;
use super::reply::Reply;
use super::scripts::Script;
use crate::backend::{Acknowledge, Acknowledged, Ask, Moment, Released, Renewal, Timers};
use crate::error::{Error, ErrorKind, Result};

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
    /// How long the replicas are waited for.
    pub(super) limit: Duration,
}

/// Where the number of replicas that have it will be said, once the script has been answered.
pub(super) struct Receipt(Source);

enum Source {
    Known(Heard),
    Line(oneshot::Receiver<Heard>, Moment, Timers),
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

impl Receipt {
    pub(super) async fn heard(self) -> Heard {
        match self.0 {
            Source::Known(heard) => heard,
            Source::Line(line, until, timers) => match timers.until(until, line).await {
                Some(Ok(heard)) => heard,
                Some(Err(_)) | None => Heard::Nothing,
            },
        }
    }
}

impl Heard {
    /// Whether that is enough.
    pub(super) fn judge(
        &self,
        policy: Acknowledge,
        limit: Duration,
    ) -> Result<Option<Acknowledged>> {
        let short = |what: String| Err(unsent(format_args!("{what} within {limit:?}")));
        match self {
            _ if policy == Acknowledge::Off => Ok(None),
            Self::Unasked | Self::Forbidden(_) => Ok(None),
            Self::Count { replicas, reached } => match (replicas.needed(policy), *reached) {
                (0, _) => Ok(None),
                (needed, reached) if reached < needed => short(format!(
                    "{reached} of {} replicas acknowledged, {needed} must,",
                    replicas.count
                )),
                (needed, reached) => Ok(Some(Acknowledged { needed, reached })),
            },
            Self::Nothing => short("the replicas did not acknowledge".to_owned()),
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
        let alone = |heard| async move {
            let reply = self.eval_as(asking, script, keys, args, deadline).await?;
            Ok((reply, Receipt(Source::Known(heard))))
        };
        if demand.policy == Acknowledge::Off {
            return alone(Heard::Unasked).await;
        }
        let conn = self.get(deadline).await?;
        let now = self.timers().now();
        match conn.standing.view() {
            Some((View::Replicas(replicas), at)) if replicas.count == 0 => {
                let nobody = alone(Heard::Count {
                    replicas: replicas.clone(),
                    reached: 0,
                });
                if now.since(at) < LOOK_AGAIN {
                    return nobody.await;
                }
                conn.standing.set(View::Replicas(replicas), now); // one looks, not all at once
                let looks = look(&conn, self.timers());
                join(nobody, self.timers().until(deadline, looks)).await.0
            }
            Some((View::Forbidden(why), _)) => {
                demand.give_up_if_strict(&why)?;
                alone(Heard::Forbidden(why)).await
            }
            Some((View::Replicas(_), _)) | None => {
                self.queue(asking, script, keys, args, demand, deadline)
                    .await
            }
        }
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
        let timers = self.timers().clone();
        match timers.until(deadline, answered).await {
            Some(Ok(reply)) => {
                let until = self.patience(&demand, deadline);
                Ok((reply?, Receipt(Source::Line(tallied, until, timers))))
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
        now + left.min(demand.limit + demand.limit / 4 + Duration::from_millis(150))
    }
}

impl Demand {
    /// `Majority` and `All` were asked for by name: without the right to ask nothing is given.
    fn give_up_if_strict(&self, why: &Error) -> Result<()> {
        if self.policy <= Acknowledge::Any {
            return Ok(());
        }
        Err(Error::new(why.kind()).because(format!(
            "whether replicas have a lock cannot be known here; acknowledge `any` or `off` works without: {}",
            why.detail().unwrap_or_default()
        )))
    }
}

impl Redis {
    /// How long replicas are waited for: it must leave time for what comes after, within the response and the lease.
    pub(super) fn demand(&self, purpose: Purpose, policy: Acknowledge, lease: Duration) -> Demand {
        let limit = self
            .shared
            .acknowledge_within
            .min(self.routes.limit() / 3)
            .min(lease / 6)
            .max(Duration::from_millis(1));
        Demand {
            purpose,
            policy,
            limit,
        }
    }

    /// What was heard. What cannot be is said in the log, once.
    pub(super) async fn heard(&self, receipt: Receipt) -> Heard {
        let heard = receipt.heard().await;
        match &heard {
            Heard::Forbidden(why) if !self.shared.unasked.swap(true, Ordering::SeqCst) => {
                tracing::warn!(%why, "replicas are not asked whether they have a lock: a failover may forget what was granted just before it");
            }
            Heard::Count {
                replicas:
                    Replicas {
                        count,
                        server: Some(server),
                        ..
                    },
                reached,
            } => {
                let now = self.shared.timers.now();
                self.shared.company.note(server, *count, *reached, now);
            }
            _ => {}
        }
        heard
    }

    /// Who wants all replicas wants those too that have only just gone: one of them may be the next primary.
    fn with_those_that_left(&self, heard: &Heard, wish: Acknowledge) -> Result<()> {
        let Heard::Count {
            replicas:
                Replicas {
                    server: Some(server),
                    ..
                },
            reached,
        } = heard
        else {
            return Ok(());
        };
        let all = self.shared.company.all_of(server);
        if wish == Acknowledge::All && *reached < all {
            return Err(unsent(format_args!(
                "{reached} of {all} replicas acknowledged: the server has lost sight of one, which may be about to replace it"
            )));
        }
        Ok(())
    }

    /// Whether a renewal is believed. A primary that is cut off goes on saying yes.
    pub(super) fn believed(&self, heard: &Heard, renewal: &Renewal, limit: Duration) -> Result<()> {
        heard.judge(renewal.wish, limit)?;
        self.with_those_that_left(heard, renewal.wish)?;
        let (now, lease) = (self.shared.timers.now(), renewal.lease);
        match heard {
            Heard::Count {
                replicas:
                    Replicas {
                        online: 0,
                        server: Some(server),
                        ..
                    },
                ..
            } if renewal.wish > Acknowledge::Off
                && self.shared.company.had_any(server, now, lease) =>
            {
                Err(unsent(
                    "the server has lost its last replica: its word alone is not enough for a lease that another may have heard of",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Waits for the replicas after a grant. One that is not acknowledged is given back: no promise is built on it.
    pub(super) async fn acknowledged(
        &self,
        ask: &Ask,
        receipt: Receipt,
        deadline: Moment,
    ) -> Result<Option<Acknowledged>> {
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        let heard = self.heard(receipt).await;
        let judged = heard.judge(ask.wish, demand.limit);
        let short = match judged.and_then(|reached| {
            self.with_those_that_left(&heard, ask.wish)
                .map(|()| reached)
        }) {
            Err(short) => short,
            enough => return enough,
        };
        // No tombstone: the same ticket is asked again.
        let undo = self.end(&ask.ticket, false);
        match self.shared.timers.until(deadline, undo).await {
            Some(Ok(Released::Freed | Released::NotHeld)) => Err(short),
            undone => {
                let why = match undone {
                    Some(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                Err(Error::new(ErrorKind::OutcomeUnknown).because(format!(
                    "{}; and it could not be given back: {why}",
                    short.detail().unwrap_or_default()
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_heard_counts() {
        let limit = Duration::from_secs(1);
        let replicas = |count| Replicas {
            count,
            online: count,
            server: None,
        };
        let two = Heard::Count {
            replicas: replicas(3),
            reached: 2,
        };
        let nobody = Heard::Count {
            replicas: replicas(0),
            reached: 0,
        };
        for (heard, policy, enough) in [
            (&two, Acknowledge::Any, true),
            (&two, Acknowledge::Majority, true),
            (&two, Acknowledge::All, false),
            (&Heard::Nothing, Acknowledge::Any, false),
            (&Heard::Nothing, Acknowledge::Off, true),
            (&nobody, Acknowledge::All, true),
        ] {
            let judged = heard.judge(policy, limit);
            assert_eq!(judged.is_ok(), enough, "{heard:?} {policy}");
            if let Err(error) = judged {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        }
        let reached = two.judge(Acknowledge::Any, limit).unwrap().unwrap();
        assert_eq!((reached.needed, reached.reached), (1, 2));
        let error = two.judge(Acknowledge::All, limit).unwrap_err().to_string();
        assert!(error.contains("2 of 3 replicas"), "{error}");
    }
}
