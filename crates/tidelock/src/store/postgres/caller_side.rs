//! The side of the store for callers. Each of its requests runs in a task on the steward's thread.
//!
//! A statement has a slot among those in flight on its connection until its future has been polled to the answer, and a
//! slot that gets free goes to the request that has waited longest. So a caller that keeps a future and does not poll it
//! would keep a slot. A few such callers would stop all others, and the renewals, which share a connection.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::errors::unanswered;
use crate::store::kinds::unsupported;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, Background, BoxFuture, Capabilities, ClientId,
    Extensions, LockKind, MarkChange, Marks, Name, Operate, Page, PermitChange, PermitCounter,
    Released, Renewal, Renewed, Ticket, TokenCounter,
};

/// The store for callers.
pub(crate) struct CallerSide {
    inner: Arc<dyn Backend>,
    background: Background,
}

impl CallerSide {
    /// `inner`: makes the requests.
    pub(crate) fn new(inner: Arc<dyn Backend>, background: &Background) -> Self {
        Self {
            inner,
            background: background.clone(),
        }
    }

    fn ask<T, F>(
        &self,
        request: impl FnOnce(Arc<dyn Backend>) -> F,
    ) -> BoxFuture<'static, Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let request = request(Arc::clone(&self.inner));
        let background = self.background.clone();
        Box::pin(async move {
            let answer = background.run_for_caller(request).await;
            answer.unwrap_or_else(|| Err(closing()))
        })
    }
}

/// The request may have been sent.
fn closing() -> Error {
    unanswered("the client is closing")
}

impl Backend for CallerSide {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn extensions(&self) -> Extensions<'_> {
        // Each is named, so a new one does not compile before somebody has decided on it here. One that is passed on as it is
        // makes its requests where the caller polls them. This store has none of those so far; one that it gets needs an
        // implementation of this side too.
        let Extensions {
            sequencers,
            sql_fence,
            token_counter,
            marks,
            permit_counter,
            counts,
            server_runs,
            releases,
            awaited,
            pollers,
        } = self.inner.extensions();
        Extensions {
            sequencers,
            sql_fence,
            token_counter: token_counter.map(|_| self as &dyn TokenCounter),
            marks: marks.map(|_| self as &dyn Marks),
            permit_counter: permit_counter.map(|_| self as &dyn PermitCounter),
            counts,
            server_runs,
            releases,
            awaited,
            pollers,
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        let (inner, ask) = (Arc::clone(&self.inner), ask.clone());
        let request = async move { inner.attempt(&ask).await };
        Box::pin(async move {
            let reply = self.background.run_for_caller(request).await;
            reply.unwrap_or_else(|| closing().into())
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.to_vec();
        self.ask(|inner| async move { inner.renew(&batch).await })
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.ask(|inner| async move { inner.release(&ticket).await })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.ask(|inner| async move { inner.withdraw(&ticket).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl Operate for CallerSide {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let name = name.clone();
        self.ask(|inner| async move { inner.inspect(&name).await })
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        let (pattern, after) = (pattern.to_owned(), after.map(str::to_owned));
        self.ask(|inner| async move { inner.list(&pattern, after.as_deref()).await })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        let (name, seen) = (name.clone(), seen.cloned());
        self.ask(|inner| async move { inner.force_release(&name, seen.as_ref()).await })
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        let (client, info) = (client.clone(), info.cloned());
        self.ask(|inner| async move { inner.announce(&client, info.as_ref()).await })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.ask(|inner| async move { inner.diagnose().await })
    }
}

impl TokenCounter for CallerSide {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        let name = name.clone();
        self.ask(move |inner| async move {
            match inner.extensions().token_counter {
                Some(counter) => counter.raise(&name, newest).await,
                None => Err(unsupported(LockKind::Fenced)),
            }
        })
    }
}

impl PermitCounter for CallerSide {
    fn queues(&self) -> bool {
        let counter = self.inner.extensions().permit_counter;
        counter.is_some_and(PermitCounter::queues)
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        let name = name.clone();
        self.ask(move |inner| async move {
            match inner.extensions().permit_counter {
                Some(counter) => counter.change(&name, change).await,
                None => Err(unsupported(LockKind::Permits(1))),
            }
        })
    }
}

impl Marks for CallerSide {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        let name = name.clone();
        self.ask(|inner| async move { inner.extensions().need_marks()?.now(&name).await })
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        let (name, slot) = (name.clone(), slot.to_owned());
        self.ask(|inner| async move { inner.extensions().need_marks()?.read(&name, &slot).await })
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        let MarkChange { keep, wish, .. } = change;
        let (name, slot, after) = (
            name.clone(),
            change.slot.to_owned(),
            change.after.to_owned(),
        );
        let before = change.before.map(str::to_owned);
        self.ask(move |inner| async move {
            let change = MarkChange {
                slot: &slot,
                before: before.as_deref(),
                after: &after,
                keep,
                wish,
            };
            let marks = inner.extensions().need_marks()?;
            marks.replace(&name, change).await
        })
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        let name = name.clone();
        self.ask(move |inner| async move {
            let marks = inner.extensions().need_marks()?;
            marks.history(&name, limit).await
        })
    }
}

impl fmt::Debug for CallerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::postgres::tests::once;
    use crate::store::{Clock, Env, Timers, memory};

    /// Which abilities a store shows.
    fn abilities(store: &dyn Backend) -> [bool; 10] {
        let Extensions {
            sequencers,
            sql_fence,
            token_counter,
            marks,
            permit_counter,
            counts,
            server_runs,
            releases,
            awaited,
            pollers,
        } = store.extensions();
        [
            sequencers.is_some(),
            sql_fence.is_some(),
            token_counter.is_some(),
            marks.is_some(),
            permit_counter.is_some(),
            counts.is_some(),
            server_runs.is_some(),
            releases.is_some(),
            awaited.is_some(),
            pollers.is_some(),
        ]
    }

    #[test]
    fn no_ability_of_the_store_is_hidden_from_callers() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let limit = Duration::from_secs(30);
        let env = Env::of_limits(Timers::new(Clock::Boot), background, limit);
        // Some of its abilities are none of PostgreSQL.
        let store = memory::open("", memory::CAPABILITIES, None, &env).unwrap();
        let side = CallerSide::new(Arc::clone(&store.front), &env.background);
        let shown = abilities(&side);
        assert_eq!(shown, abilities(&*store.front));
        assert!(shown.iter().filter(|it| **it).count() > 4, "{shown:?}");
    }
    /// Otherwise a client that closes would take a lock for free that nobody releases.
    #[tokio::test]
    async fn a_request_of_a_client_that_is_closing_may_have_been_sent() {
        let (background, stop) = Background::start(Clock::Boot).unwrap();
        let limit = Duration::from_secs(30);
        let env = Env::of_limits(Timers::new(Clock::Boot), background.clone(), limit);
        let store = memory::open("", memory::CAPABILITIES, None, &env).unwrap();
        let side = CallerSide::new(Arc::clone(&store.front), &background);
        let ask = once(LockKind::Mutex);
        side.attempt(&ask).await.outcome.unwrap();
        drop(stop);
        while background.run(std::future::ready(())).await.is_some() {}
        let errors = [
            side.attempt(&ask).await.outcome.map(drop).unwrap_err(),
            side.release(&ask.ticket).await.map(drop).unwrap_err(),
            side.renew(&[]).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(error.outcome_unknown(), "{error}");
            assert!(
                error.to_string().ends_with("the client is closing"),
                "{error}"
            );
        }
    }
}
