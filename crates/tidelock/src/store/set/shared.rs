//! The members of a set, and how one of them is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{Error, ErrorKind, Result};
use crate::store::set::in_doubt::InDoubtLog;
use crate::store::set::janitor::CleanupJob;
use crate::store::set::member::Member;
use crate::store::set::quorum::Quorum;
use crate::store::set::wake_number;
use crate::store::{
    Attempt, Backend, Background, Bond, BoxFuture, Grant, Incarnation, Ticket, Timers, Wait,
    WakeChannels,
};

/// Bounds from below the range of the first pause after a collision.
const MIN_COLLISION_PAUSE: Duration = Duration::from_millis(8);

/// How many members a lock needs.
#[derive(Debug)]
pub(crate) enum Rule {
    /// All of them.
    All,
    /// More than half.
    Majority(Quorum),
}

/// Which store handle of the members is used: `Front` for callers, `Back` for the steward.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Front,
    Back,
}

pub(crate) struct Shared {
    pub(crate) rule: Rule,
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    pub(crate) response_timeout: Duration,
    pub(crate) in_doubt_log: InDoubtLog,
    /// The callers that pause after a collision.
    pub(crate) pauses: WakeChannels,
}

impl Shared {
    pub(crate) fn member(&self, part: usize, side: Side) -> &Arc<dyn Backend> {
        let store = &self.members[part].store;
        match side {
            Side::Front => &store.front,
            Side::Back => &store.back,
        }
    }

    /// Records what a member has answered when it was asked for its run. After a restart the others are asked again too: one
    /// of them may be another address of that server, and would count as a second one as long as its old run is known.
    pub(crate) fn note_run(&self, part: usize, answer: &Result<Option<Incarnation>>) {
        if !self.members[part].note_run(answer, self.timers.now()) {
            return;
        }
        for (other, member) in self.members.iter().enumerate() {
            if other != part {
                member.ask_for_run_again();
            }
        }
    }

    /// How many members must grant the lock.
    pub(crate) fn needed(&self) -> usize {
        match self.rule {
            Rule::All => self.members.len(),
            Rule::Majority(_) => self.members.len() / 2 + 1,
        }
    }

    /// The grant of the whole lock, with the bonds of its parts.
    pub(crate) fn granted(&self, bonds: Vec<Option<Bond>>, renew_soon: bool) -> Attempt {
        // A member that was skipped because it is the same lock as another one has no bond.
        let needed = self.needed().min(bonds.len());
        Attempt::Acquired(Grant {
            bond: Bond::of(needed, bonds),
            renew_soon,
            ..Grant::default()
        })
    }

    /// How long we wait for one member.
    pub(crate) fn patience_with_one(&self) -> Duration {
        match &self.rule {
            Rule::All => self.response_timeout,
            Rule::Majority(quorum) => quorum.node_timeout,
        }
    }

    /// The random pause before another round, after a collision with another caller or a split vote. `round` is how
    /// long the last round took, and `retries` how many such pauses came before. We scale the pause by the duration of
    /// a round, so that it fits any latency: a caller that starts a round earlier gets through.
    pub(crate) fn collision_pause(&self, round: Duration, retries: u32) -> Duration {
        let first = (round * 4).max(MIN_COLLISION_PAUSE);
        let longest = (first * 16).min(self.response_timeout / 4);
        let pauses = ExponentialBackoff::new(first, longest).jitter(1.0);
        pauses.pause(retries)
    }

    /// How long one attempt of a caller that waits may repeat its rounds. If the wait ends in an attempt that has no
    /// answer for a quarter of the response timeout, the caller is told that the store is silent. So an attempt ends long
    /// before that, and the acquire loop makes the next pause.
    pub(crate) fn longest_rounds(&self) -> Duration {
        self.response_timeout / 8
    }

    /// Whether every member wakes.
    pub(crate) fn wakes(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.store.front.capabilities().wakes)
    }

    /// The refusal of a caller that pauses after a collision, and then starts with that member. No release wakes it.
    ///
    /// It replaces the wake that the caller may have. With that, the caller would sleep until its turn to ask again comes
    /// in that wake's channel, behind the other waiters there.
    pub(crate) fn pause_of(&self, ticket: &Ticket, member: usize, pause: Duration) -> Wait {
        let wake = self.wakes().then(|| {
            let wake = self.pauses.arm(ticket.name.as_str()).rechecks_alone();
            wake.of_part(wake_number::unarmed(member))
        });
        Wait {
            wake,
            recheck: Some(pause),
            ahead: None,
        }
    }

    /// Queues a release or withdrawal at a member that did not answer. It is retried until the lease has ended anyway.
    pub(crate) fn clean_up(&self, part: usize, ticket: Ticket, withdraw: bool) {
        let kept = match &self.rule {
            Rule::All => Duration::ZERO,
            Rule::Majority(quorum) => quorum.longest_lease(),
        };
        // Twice the lease: a request may still lie in the buffers of a server that is frozen now.
        let until = self.timers.now() + (kept * 2).max(Duration::from_secs(60));
        let job = CleanupJob {
            ticket,
            withdraw,
            until,
        };
        self.members[part]
            .janitor
            .hand(job, &self.background, &self.timers);
    }

    pub(crate) fn refuse_if_one_is_closed(&self) -> Result<()> {
        for member in &self.members {
            member.refuse_if_closed()?;
        }
        Ok(())
    }

    /// Sends one request to one member, with a time limit. After a timeout the request finishes in the background,
    /// and its answer is dropped. That way the member's own connection notices that it is dead.
    pub(crate) async fn bounded<T: Send + 'static>(
        &self,
        mut call: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let limit = self.patience_with_one();
        if let Some(answer) = self.timers.limit(limit, &mut call).await {
            return answer;
        }
        self.background.spawn(async move { drop(call.await) });
        Err(Error::new(ErrorKind::OutcomeUnknown).because(format!("no answer within {limit:?}")))
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::set::member::Host;
    use crate::store::set::tests::scripted::{
        LIMIT, Scripted, empty, env, majority_of, quorum, set_of,
    };

    /// The longest of many pauses. They are random, from zero to a bound.
    fn longest(set: &Shared, round: Duration, retries: u32) -> Duration {
        let pauses = (0..1000).map(|_| set.collision_pause(round, retries));
        pauses.max().unwrap_or_default()
    }

    #[tokio::test]
    async fn a_pause_fits_the_time_of_a_round_and_the_response_timeout() {
        let set = majority_of(quorum(), &[]);
        let round = Duration::from_millis(100);
        for (round, retries, bound) in [
            (Duration::ZERO, 0, MIN_COLLISION_PAUSE),
            (round, 0, round * 4),
            (round, 1, round * 8),
            (round, 9, LIMIT / 4),
            (Duration::from_millis(10), 9, Duration::from_millis(640)),
        ] {
            let longest = longest(&set, round, retries);
            assert!(
                longest <= bound && longest > bound / 2,
                "{longest:?} {bound:?}"
            );
        }
    }

    /// One of them may be another address of the server that has restarted.
    #[tokio::test]
    async fn after_a_restart_the_other_members_are_asked_again() {
        let members = [(); 3].map(|()| Scripted::default());
        let set = majority_of(quorum(), &members.each_ref());
        let run = |id: &str| {
            let (id, up) = (id.into(), LIMIT);
            Ok(Some(Incarnation { id, up }))
        };
        let must_be_asked = || {
            let members = set.members.iter();
            members
                .map(|member| member.must_be_asked_for_run())
                .collect::<Vec<_>>()
        };
        for (part, id) in ["a", "b", "c"].into_iter().enumerate() {
            set.note_run(part, &run(id));
        }
        assert_eq!(must_be_asked(), [false; 3]);
        set.note_run(1, &run("b"));
        assert_eq!(must_be_asked(), [false; 3]);
        set.note_run(1, &run("b, restarted"));
        assert_eq!(must_be_asked(), [true, false, true]);
    }

    struct ClosedHost;

    impl Host for ClosedHost {
        fn refuse_if_closed(&self) -> Result<()> {
            Err(Error::new(ErrorKind::Closed))
        }
    }

    #[tokio::test]
    async fn a_set_with_a_member_of_a_closed_client_is_closed() {
        let env = env();
        let member =
            |host: Option<Arc<dyn Host>>| Member::new(empty(&env), None, String::new(), host);
        let set = set_of(Rule::All, &env, [member(None)].into_iter());
        assert!(set.refuse_if_one_is_closed().is_ok());
        let members = [member(None), member(Some(Arc::new(ClosedHost)))];
        let set = set_of(Rule::All, &env, members.into_iter());
        let error = set.refuse_if_one_is_closed().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}
