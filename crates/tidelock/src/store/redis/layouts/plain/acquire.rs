//! An attempt at a plain lock.

use crate::error::Result;
use crate::store::redis::layouts::answer::AcquireAnswer;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::plain::{PlainLockWords, without_lua, without_scripts};
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::{PendingAck, Purpose, give_up_if_strict};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{Attempt, AttemptRequest, BootInstant, LockKind, Wait};

impl Redis {
    pub(crate) async fn attempt_plain(
        &self,
        ask: &AttemptRequest,
        in_doubt: &mut bool,
    ) -> Result<Attempt> {
        let name = &ask.ticket.name;
        self.router.check(name)?;
        let deadline = self.router.deadline();
        // We subscribe before we run the script. Otherwise we would miss a release between the two.
        let wake = self.shared.events.wake_for(ask, &self.router).await;
        let (reply, pending) = self.acquire_plain(ask, deadline).await?;
        let refusal = match AcquireAnswer::read(&reply, || keys::plain_token(name))? {
            AcquireAnswer::Granted { last, more } => {
                let tokens = (last, more);
                return self
                    .granted(ask, tokens, pending, deadline, keys::plain_token, in_doubt)
                    .await;
            }
            AcquireAnswer::Held(refusal) => refusal,
        };
        // The third element of the reply is the holder's owner, not the head of a fair queue.
        if let Some(owner) = reply.list().and_then(|parts| parts.get(2)) {
            self.shared.events.saw(name, owner);
        }
        let recheck = Some(self.recheck(name, refusal.left));
        Ok(Attempt::Held(Wait {
            wake,
            recheck,
            ahead: None,
        }))
    }

    async fn acquire_plain(
        &self,
        ask: &AttemptRequest,
        deadline: BootInstant,
    ) -> Result<(Reply, Option<PendingAck>)> {
        let (name, owner) = (&ask.ticket.name, ask.ticket.owner.text());
        let mut digits = itoa::Buffer::new();
        let lease = digits.format(millis(ask.lease));
        let is_fenced = ask.ticket.kind == LockKind::Fenced;
        let (mut tombstone, mut token) = (String::new(), String::new());
        let mut declared = 1;
        if self.declares_tombstone(&ask.ticket) {
            tombstone = keys::tombstone(name, owner);
            declared = 2;
        }
        if is_fenced {
            token = keys::plain_token(name);
            declared = 3;
        }
        let keys = [name.as_str(), &*tombstone, &*token];
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::PLAIN_ACQUIRE,
                keys: &keys[..declared],
                args: &[lease, owner],
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ask.wish,
            lease: ask.lease,
            policy: &self.shared.ack_policy,
        };
        match self.run_script(&job).await {
            Some(Err(error)) if declared == 1 && self.must_declare(&error) => {
                return Box::pin(self.acquire_plain(ask, deadline)).await;
            }
            Some(answer) => return answer,
            None => {}
        }
        // Replicas can only acknowledge scripts, so a strict ack policy fails here.
        give_up_if_strict(ask.wish, &without_scripts())?;
        let words = PlainLockWords {
            name: name.as_str(),
            owner,
            tombstone: &keys::tombstone(name, owner),
            counter: is_fenced.then_some(&*token),
            millis: lease,
            ..PlainLockWords::default()
        };
        let reply = self
            .run_table(&without_lua::ACQUIRE, words, deadline)
            .await?;
        Ok((reply, None))
    }
}
