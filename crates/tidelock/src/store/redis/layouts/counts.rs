//! Numbers without holders: a latch is Redisson's `RCountDownLatch`, and a counting semaphore its `RSemaphore`.
//!
//! The key of a latch is deleted when its number comes to zero. Each change leaves its answer in a key of ours for a
//! while: a repeated or late request has no second effect and gets the same answer. The client names the answers that it
//! has got with its next change, which deletes them.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::layouts::{Layout, answer, scripts};
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{
    BoxFuture, CountChange, CountChanged, CountKind, Counts, LatchChange, Name, OwnerId,
    SemaphoreChange, Wait,
};

/// The poll interval of a waiter that may not hear the message.
const DEAF_RECHECK: Duration = Duration::from_secs(1);

impl Redis {
    async fn change_count(
        &self,
        name: &Name,
        change: CountChange,
        id: &OwnerId,
        settled: &[OwnerId],
    ) -> Result<CountChanged> {
        let kind = change.kind();
        self.check_count(name, kind)?;
        let answer_to = |id: &OwnerId| keys::count_answer(kind, name, id.text());
        let mut keys = vec![name.as_str().to_owned(), answer_to(id)];
        if kind == CountKind::Latch {
            keys.push(keys::permits_out(name));
        }
        keys.extend(settled.iter().map(answer_to));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (what, number) = words(change);
        let (number, kept) = (
            number.to_string(),
            millis(self.shared.answers_kept).to_string(),
        );
        let args = [what, &number, &channel(name, kind), self.how(), &kept];
        let script = match kind {
            CountKind::Latch => &scripts::CHANGE_LATCH,
            CountKind::Semaphore => &scripts::CHANGE_SEMAPHORE,
        };
        let deadline = self.router.deadline();
        let reply = self.router.eval(script, &keys, &args, deadline).await?;
        let (changed, count) = match reply.list().unwrap_or_default() {
            [Reply::Int(0), changed, count] => (changed, count),
            [Reply::Int(0), changed, count, _] => {
                tracing::warn!(%name, "the latch or semaphore was changed, but the user may not publish on its channel, so waiters notice it only when they poll; grant the user that channel");
                (changed, count)
            }
            [Reply::Int(7), is] => return Err(other(kind, is)),
            _ => return Err(unexpected(&reply)),
        };
        Ok(CountChanged {
            changed: changed.int() == Some(1),
            count: count.int().ok_or_else(|| unexpected(&reply))?,
        })
    }

    async fn count_of(&self, name: &Name, kind: CountKind) -> Result<i64> {
        self.check_count(name, kind)?;
        let out = keys::permits_out(name);
        let (script, keys) = match kind {
            CountKind::Latch => (&scripts::LATCH_COUNT, &[name.as_str(), &out][..]),
            CountKind::Semaphore => (&scripts::SEMAPHORE_COUNT, &[name.as_str()][..]),
        };
        let deadline = self.router.deadline();
        let reply = self.router.eval(script, keys, &[], deadline).await?;
        match reply.list().unwrap_or_default() {
            [Reply::Int(0), count] => count.int().ok_or_else(|| unexpected(&reply)),
            [Reply::Int(7), is] => Err(other(kind, is)),
            _ => Err(unexpected(&reply)),
        }
    }

    async fn arm_count(&self, name: &Name, kind: CountKind) -> Result<Wait> {
        self.check_count(name, kind)?;
        let (channel, subscriber) = (channel(name, kind), &self.shared.subscriber);
        let wake = subscriber.arm(&channel, self.router.limit() / 2).await;
        let deaf = wake.is_none() || subscriber.is_deaf(|| channel);
        let recheck = if deaf {
            DEAF_RECHECK
        } else {
            self.shared.lease / 3
        };
        Ok(Wait {
            wake,
            recheck: Some(recheck),
            ahead: None,
        })
    }

    /// The channel of a latch has braces around the whole name. So in a cluster a name with braces of its own has its
    /// channel in another slot, and Redisson fails too.
    fn check_count(&self, name: &Name, kind: CountKind) -> Result<()> {
        self.router.check(name)?;
        match (&self.router, kind) {
            (Router::Cluster(..), CountKind::Latch) if name.as_str().contains('{') => {
                Err(Error::new(ErrorKind::InvalidName).because(
                    "in a cluster the channel of a latch lies in the slot of its key only if the name has no braces; use a name without them",
                ))
            }
            _ => Ok(()),
        }
    }

    /// This store's latches and counting semaphores, unless its locks are plain keys.
    pub(crate) fn counts(&self) -> Option<&dyn Counts> {
        (self.layout == Layout::Redisson).then_some(self as _)
    }
}

/// A change in the arguments of its script.
fn words(change: CountChange) -> (&'static str, i64) {
    match change {
        CountChange::Latch(LatchChange::SetIfNew(count)) => ("new", count.into()),
        CountChange::Latch(LatchChange::CountDown) => ("down", 0),
        CountChange::Latch(LatchChange::Delete) => ("delete", 0),
        CountChange::Semaphore(SemaphoreChange::SetIfNew(total)) => ("new", total.into()),
        CountChange::Semaphore(SemaphoreChange::Add(more)) => ("add", more.into()),
        CountChange::Semaphore(SemaphoreChange::Take(count)) => ("take", count.into()),
        CountChange::Semaphore(SemaphoreChange::GiveBack(count)) => ("back", count.into()),
        CountChange::Semaphore(SemaphoreChange::Drain) => ("drain", 0),
        CountChange::Semaphore(SemaphoreChange::Undo) => ("undo", 0),
    }
}

fn channel(name: &Name, kind: CountKind) -> String {
    match kind {
        CountKind::Latch => keys::latch_channel(name),
        CountKind::Semaphore => keys::permit_channel(name),
    }
}

/// The error for a key that is something else. `is`: what the key is.
fn other(kind: CountKind, is: &Reply) -> Error {
    let is = is.text().unwrap_or_default();
    match kind {
        CountKind::Latch => answer::not_latch(is),
        CountKind::Semaphore => answer::not_semaphore(is),
    }
}

impl Counts for Redis {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        Box::pin(self.change_count(name, change, id, settled))
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        Box::pin(self.count_of(name, kind))
    }

    fn arm<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        Box::pin(self.arm_count(name, kind))
    }
}

#[cfg(test)]
mod tests;
