//! Stores with a bug, to see that the referee catches it.

use std::sync::Arc;
use std::time::Duration;

use tidelock::backend::{
    Ask, Attempt, Backend, BoxFuture, Capabilities, ClientId, Grant, Name, Page, Released, Renewal,
    Renewed, Store, Ticket,
};
use tidelock::{ClientInfo, Finding, Result, Snapshot};

use crate::Flaw;

/// The store with that bug in it.
pub(crate) fn with(store: Store, flaw: Option<Flaw>) -> Store {
    match flaw {
        None => store,
        Some(flaw) => Store::single(Arc::new(Broken {
            inner: store.front,
            flaw,
        })),
    }
}

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn Backend>,
    flaw: Flaw,
}

impl Backend for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        match self.flaw {
            Flaw::LetsEverybodyIn => {
                Box::pin(std::future::ready(Ok(Attempt::Acquired(Grant::default()))))
            }
            Flaw::EndsEarly => Box::pin(async move {
                let mut short = ask.clone();
                short.lease = ask.lease.mul_f64(0.8);
                self.inner.attempt(&short).await
            }),
            _ => self.inner.attempt(ask),
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(async move {
            let answers = self.inner.renew(batch).await?;
            Ok(match self.flaw {
                Flaw::ConfirmsEverything => batch.iter().map(|_| Renewed::Kept).collect(),
                _ => answers,
            })
        })
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            if self.flaw == Flaw::FreesForAnybody {
                self.inner.force_release(&ticket.name).await?;
                return Ok(Released::Freed);
            }
            self.inner.release(ticket).await
        })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        match self.flaw {
            Flaw::ForgetsWithdrawals => self.inner.release(ticket),
            _ => self.inner.withdraw(ticket),
        }
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
