//! The acknowledgement that a script needs, and the report about it.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::ReplicaAck;
use crate::store::redis::topology::replication::Replicas;

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
    pub(crate) missed: u32,
    pub(crate) within: Duration,
    pub(crate) lease: Duration,
}

impl AckDemand {
    /// The timeout of `WAIT`. It is at most a sixth of the lease, so that time remains for the steps after it.
    pub(crate) fn limit(&self) -> Duration {
        let limit = self.within.min(self.lease / 6);
        limit.max(Duration::from_millis(1))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// The steps after it need time, and zero would mean that the server waits for good.
    #[test]
    fn a_wait_takes_at_most_a_sixth_of_the_lease() {
        let ms = Duration::from_millis;
        for (lease, limit) in [(30_000, 1000), (6000, 1000), (3000, 500), (0, 1)] {
            let demand = AckDemand {
                purpose: Purpose::Acquire,
                policy: ReplicaAck::Any,
                missed: 0,
                within: ms(1000),
                lease: ms(lease),
            };
            assert_eq!(demand.limit(), ms(limit), "{lease} ms");
        }
    }

    #[test]
    fn only_a_policy_that_was_chosen_fails_where_replicas_cannot_be_asked() {
        let why = Error::new(ErrorKind::Refused).because("NOPERM");
        for (policy, fails) in [
            (ReplicaAck::Off, false),
            (ReplicaAck::Any, false),
            (ReplicaAck::Majority, true),
            (ReplicaAck::All, true),
        ] {
            let refusal = give_up_if_strict(policy, &why).err();
            assert_eq!(refusal.is_some(), fails, "{policy}");
            if let Some(refusal) = refusal {
                assert_eq!(refusal.kind(), ErrorKind::Refused);
                let detail = refusal.detail().unwrap();
                assert!(detail.ends_with("`any` or `off`: NOPERM"), "{detail}");
            }
        }
    }
}
