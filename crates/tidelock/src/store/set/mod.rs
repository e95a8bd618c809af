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
mod quorum;
mod release;
mod renew;
mod shared;
mod wake_number;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::member::{Host, Member};
pub(crate) use self::quorum::Quorum;
pub(crate) use self::shared::Rule;
use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::set::in_doubt::InDoubtLog;
use crate::store::set::shared::{Shared, Side};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, Background, BoxFuture, Capabilities, ClientId,
    Extensions, LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store, Ticket, Timers,
    WakeChannels,
};

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
    let pauses = WakeChannels::new(plan.timers.clone(), |_| {});
    let shared = Arc::new(Shared {
        rule: plan.rule,
        members: plan.members.into_iter().map(Arc::new).collect(),
        timers: plan.timers,
        background: plan.background,
        response_timeout: plan.response_timeout,
        in_doubt_log: InDoubtLog::default(),
        pauses,
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

impl Set {
    /// Asks the members. The reply is in doubt if any request of the ticket was not answered, also one of an earlier
    /// attempt.
    async fn run_attempt(&self, ask: &AttemptRequest) -> AttemptReply {
        let set = &*self.shared;
        let outcome = match &set.rule {
            Rule::All => all::attempt(set, ask).await,
            Rule::Majority(quorum) => majority::attempt(set, quorum, ask).await,
        };
        if matches!(outcome, Ok(Attempt::Acquired(_))) {
            set.in_doubt_log.granted(&ask.ticket);
        }
        AttemptReply {
            outcome,
            in_doubt: set.in_doubt_log.in_doubt(&ask.ticket),
        }
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
            wakes: self.shared.wakes(),
            queues: each().any(|can| can.queues),
            shared: each().all(|can| can.shared),
            durable: each().all(|can| can.durable),
            delays: false,
            sequencers: false,
            raises_tokens: false,
            marks: false,
            counts: false,
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::NONE
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        Box::pin(self.run_attempt(ask))
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
    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(inspect::force_release(&self.shared, name, seen))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(inspect::inspect(&self.shared, name))
    }

    fn list<'a>(
        &'a self,
        pattern: &'a str,
        _after: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Page>> {
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

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
