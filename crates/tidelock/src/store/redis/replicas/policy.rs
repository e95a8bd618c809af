//! The ack policy: decides whether enough replicas have acknowledged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::store::redis::replicas::status::Replicas;
use crate::store::redis::replicas::{AckDemand, AckResult, PendingAck, Purpose};

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::Redis;
use crate::store::redis::wire::errors::unsent;
use crate::store::{Acknowledged, AttemptRequest, BootInstant, Released, Renewal, ReplicaAck};

impl AckResult {
    /// Checks the report against the policy. `None`: no replica had to acknowledge, or we may not ask them.
    pub(crate) fn judge(
        &self,
        policy: ReplicaAck,
        demand: &AckDemand,
    ) -> Result<Option<Acknowledged>> {
        let short = |what: String| Err(unsent(format_args!("{what} within {:?}", demand.limit())));
        match self {
            _ if policy == ReplicaAck::Off => Ok(None),
            Self::Unasked | Self::Forbidden(_) => Ok(None),
            Self::Count { replicas, reached } => {
                match (replicas.needed(policy, demand.purpose), *reached) {
                    (0, _) => Ok(None),
                    (needed, reached) if reached < needed => short(format!(
                        "{reached} of {} replicas acknowledged, but {needed} must,",
                        replicas.count
                    )),
                    (needed, reached) => Ok(Some(Acknowledged { needed, reached })),
                }
            }
            Self::Nothing => short("the replicas did not acknowledge".to_owned()),
        }
    }
}

impl Redis {
    /// The acknowledgement that a request with this lease needs.
    pub(crate) fn demand(
        &self,
        purpose: Purpose,
        policy: ReplicaAck,
        lease: Duration,
    ) -> AckDemand {
        AckDemand {
            purpose,
            policy,
            missed: self
                .shared
                .replica_history
                .most_missed(purpose, || self.shared.timers.now()),
            within: self.shared.acknowledge_within,
            lease,
        }
    }

    /// Waits for the report and adds it to the replica history. Logs once per client if the server forbids the
    /// question.
    pub(crate) async fn await_ack(&self, receipt: PendingAck) -> AckResult {
        let acknowledged = receipt.acknowledged().await;
        match &acknowledged {
            AckResult::Forbidden(why) if !self.shared.unasked.swap(true, Ordering::SeqCst) => {
                tracing::warn!(%why, "cannot ask the replicas for acknowledgements; a failover may lose a lock that was granted just before it");
            }
            AckResult::Count { replicas, reached } => {
                if let Some(server) = &replicas.server {
                    let now = self.shared.timers.now();
                    self.shared
                        .replica_history
                        .note(server, replicas, *reached, now);
                }
            }
            _ => {}
        }
        acknowledged
    }

    /// `Majority` and `All` also count the replicas that left recently, because one of these may be the next primary.
    /// Otherwise a primary that is partitioned together with one replica would reach a majority in the end.
    fn with_those_that_left(
        &self,
        acknowledged: &AckResult,
        wish: ReplicaAck,
        purpose: Purpose,
    ) -> Result<()> {
        let AckResult::Count { replicas, reached } = acknowledged else {
            return Ok(());
        };
        let Some(server) = &replicas.server else {
            return Ok(());
        };
        let (replica_history, now) = (&self.shared.replica_history, self.shared.timers.now());
        let missed = replica_history.missed(server, purpose, now);
        let all = missed
            + match purpose {
                Purpose::Renew => replicas.in_sync(),
                Purpose::Acquire => replicas.count,
            };
        if wish > ReplicaAck::Any && *reached < wish.needed(all) {
            let left = replica_history.who_left(server, purpose, now);
            return Err(unsent(format_args!(
                "{reached} of {all} replicas acknowledged: {missed} have left the server ({left}), and one of them may become the primary"
            )));
        }
        Ok(())
    }

    /// Decides whether a renewal counts. A partitioned primary accepts renewals although another server may be the
    /// primary.
    pub(crate) fn believed(
        &self,
        acknowledged: &AckResult,
        renewal: &Renewal,
        demand: &AckDemand,
    ) -> Result<()> {
        acknowledged.judge(renewal.wish, demand)?;
        self.with_those_that_left(acknowledged, renewal.wish, Purpose::Renew)?;
        let (now, lease) = (self.shared.timers.now(), renewal.lease);
        match acknowledged {
            AckResult::Count {
                replicas:
                    Replicas {
                        online,
                        server: Some(server),
                        ..
                    },
                ..
            } if renewal.wish > ReplicaAck::Off
                && online.is_empty()
                && self.shared.replica_history.had_any(server, now, lease) =>
            {
                Err(unsent(
                    "the server has lost its last replica, which may be the primary now; the renewal does not count",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Waits for the replicas after a grant. If too few acknowledge, releases the grant and returns an error:
    /// [`ErrorKind::Unavailable`] if the release succeeded, otherwise [`ErrorKind::OutcomeUnknown`].
    pub(crate) async fn acknowledged(
        &self,
        ask: &AttemptRequest,
        receipt: PendingAck,
        deadline: BootInstant,
    ) -> Result<Option<Acknowledged>> {
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        let acknowledged = self.await_ack(receipt).await;
        let judged = acknowledged.judge(ask.wish, &demand);
        let short = match judged.and_then(|reached| {
            self.with_those_that_left(&acknowledged, ask.wish, Purpose::Acquire)
                .map(|()| reached)
        }) {
            Err(short) => short,
            enough => return enough,
        };
        // Without a tombstone, because the same ticket may try again. Boxed, because this path is rare.
        let undo = Box::pin(self.end(&ask.ticket, false));
        match self.shared.timers.until(deadline, undo).await {
            Some(Ok(Released::Freed | Released::NotHeld)) => Err(short),
            undone => {
                let why = match undone {
                    Some(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                // The release may still arrive and would end a later grant of this ticket. So we poison the ticket.
                self.shared.poisoned_tickets.note(&ask.ticket.owner);
                Err(Error::new(ErrorKind::OutcomeUnknown).because(format!(
                    "{}; and the grant could not be released: {why}",
                    short.detail().unwrap_or_default()
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn replicas(count: u32) -> Replicas {
        Replicas {
            count,
            online: (0..count).map(|n| n.to_string().into()).collect(),
            copying: Arc::default(),
            server: None,
        }
    }

    #[test]
    fn a_majority_of_those_that_were_there_is_waited_for() {
        let awaited = |policy, missed| {
            replicas(2).awaited(&AckDemand {
                purpose: Purpose::Renew,
                policy,
                missed,
                within: Duration::from_secs(1),
                lease: Duration::from_secs(30),
            })
        };
        assert_eq!(awaited(ReplicaAck::Majority, 0), 1);
        assert_eq!(awaited(ReplicaAck::Majority, 2), 2, "2 of 4");
        assert_eq!(
            awaited(ReplicaAck::Majority, 9),
            2,
            "no more than there are"
        );
        assert_eq!(awaited(ReplicaAck::Any, 2), 1);
        assert_eq!(awaited(ReplicaAck::All, 2), 2);
    }

    #[test]
    fn only_what_was_heard_counts() {
        let demand = AckDemand {
            purpose: Purpose::Acquire,
            policy: ReplicaAck::Any,
            missed: 0,
            within: Duration::from_secs(1),
            lease: Duration::from_secs(30),
        };
        let two = AckResult::Count {
            replicas: replicas(3),
            reached: 2,
        };
        let nobody = AckResult::Count {
            replicas: replicas(0),
            reached: 0,
        };
        for (acknowledged, policy, enough) in [
            (&two, ReplicaAck::Any, true),
            (&two, ReplicaAck::Majority, true),
            (&two, ReplicaAck::All, false),
            (&AckResult::Nothing, ReplicaAck::Any, false),
            (&AckResult::Nothing, ReplicaAck::Off, true),
            (&nobody, ReplicaAck::All, true),
        ] {
            let judged = acknowledged.judge(policy, &demand);
            assert_eq!(judged.is_ok(), enough, "{acknowledged:?} {policy}");
            if let Err(error) = judged {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        }
        let reached = two.judge(ReplicaAck::Any, &demand).unwrap().unwrap();
        assert_eq!((reached.needed, reached.reached), (1, 2));
        let error = two.judge(ReplicaAck::All, &demand).unwrap_err().to_string();
        assert!(error.contains("2 of 3 replicas"), "{error}");
    }
}
