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
    pub(crate) fn granted(&self, bonds: Vec<Option<Bond>>) -> Attempt {
        // A member that was skipped because it is the same lock as another one has no bond.
        let needed = self.needed().min(bonds.len());
        Attempt::Acquired(Grant {
            bond: Bond::of(needed, bonds),
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
