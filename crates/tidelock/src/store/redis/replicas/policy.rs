//! The ack policy: decides whether enough replicas have acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::store::redis::replicas::demand::{AckDemand, AckResult, Purpose};
use crate::store::redis::replicas::history::ReplicaHistory;
use crate::store::redis::replicas::run::PendingAck;
use crate::store::redis::topology::replication::Replicas;
use crate::store::redis::wire::errors::unsent;
use crate::store::{Acknowledged, Background, Renewal, ReplicaAck, Timers};
use crate::types::Escaped;

impl Replicas {
    /// How many replicas must acknowledge. `Any` and renewals ignore replicas that are not in sync:
    ///
    /// - For `Any`, a replica's first copy of the data, which may take minutes, would otherwise block every acquire.
    /// - If an empty replica is promoted, the lock is lost whatever the renewal reports. A renewal that waits for that
    ///   replica would only lose the lock earlier.
    pub(crate) fn needed(&self, policy: ReplicaAck, purpose: Purpose) -> u32 {
        policy.needed(self.counted(policy, purpose))
    }

    fn counted(&self, policy: ReplicaAck, purpose: Purpose) -> u32 {
        match (policy, purpose) {
            (ReplicaAck::Any, _) | (_, Purpose::Renew) => self.in_sync(),
            (_, Purpose::Acquire) => self.count,
        }
    }

    /// The number of replicas for `WAIT`. Replicas that left recently count towards the majority, so this may exceed a
    /// majority of the rest. We must ask for the full number, because the server stops counting once it is reached.
    pub(crate) fn awaited(&self, demand: &AckDemand) -> u32 {
        let counted = self.counted(demand.policy, demand.purpose);
        match demand.policy {
            ReplicaAck::Off | ReplicaAck::Any => demand.policy.needed(counted),
            policy => policy.needed(counted + demand.missed).min(counted),
        }
    }
}

/// What a client knows of the replicas of its servers, and how long it waits for them.
pub(crate) struct AckPolicy {
    /// The longest timeout of `WAIT`.
    within: Duration,
    timers: Timers,
    /// Where the ack batchers run.
    pub(crate) background: Background,
    history: ReplicaHistory,
    /// We have logged that replicas cannot acknowledge.
    warned: AtomicBool,
}

/// The report about the replicas, and what was asked of them.
pub(crate) struct AckReport {
    demand: AckDemand,
    result: AckResult,
}

impl AckResult {
    /// Checks the report against the policy. `None`: no replica had to acknowledge, or we may not ask them.
    fn judge(&self, policy: ReplicaAck, demand: &AckDemand) -> Result<Option<Acknowledged>> {
        let short = |what: String| Err(unsent(format_args!("{what} within {:?}", demand.limit())));
        match self {
            _ if policy == ReplicaAck::Off => Ok(None),
            Self::Forbidden(_) => Ok(None),
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

impl AckPolicy {
    pub(crate) fn new(within: Duration, timers: Timers, background: Background) -> Self {
        Self {
            within,
            timers,
            background,
            history: ReplicaHistory::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// The acknowledgement that a script with this lease needs.
    pub(crate) fn demand(
        &self,
        purpose: Purpose,
        policy: ReplicaAck,
        lease: Duration,
    ) -> AckDemand {
        AckDemand {
            purpose,
            policy,
            missed: self.history.most_missed(purpose, || self.timers.now()),
            within: self.within,
            lease,
        }
    }

    /// Waits for the report and adds it to the replica history. Logs once per client if the server forbids the
    /// question.
    pub(crate) async fn report(&self, pending: PendingAck) -> AckReport {
        let PendingAck { demand, source } = pending;
        let result = source.result().await;
        match &result {
            AckResult::Forbidden(why) if !self.warned.swap(true, Ordering::SeqCst) => {
                tracing::warn!(why = %Escaped(why), "cannot ask the replicas for acknowledgements; a failover may lose a lock that was granted just before it");
            }
            AckResult::Count { replicas, reached } => {
                if let Some(server) = &replicas.server {
                    self.history
                        .note(server, replicas, *reached, self.timers.now());
                }
            }
            _ => {}
        }
        AckReport { demand, result }
    }

    /// `Majority` and `All` also count the replicas that left recently, because one of these may be the next primary.
    /// Otherwise a primary that is partitioned together with one replica would reach a majority in the end.
    fn with_those_that_left(&self, report: &AckReport, policy: ReplicaAck) -> Result<()> {
        let AckResult::Count { replicas, reached } = &report.result else {
            return Ok(());
        };
        let Some(server) = &replicas.server else {
            return Ok(());
        };
        let (purpose, now) = (report.demand.purpose, self.timers.now());
        let missed = self.history.missed(server, purpose, now);
        let all = missed
            + match purpose {
                Purpose::Renew => replicas.in_sync(),
                Purpose::Acquire => replicas.count,
            };
        if policy > ReplicaAck::Any && *reached < policy.needed(all) {
            let left = self.history.who_left(server, purpose, now);
            return Err(unsent(format_args!(
                "{reached} of {all} replicas acknowledged: {missed} have left the server ({left}), and one of them may become the primary"
            )));
        }
        Ok(())
    }

    /// Decides whether a grant stands.
    pub(crate) fn judge_grant(&self, report: &AckReport) -> Result<Option<Acknowledged>> {
        let policy = report.demand.policy;
        let acknowledged = report.result.judge(policy, &report.demand)?;
        self.with_those_that_left(report, policy)?;
        Ok(acknowledged)
    }

    /// Decides whether a renewal counts. A partitioned primary accepts renewals although another server may be the
    /// primary.
    pub(crate) fn judge_renewal(&self, report: &AckReport, renewal: &Renewal) -> Result<()> {
        report.result.judge(renewal.wish, &report.demand)?;
        self.with_those_that_left(report, renewal.wish)?;
        let (now, lease) = (self.timers.now(), renewal.lease);
        match &report.result {
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
                && self.history.had_any(server, now, lease) =>
            {
                Err(unsent(
                    "the server has lost its last replica, which may be the primary now; the renewal does not count",
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::store::LockKind;
    use crate::store::redis::replicas::run::AckSource;
    use crate::store::redis::tests::ticket;
    use crate::store::redis::wire::tests::simulated;

    const LEASE: Duration = Duration::from_secs(60);

    fn policy() -> AckPolicy {
        let (background, timers) = simulated();
        AckPolicy::new(Duration::from_secs(1), timers, background)
    }

    /// A report of the server `a`, with its replicas in sync and how many of them have acknowledged.
    async fn report(
        policy: &AckPolicy,
        (purpose, wish): (Purpose, ReplicaAck),
        online: &[&str],
        reached: u32,
    ) -> AckReport {
        let replicas = Replicas {
            count: u32::try_from(online.len()).unwrap(),
            online: online.iter().map(|&addr| Arc::from(addr)).collect(),
            copying: Arc::default(),
            server: Some(Arc::from("a")),
        };
        let result = AckResult::Count { replicas, reached };
        let pending = PendingAck {
            demand: policy.demand(purpose, wish, LEASE),
            source: AckSource::Known(result),
        };
        policy.report(pending).await
    }

    /// One of those that have left may be promoted, and it has not acknowledged.
    #[tokio::test(start_paused = true)]
    async fn a_majority_is_that_of_the_replicas_that_were_there_before() {
        let (policy, wish) = (policy(), (Purpose::Acquire, ReplicaAck::Majority));
        let all = report(&policy, wish, &["b", "c", "d", "e"], 2).await;
        let acknowledged = policy.judge_grant(&all).unwrap().unwrap();
        assert_eq!((acknowledged.needed, acknowledged.reached), (2, 2));
        let half = report(&policy, wish, &["b", "c"], 2).await;
        assert!(policy.judge_grant(&half).is_ok());
        let one = report(&policy, wish, &["b"], 1).await;
        let error = policy.judge_grant(&one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let told = "1 of 4 replicas acknowledged: 3 have left the server (c, d, e)";
        assert!(error.detail().unwrap().starts_with(told), "{error}");
        assert_eq!(policy.demand(wish.0, wish.1, LEASE).missed, 3);
        let any = report(&policy, (Purpose::Acquire, ReplicaAck::Any), &["b"], 1).await;
        assert!(policy.judge_grant(&any).is_ok(), "one is enough for it");
        tokio::time::advance(Duration::from_secs(30)).await;
        let later = report(&policy, wish, &["b"], 1).await;
        assert!(policy.judge_grant(&later).is_ok());
    }

    /// `Any` takes those that are there. Otherwise a lock could not be had for a while after the only replica has left.
    #[tokio::test(start_paused = true)]
    async fn a_grant_by_any_stands_without_replicas_also_just_after_the_last_one_has_left() {
        let policy = policy();
        for (wish, stands) in [(ReplicaAck::Any, true), (ReplicaAck::All, false)] {
            let wish = (Purpose::Acquire, wish);
            report(&policy, wish, &["b"], 1).await;
            let alone = report(&policy, wish, &[], 0).await;
            assert_eq!(policy.judge_grant(&alone).is_ok(), stands, "{wish:?}");
        }
    }

    /// The replica may be the primary now, and grant the lock to somebody else.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_by_a_server_that_has_lost_its_last_replica_does_not_count() {
        let policy = policy();
        let ticket = ticket(LockKind::Mutex);
        let judged = |report: &AckReport| {
            let renewal = Renewal {
                ticket: ticket.clone(),
                lease: LEASE,
                wish: report.demand.policy,
            };
            policy.judge_renewal(report, &renewal).is_ok()
        };
        let (any, off) = (
            (Purpose::Renew, ReplicaAck::Any),
            (Purpose::Renew, ReplicaAck::Off),
        );
        assert!(judged(&report(&policy, any, &["b"], 1).await));
        assert!(!judged(&report(&policy, any, &["b"], 0).await));
        assert!(!judged(&report(&policy, any, &[], 0).await));
        assert!(judged(&report(&policy, off, &[], 0).await));
        tokio::time::advance(LEASE).await;
        assert!(
            judged(&report(&policy, any, &[], 0).await),
            "all leases are over"
        );
    }

    fn replicas(count: u32) -> Replicas {
        Replicas {
            count,
            online: (0..count).map(|n| n.to_string().into()).collect(),
            copying: Arc::default(),
            server: None,
        }
    }

    #[test]
    fn only_those_in_sync_can_acknowledge_a_renewal() {
        let mut seen = replicas(1);
        (seen.count, seen.copying) = (2, [Arc::from("b")].into());
        let needed = |purpose| seen.needed(ReplicaAck::All, purpose);
        assert_eq!(
            needed(Purpose::Acquire),
            2,
            "one that copies the data counts"
        );
        assert_eq!(
            needed(Purpose::Renew),
            1,
            "a renewal cannot wait for its copy"
        );
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
    fn only_acknowledgements_that_arrived_count() {
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
        let why = Error::new(ErrorKind::Refused);
        let forbidden = AckResult::Forbidden(Arc::new(why));
        for (acknowledged, policy, enough) in [
            (&two, ReplicaAck::Any, true),
            (&two, ReplicaAck::Majority, true),
            (&two, ReplicaAck::All, false),
            (&AckResult::Nothing, ReplicaAck::Any, false),
            (&AckResult::Nothing, ReplicaAck::Off, true),
            (&nobody, ReplicaAck::All, true),
            (&forbidden, ReplicaAck::Any, true),
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
