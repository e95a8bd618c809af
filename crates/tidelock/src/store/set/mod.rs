//! Several stores used as one: all of them, or a majority.
//!
//! A set is a store like any other, so the acquire loop, the steward and the guards use it unchanged. It adds three
//! rules: no caller waits while it holds a part; a grant covers all members that are needed, or none; and the loss of
//! a needed member is the loss of the whole lock.

mod all;
mod errors;
mod in_doubt;
mod inspect;
mod janitor;
mod majority;
mod member;
mod release;
mod renew;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::majority::Quorum;
pub(crate) use self::member::{Host, Member};
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::set::in_doubt::InDoubtLog;
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, Background, Bond, BoxFuture, Capabilities,
    ClientId, Extensions, Grant, LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store,
    Ticket, Timers,
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

/// The settings of a set.
pub(crate) struct Plan {
    pub(crate) rule: Rule,
    pub(crate) members: Vec<Member>,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    pub(crate) response_timeout: Duration,
}

/// Builds one store from several.
pub(crate) fn open(plan: Plan) -> Store {
    let shared = Arc::new(Shared {
        rule: plan.rule,
        members: plan.members.into_iter().map(Arc::new).collect(),
        timers: plan.timers,
        background: plan.background,
        response_timeout: plan.response_timeout,
        in_doubt_log: InDoubtLog::default(),
    });
    let face = |side| {
        Arc::new(Set {
            shared: Arc::clone(&shared),
            side,
        }) as Arc<dyn Backend>
    };
    Store::new(face(Side::Front), face(Side::Back))
}

/// One store handle of a set.
struct Set {
    shared: Arc<Shared>,
    side: Side,
}

/// Which store handle of the members is used: `Front` for callers, `Back` for the steward.
#[derive(Debug, Clone, Copy)]
enum Side {
    Front,
    Back,
}

pub(crate) struct Shared {
    rule: Rule,
    members: Vec<Arc<Member>>,
    timers: Timers,
    background: Background,
    response_timeout: Duration,
    in_doubt_log: InDoubtLog,
}

impl Shared {
    fn member(&self, part: usize, side: Side) -> &Arc<dyn Backend> {
        let store = &self.members[part].store;
        match side {
            Side::Front => &store.front,
            Side::Back => &store.back,
        }
    }

    /// How many members must grant the lock.
    fn needed(&self) -> usize {
        match self.rule {
            Rule::All => self.members.len(),
            Rule::Majority(_) => self.members.len() / 2 + 1,
        }
    }

    /// The grant of the whole lock, with the bonds of its parts.
    fn granted(&self, bonds: Vec<Option<Bond>>) -> Attempt {
        // A member that was skipped because it is the same lock as another one has no bond.
        let needed = self.needed().min(bonds.len());
        Attempt::Acquired(Grant {
            bond: Bond::of(needed, bonds),
            ..Grant::default()
        })
    }

    /// How long we wait for one member.
    fn patience_with_one(&self) -> Duration {
        match &self.rule {
            Rule::All => self.response_timeout,
            Rule::Majority(quorum) => quorum.node_timeout,
        }
    }

    /// The random pause before another round, after a collision with another caller or a split vote. `round` is how
    /// long the last round took, and `retries` how many such pauses came before. We scale the pause by the duration of
    /// a round, so that it fits any latency: a caller that starts a round earlier gets through.
    fn collision_pause(&self, round: Duration, retries: u32) -> Duration {
        let first = (round * 4).max(MIN_COLLISION_PAUSE);
        let longest = (first * 16).min(self.response_timeout / 4);
        let pauses = ExponentialBackoff::new(first, longest).jitter(1.0);
        pauses.pause(retries)
    }

    /// Asks the members. The reply is in doubt if any request of the ticket was not answered, also one of an earlier
    /// attempt.
    async fn attempt(&self, ask: &AttemptRequest) -> AttemptReply {
        let outcome = match &self.rule {
            Rule::All => all::attempt(self, ask).await,
            Rule::Majority(quorum) => majority::attempt(self, quorum, ask).await,
        };
        AttemptReply {
            outcome,
            in_doubt: self.in_doubt_log.in_doubt(&ask.ticket.owner),
        }
    }

    fn refuse_if_one_is_closed(&self) -> Result<()> {
        for member in &self.members {
            member.refuse_if_closed()?;
        }
        Ok(())
    }

    /// Sends one request to one member, with a time limit. After a timeout the request finishes in the background,
    /// and its answer is dropped. That way the member's own connection notices that it is dead.
    async fn bounded<T: Send + 'static>(
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

impl Backend for Set {
    fn capabilities(&self) -> Capabilities {
        let each = || {
            self.shared
                .members
                .iter()
                .map(|m| m.store.front.capabilities())
        };
        Capabilities {
            // Token counters of independent stores have no common order, and neither have readers of several stores.
            kinds: &[LockKind::Mutex],
            wakes: each().all(|can| can.wakes),
            queues: each().any(|can| can.queues),
            shared: each().all(|can| can.shared),
            durable: each().all(|can| can.durable),
            delays: false,
            sequencers: false,
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::NONE
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        Box::pin(self.shared.attempt(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(renew::renew(&self.shared, self.side, batch))
    }

    fn lane(&self, name: &Name) -> u64 {
        // We combine the lanes of all members: two locks fail together only if they share a lane at each member.
        let members = self.shared.members.iter();
        members.fold(0, |lane, member| {
            let own = member.store.back.lane(member.name(name));
            lane.wrapping_mul(0x100_0000_01b3) ^ own
        })
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(release::end(&self.shared, self.side, ticket, false))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(release::end(&self.shared, self.side, ticket, true))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for part in 0..self.shared.members.len() {
                self.shared.member(part, self.side).close().await;
            }
        })
    }
}

impl Operate for Set {
    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        Box::pin(inspect::force_release(&self.shared, name))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(inspect::inspect(&self.shared, name))
    }

    fn list<'a>(&'a self, pattern: &'a str, _cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(inspect::list(&self.shared, pattern))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(inspect::announce(&self.shared, client, info))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(inspect::diagnose(&self.shared))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set")
            .field("rule", &self.shared.rule)
            .field("members", &self.shared.members)
            .finish_non_exhaustive()
    }
}
