//! An attempt at a fair lock.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::layouts::answer::AcquireAnswer;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{Attempt, AttemptRequest, BootInstant, Ticket, Wait, Wake};

impl Redis {
    pub(crate) async fn attempt_fair(
        &self,
        ask: &AttemptRequest,
        in_doubt: &mut bool,
    ) -> Result<Attempt> {
        let ticket = &ask.ticket;
        self.router.check(&ticket.name)?;
        let deadline = self.router.deadline();
        let waits = !ask.patience.is_zero();
        // We subscribe before we queue. The script grants the lock only to a waiter whose process hears of its turn.
        let wake = match ask.armed_by {
            None if waits => Some(self.fair_wake(ask).await?),
            _ => None,
        };
        if waits {
            self.shared.beats.enter(&ticket.name, &ticket.owner);
        }
        let (mut had_place, mut asked_again) = (ask.armed_by.is_some(), false);
        let left = loop {
            let (reply, pending) = self.acquire_fair(ask, had_place, deadline).await?;
            let counter = || keys::token(&ticket.name);
            let refusal = match AcquireAnswer::read(&reply, counter)? {
                AcquireAnswer::Granted { last, more } => {
                    self.shared.beats.leave(&ticket.name, &ticket.owner);
                    let tokens = (last, more);
                    return self
                        .granted(ask, tokens, pending, deadline, keys::token, in_doubt)
                        .await;
                }
                AcquireAnswer::Held(refusal) => refusal,
            };
            let follows_redisson = waits && refusal.silent;
            if asked_again || !follows_redisson || !self.hear_redisson(ask).await {
                break refusal.left;
            }
            (had_place, asked_again) = (true, true); // Redisson may have released meanwhile
        };
        Ok(Attempt::Held(Wait {
            wake,
            recheck: Some(self.fair_recheck(ask, left)),
            ahead: None,
        }))
    }

    /// Whether a waiter would hear of its turn without another SUBSCRIBE. Then its first attempt takes its place.
    pub(crate) fn hears_turns(&self, ticket: &Ticket) -> bool {
        let turns = || keys::turns::turn_channel(&ticket.name, ticket.owner.client());
        ticket.kind.is_fair() && self.shared.subscriber.is_live(turns)
    }

    /// Subscribes to the waiter's own channel. Redisson publishes its release there, to the head of the queue. `true`: the
    /// subscription is new, perhaps in one form only. Without it the waiter sleeps until the next beat.
    async fn hear_redisson(&self, ask: &AttemptRequest) -> bool {
        let channel = keys::fair_channel(&ask.ticket.name, ask.ticket.owner.text());
        let subscriber = &self.shared.subscriber;
        if subscriber.is_live(|| channel.clone()) {
            return false;
        }
        // A quarter of the timeout: the second attempt needs the rest. Boxed, because few attempts need it.
        let limit = self.router.limit() / 4;
        Box::pin(subscriber.subscribe(&channel, limit)).await
    }

    /// A wake for this ticket.
    async fn fair_wake(&self, ask: &AttemptRequest) -> Result<Wake> {
        let (name, owner) = (&ask.ticket.name, &ask.ticket.owner);
        let turns = keys::turns::turn_channel(name, owner.client());
        let own = keys::fair_channel(name, owner.text());
        // Half of the timeout: the script needs the rest.
        let limit = self.router.limit() / 2;
        let armed = self
            .shared
            .subscriber
            .arm_for_turn(&turns, &own, limit)
            .await;
        armed.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable).because(
                "a waiter of a fair lock is told of its turn on a channel of its process, and the server did not accept the subscription; allow &redisson_lock__channel:*",
            )
        })
    }

    /// How long a waiter sleeps at most. `left`: as in the reply of the script; -2 if another waiter has its turn.
    fn fair_recheck(&self, ask: &AttemptRequest, left: i64) -> Duration {
        if left == -2 {
            return self.shared.lease;
        }
        self.recheck(&ask.ticket.name, left)
    }

    async fn acquire_fair(
        &self,
        ask: &AttemptRequest,
        had_place: bool,
        deadline: BootInstant,
    ) -> Result<(Reply, Option<PendingAck>)> {
        let ticket = &ask.ticket;
        let (name, owner) = (&ticket.name, ticket.owner.text());
        let others = [
            keys::tombstone(name, owner),
            keys::fair_queue(name),
            keys::fair_times(name),
            keys::alive(name),
            keys::unconfirmed(name),
            keys::token(name),
        ];
        let counted = usize::from(ticket.kind.is_fenced());
        let others = others[..others.len() - 1 + counted].iter();
        let keys: Vec<&str> = std::iter::once(name.as_str())
            .chain(others.map(String::as_str))
            .collect();
        let lease = millis(ask.lease).to_string();
        let waits = if ask.patience.is_zero() { "" } else { "queues" };
        let again = if had_place { "again" } else { "" };
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::FAIR_ACQUIRE,
                keys: &keys,
                args: &[&lease, owner, waits, again, self.how()],
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ask.wish,
            lease: ask.lease,
            policy: &self.shared.ack_policy,
        };
        self.router.run(&job).await
    }
}
