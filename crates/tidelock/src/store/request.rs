//! What the acquire loop and a store say to each other: requests and replies, as plain data.

use std::time::Duration;

use crate::acknowledge::{Acknowledged, ReplicaAck};
use crate::engine::runtime::wakes::Wake;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Bond, Liveness};
use crate::types::{FencingToken, LockKind, OwnerId};

/// Everything needed to renew, release or clean up one acquisition. It exists before the first byte is sent, so that
/// cleanup never depends on a reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The kind of the lock.
    pub kind: LockKind,
    /// The name of the lock.
    pub name: Name,
    /// The owner, used for this one acquisition only. It says whether the ticket is that of an upgradeable reader, or of
    /// the writer that such a reader becomes.
    pub owner: OwnerId,
}

/// One attempt: may this ticket hold the lock now?
#[derive(Debug, Clone)]
pub struct AttemptRequest {
    /// The acquisition and its lock.
    pub ticket: Ticket,
    /// The lease of the grant.
    pub lease: Duration,
    /// How long the caller waits in total. Zero: the caller only wants one answer, so the store need not arm a wake.
    pub patience: Duration,
    /// The store has refused this caller before, and will probably refuse it again. A store in which an attempt costs much more
    /// than a look may look first. False in a set of stores: its members have less time to answer.
    pub refused: bool,
    /// The caller already has a [`Wake`] for this lock, so the store arms no other. In a set of stores the number tells
    /// which member armed it; in a single store it is 0.
    pub armed_by: Option<usize>,
    /// How many replicas must acknowledge the grant before it is reported. A store without replicas ignores this.
    pub wish: ReplicaAck,
    /// How many more fencing tokens to reserve with the grant, for later acquisitions of this process. A store that
    /// cannot or need not do so reserves none: see [`Grant::more`].
    pub spare: u32,
    /// How long nobody may get the lock after this hold ends without a release. A release or a force release ends the
    /// delay at once. Zero: no delay. Set only if [`Capabilities::delays`](crate::store::Capabilities::delays) is true.
    pub delay: Duration,
    /// Set for a [downgrade](crate::ReadWriteLock::downgrade): the reader of this ticket joins the write hold of that
    /// owner, ahead of all waiters. If that owner does not hold the write side, the attempt fails with
    /// [`Lost`](crate::ErrorKind::Lost).
    pub downgrade_of: Option<OwnerId>,
    /// Set for an [upgrade](crate::ReadWriteLock::upgrade): the writer of this ticket enters beside the upgradeable
    /// reader of that owner, ahead of all waiters, once nobody else holds the lock. If that owner does not hold it so,
    /// the attempt fails with [`Lost`](crate::ErrorKind::Lost), also if the ticket was granted before.
    pub upgrade_of: Option<OwnerId>,
    /// How long the store may take to arm a wake, if its caller has less time than a response timeout. A refusal without a
    /// wake is better than one that comes too late. `None`: as long as the attempt still ends in time.
    pub arms_within: Option<Duration>,
    /// Tells whether the caller still waits for the answer.
    pub liveness: Liveness,
}

impl AttemptRequest {
    /// An attempt without patience, spare tokens or delay, whose caller waits until the end.
    pub fn once(ticket: Ticket, lease: Duration, wish: ReplicaAck) -> Self {
        Self {
            ticket,
            lease,
            patience: Duration::ZERO,
            refused: false,
            armed_by: None,
            wish,
            spare: 0,
            delay: Duration::ZERO,
            downgrade_of: None,
            upgrade_of: None,
            arms_within: None,
            liveness: Liveness::default(),
        }
    }

    /// The same attempt for a job that outlives its caller. Otherwise the caller would count as waiting until the job has
    /// run.
    #[cfg(feature = "sqlite")]
    pub(crate) fn without_caller(&self) -> Self {
        Self {
            liveness: Liveness::default(),
            ..self.clone()
        }
    }

    /// How long to wait for what a wake needs, such as a subscription: `most`, or less if the caller has less time.
    pub(crate) fn time_to_arm(&self, most: Duration) -> Duration {
        self.arms_within.map_or(most, |within| within.min(most))
    }

    /// Whether a refusal must carry a wake: the caller waits and has none yet.
    pub fn wants_wake(&self) -> bool {
        self.armed_by.is_none() && !self.patience.is_zero()
    }
}

/// The reply to an [`AttemptRequest`].
#[derive(Debug)]
pub struct AttemptReply {
    /// A grant, a refusal, or an error.
    pub outcome: Result<Attempt>,
    /// A request of this ticket may still take effect, although the attempt was answered. The caller withdraws the
    /// ticket and makes no further attempt with it. Stores that send one request per attempt are never in doubt.
    pub in_doubt: bool,
}

impl From<Result<Attempt>> for AttemptReply {
    fn from(outcome: Result<Attempt>) -> Self {
        Self {
            outcome,
            in_doubt: false,
        }
    }
}

impl From<Error> for AttemptReply {
    fn from(error: Error) -> Self {
        Err(error).into()
    }
}

/// What the store decided.
#[derive(Debug)]
pub enum Attempt {
    /// The ticket holds the lock.
    Acquired(Grant),
    /// Another ticket holds the lock.
    Held(Wait),
}

impl Attempt {
    /// A grant with this token.
    pub fn granted(token: impl Into<Option<FencingToken>>) -> Self {
        Self::Acquired(Grant {
            token: token.into(),
            ..Grant::default()
        })
    }

    /// A refusal with these details: see [`Wait`].
    pub fn held(wake: Option<Wake>, recheck: impl Into<Option<Duration>>) -> Self {
        Self::Held(Wait {
            wake,
            recheck: recheck.into(),
            ahead: None,
        })
    }

    /// The same for a ticket with a position in a queue.
    pub(crate) fn held_behind(
        wake: Option<Wake>,
        recheck: Option<Duration>,
        ahead: Option<u32>,
    ) -> Self {
        Self::Held(Wait {
            wake,
            recheck,
            ahead,
        })
    }
}

/// The details of a grant.
#[derive(Debug, Clone, Default)]
pub struct Grant {
    /// The fencing token, if the store counts. Always present for [`LockKind::Fenced`].
    pub token: Option<FencingToken>,
    /// How many tokens after this one were reserved with it. No later grant of this lock gets one of them.
    pub more: u32,
    /// The acknowledgements reached. `None`: none were requested.
    pub acknowledged: Option<Acknowledged>,
    /// A condition that the hold depends on besides its lease. `None`: the lease only.
    pub bond: Option<Bond>,
    /// The first renewal should be sent after a fifteenth of the lease already: it completes the grant.
    pub renew_soon: bool,
}

/// The details of a refusal.
#[derive(Debug, Default)]
pub struct Wait {
    /// Resolves when the answer may have changed. It is armed before the attempt is decided. `None`: the caller polls.
    pub wake: Option<Wake>,
    /// The latest time for the next attempt: the rest of the holder's lease, if known.
    pub recheck: Option<Duration>,
    /// How many tickets are ahead of this one in the queue of the store, holders included. `None`: the ticket has no
    /// position, or the store does not tell it.
    pub ahead: Option<u32>,
}

/// A request to renew one lease.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The ticket of the lease.
    pub ticket: Ticket,
    /// The new minimum length from now. A renewal never shortens a lease.
    pub lease: Duration,
    /// How many replicas must acknowledge the renewal before it counts as [`Kept`](Renewed::Kept).
    pub wish: ReplicaAck,
}

/// The result of one [`Renewal`].
#[derive(Debug)]
pub enum Renewed {
    /// The ticket holds the lock for the requested lease.
    Kept,
    /// The ticket no longer holds the lock.
    Gone,
    /// The ticket no longer holds the lock alone: the key is also used by another kind of lock, or holds something
    /// else.
    WrongType,
    /// This renewal failed. The others in the batch are not affected.
    Failed(Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    fn once() -> AttemptRequest {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: Name::new("till").unwrap(),
            owner: OwnerMint::new().fresh(),
        };
        AttemptRequest::once(ticket, Duration::from_secs(30), ReplicaAck::Off)
    }

    #[test]
    fn only_a_caller_that_waits_and_has_no_wake_wants_one() {
        let minute = Duration::from_secs(60);
        for (patience, armed_by, wants) in [
            (Duration::ZERO, None, false),
            (Duration::ZERO, Some(0), false),
            (minute, Some(0), false),
            (minute, None, true),
        ] {
            let ask = AttemptRequest {
                patience,
                armed_by,
                ..once()
            };
            assert_eq!(ask.wants_wake(), wants, "{patience:?}, {armed_by:?}");
        }
    }

    #[test]
    fn a_caller_in_a_hurry_bounds_the_time_to_arm() {
        let most = Duration::from_secs(4);
        for (arms_within, time) in [
            (None, most),
            (Some(most / 2), most / 2),
            (Some(most * 2), most),
        ] {
            let ask = AttemptRequest {
                arms_within,
                ..once()
            };
            assert_eq!(ask.time_to_arm(most), time, "{arms_within:?}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_job_outlives_a_caller_that_has_left() {
        let left = AttemptRequest {
            liveness: crate::store::liveness::tests::gone(),
            ..once()
        };
        assert!(left.liveness.has_left() && !once().liveness.has_left());
        let job = left.without_caller();
        assert!(!job.liveness.has_left());
        assert_eq!(job.ticket, left.ticket);
    }
}
