//! An attempt at a Redisson lock.

use crate::error::Result;
use crate::store::redis::layouts::answer::AcquireAnswer;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{Attempt, AttemptRequest, BootInstant, LockKind, Wake};

impl Redis {
    pub(crate) async fn attempt_redisson(
        &self,
        ask: &AttemptRequest,
        in_doubt: &mut bool,
    ) -> Result<Attempt> {
        self.router.check(&ask.ticket.name)?;
        let deadline = self.router.deadline();
        // We subscribe before we run the script. Otherwise we would miss a release between the two.
        let mut wake = self.redisson_wake(ask).await;
        if ask.ticket.kind.is_read_write() {
            // Each waiter for a side has a position in the store, which only its own attempts keep.
            wake = wake.map(Wake::rechecks_alone);
        }
        let waits = if ask.ticket.kind.is_spin() {
            "spins"
        } else if wake.is_some() || !ask.patience.is_zero() {
            "sleeps"
        } else {
            ""
        };
        let mut asked_again = false;
        loop {
            let (reply, pending) = match ask.ticket.kind {
                kind if kind.is_read_write() => self.acquire_side(ask, deadline).await?,
                LockKind::Permits(_) => self.acquire_permits(ask, deadline).await?,
                _ => self.acquire_redisson(ask, waits, deadline).await?,
            };
            let counter = || keys::token(&ask.ticket.name);
            let refusal = match AcquireAnswer::read(&reply, counter)? {
                AcquireAnswer::Granted { last, more } => {
                    let tokens = (last, more);
                    return self
                        .granted(ask, tokens, pending, deadline, keys::token, in_doubt)
                        .await;
                }
                AcquireAnswer::Held(refusal) => refusal,
            };
            if ask.ticket.kind.is_spin() {
                self.saw_spinning(&ask.ticket, refusal);
                let recheck = self.recheck(&ask.ticket.name, refusal.left);
                return Ok(Attempt::held(None, recheck));
            }
            if !asked_again && self.begin_to_hear(ask, refusal).await {
                asked_again = true; // we may have missed a release
                continue;
            }
            return Ok(Attempt::Held(self.wait_redisson(ask, wake, refusal)));
        }
    }

    async fn redisson_wake(&self, ask: &AttemptRequest) -> Option<Wake> {
        if ask.armed_by.is_some() || ask.ticket.kind.is_spin() {
            return None;
        }
        let subscriber = &self.shared.subscriber;
        if ask.patience.is_zero() {
            if ask.ticket.kind.is_read_write() {
                // Such an attempt does not join the queue of the waiters. With a wake the caller would sleep outside
                // it; without one, it asks again at once, with patience.
                return None;
            }
            return subscriber.arm_if_live(|| keys::wake_channel(&ask.ticket));
        }
        let channel = keys::wake_channel(&ask.ticket);
        // Half of the timeout: the script needs the rest. The future is boxed because few requests need it; inline,
        // it would enlarge every request's future and be copied with it.
        let limit = ask.time_to_arm(self.router.limit() / 2);
        Box::pin(subscriber.arm(&channel, limit)).await
    }

    /// `waits`: how the caller waits if the lock is held. One that `sleeps` is told how it hears of the release, one that
    /// `spins` who holds the lock.
    async fn acquire_redisson(
        &self,
        ask: &AttemptRequest,
        waits: &str,
        deadline: BootInstant,
    ) -> Result<(Reply, Option<PendingAck>)> {
        let ticket = &ask.ticket;
        let owner = ticket.owner.text();
        let (mut digits, mut tokens) = (itoa::Buffer::new(), itoa::Buffer::new());
        let lease = digits.format(millis(ask.lease));
        let tokens = tokens.format(ask.spare.saturating_add(1));
        let args = [lease, owner, waits, tokens];
        let is_fenced = ticket.kind.is_fenced();
        let (mut tombstone, mut token) = (String::new(), String::new());
        let mut declared = 1;
        if self.declares_tombstone(ticket) {
            tombstone = keys::tombstone(&ticket.name, owner);
            declared = 2;
        }
        if is_fenced {
            token = keys::token(&ticket.name);
            declared = 3;
        }
        let keys = [ticket.name.as_str(), &*tombstone, &*token];
        let args = if is_fenced {
            &args[..]
        } else {
            &args[..2 + usize::from(!waits.is_empty())]
        };
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::ACQUIRE,
                keys: &keys[..declared],
                args,
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ask.wish,
            lease: ask.lease,
            policy: &self.shared.ack_policy,
        };
        match self.router.run(&job).await {
            Err(error) if declared == 1 && self.must_declare(&error) => {
                // Boxed because no server of Redis or Valkey does so.
                Box::pin(self.acquire_redisson(ask, waits, deadline)).await
            }
            answer => answer,
        }
    }
}
