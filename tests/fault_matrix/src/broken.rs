//! Stores with a deliberate bug. They show that the checkers find it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Env, Grant, Released, Renewal,
    Renewed, Store, Ticket, WakeChannels,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{FencingToken, Result};

/// The bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Every request gets the lock.
    LetsEverybodyIn,
    /// Every third grant carries an old token.
    OldTokens,
    /// A release frees the lock even when another client holds it, and wakes no waiter.
    FreesForAnybody,
    /// It confirms the renewal of locks that the caller does not hold.
    ConfirmsEverything,
    /// A release has no effect, and leases last a thousand times longer.
    KeepsEverything,
}

/// Wraps the store so that it has that bug.
pub(crate) fn with(store: Store, env: &Env, flaw: Flaw) -> Store {
    Twisted::wrap(
        Store::single(store.front),
        Broken {
            flaw,
            deaf: WakeChannels::new(env.timers.clone(), |_| {}),
            grants: AtomicU64::new(0),
        },
    )
}

#[derive(Debug)]
struct Broken {
    flaw: Flaw,
    /// Waiters subscribe to these channels, and nothing notifies them.
    deaf: WakeChannels,
    grants: AtomicU64,
}

impl Broken {
    fn make_stale(&self, grant: &mut Grant) {
        let old = self.grants.fetch_add(1, Ordering::SeqCst) % 3 == 2;
        if let Some(token) = grant.token
            && old
        {
            grant.token = Some(FencingToken::new(token.get().saturating_sub(2)));
        }
    }
}

impl Twist for Broken {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            if self.flaw == Flaw::LetsEverybodyIn {
                let number = self.grants.fetch_add(1, Ordering::SeqCst) + 1;
                return Ok(Attempt::granted(FencingToken::new(number))).into();
            }
            let mut ask = ask.clone();
            if self.flaw == Flaw::KeepsEverything {
                ask.lease *= 1000;
            }
            let mut reply = inner.attempt(&ask).await;
            match (&mut reply.outcome, self.flaw) {
                (Ok(Attempt::Acquired(grant)), Flaw::OldTokens) => self.make_stale(grant),
                (Ok(Attempt::Held(wait)), Flaw::FreesForAnybody) => {
                    wait.wake = Some(self.deaf.arm(ask.ticket.name.as_str()));
                    wait.recheck = Some(Duration::from_secs(60));
                }
                _ => {}
            }
            reply
        })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        if self.flaw == Flaw::ConfirmsEverything {
            let kept = batch.iter().map(|_| Renewed::Kept).collect();
            return Box::pin(std::future::ready(Ok(kept)));
        }
        inner.renew(batch)
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            match self.flaw {
                Flaw::FreesForAnybody => {
                    inner.force_release(&ticket.name, None).await?;
                    Ok(Released::Freed)
                }
                Flaw::KeepsEverything => Ok(Released::Freed),
                _ => inner.release(ticket).await,
            }
        })
    }
}
