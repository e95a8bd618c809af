//! Stores with a bug, to see that the checkers find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidelock::backend::{
    Ask, Attempt, Backend, BoxFuture, Capabilities, ClientId, Env, Grant, Name, Page, Released,
    Renewal, Renewed, Signals, Store, Ticket, Wait,
};
use tidelock::{ClientInfo, FencingToken, Finding, Result, Snapshot};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Everybody gets the lock.
    LetsEverybodyIn,
    /// A grant comes with an old token now and then.
    OldTokens,
    /// Whoever gives back frees the lock, whoever has it, and nobody is woken.
    FreesForAnybody,
    /// It renews what it does not have.
    ConfirmsEverything,
    /// What is given back stays, and for much longer than a lease.
    KeepsEverything,
}

/// The store with that bug in it.
pub(crate) fn with(store: Store, env: &Env, flaw: Flaw) -> Store {
    Store::single(Arc::new(Broken {
        inner: store.front,
        flaw,
        deaf: Signals::new(env.timers.clone(), |_| {}),
        grants: AtomicU64::new(0),
    }))
}

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn Backend>,
    flaw: Flaw,
    /// Nobody rings them.
    deaf: Signals,
    grants: AtomicU64,
}

impl Broken {
    fn stale(&self, mut grant: Grant) -> Grant {
        let old = self.grants.fetch_add(1, Ordering::SeqCst) % 3 == 2;
        if let Some(token) = grant.token
            && old
        {
            grant.token = Some(FencingToken::new(token.get().saturating_sub(2)));
        }
        grant
    }
}

impl Backend for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            if self.flaw == Flaw::LetsEverybodyIn {
                return Ok(Attempt::Acquired(Grant::default()));
            }
            let mut ask = ask.clone();
            if self.flaw == Flaw::KeepsEverything {
                ask.lease *= 1000;
            }
            let answer = self.inner.attempt(&ask).await?;
            Ok(match (answer, self.flaw) {
                (Attempt::Acquired(grant), Flaw::OldTokens) => Attempt::Acquired(self.stale(grant)),
                (Attempt::Held(_), Flaw::FreesForAnybody) => Attempt::Held(Wait {
                    wake: Some(self.deaf.arm(ask.ticket.name.as_str())),
                    recheck: Some(Duration::from_secs(60)),
                }),
                (answer, _) => answer,
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        if self.flaw == Flaw::ConfirmsEverything {
            let kept = batch.iter().map(|_| Renewed::Kept).collect();
            return Box::pin(std::future::ready(Ok(kept)));
        }
        self.inner.renew(batch)
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            match self.flaw {
                Flaw::FreesForAnybody => {
                    self.inner.force_release(&ticket.name).await?;
                    Ok(Released::Freed)
                }
                Flaw::KeepsEverything => Ok(Released::Freed),
                _ => self.inner.release(ticket).await,
            }
        })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.inner.withdraw(ticket)
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        self.inner.force_release(name)
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.inner.inspect(name)
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        self.inner.list(pattern, cursor)
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.announce(client, info, keep)
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.inner.examine()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
