//! A store wrapper that injects network faults: delays, lost requests, lost replies and late requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    AttemptReply, AttemptRequest, Backend, Background, BoxFuture, Capabilities, ClientId,
    CountChange, CountChanged, CountKind, Counts, Env, Extensions, MarkChange, Marks, Name,
    Operate, OwnerId, Page, Released, Renewal, Renewed, Store, Ticket, Timers, TokenCounter,
    VerifySequencers, Wait,
};
use crate::test_util::Plug;
use crate::testing::faults::{Fate, Faults, Matter, about, about_attempt};
use crate::types::FencingToken;

/// A store with injected faults. `inspect` and `list` are never lost.
#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    faults: Faults,
    timers: Timers,
    background: Background,
}

/// Counts a late request until it has arrived, or its task has ended.
struct OnItsWay(Arc<watch::Sender<usize>>);

impl OnItsWay {
    fn new(all: &Arc<watch::Sender<usize>>) -> Self {
        all.send_modify(|count| *count += 1);
        Self(Arc::clone(all))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Chaos {
    /// Wraps both sides of a store with faults, behind a plug.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "the two faces share what is given"
    )]
    pub fn wrap(store: Store, env: &Env, faults: Faults, plug: Plug) -> Store {
        let wrapped = store.map(&|inner| {
            Arc::new(Self {
                inner,
                faults: faults.clone(),
                timers: env.timers.clone(),
                background: env.background.clone(),
            })
        });
        plug.wrap(wrapped)
    }

    /// Runs one request with the fault that was drawn for it. `ask` may run later, and on another task than its
    /// caller's.
    fn request<T: Send + 'static>(
        &self,
        about: Vec<Matter>,
        ask: impl FnOnce(Arc<dyn Backend>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let fate = self.faults.roll(&about);
            let inner = Arc::clone(&self.inner);
            match fate {
                Fate::Served(before, after) => {
                    self.pause(before).await;
                    let answer = self.slowly(ask(inner)).await;
                    self.pause(after).await;
                    answer
                }
                Fate::Refused(before) => {
                    self.pause(before).await;
                    Err(Error::new(ErrorKind::Unavailable).because("chaos: it never arrived"))
                }
                Fate::Muted(before, after) => {
                    self.pause(before).await;
                    drop(ask(inner).await);
                    self.pause(after).await;
                    Err(Error::new(ErrorKind::OutcomeUnknown).because("chaos: the reply was lost"))
                }
                Fate::Late(before, later) => {
                    self.pause(before).await;
                    let delay = self.timers.after(later);
                    let on_its_way = OnItsWay::new(&self.faults.on_their_way);
                    // The late request runs in the background, because the caller's task may end first.
                    self.background.spawn(async move {
                        delay.await;
                        drop(ask(inner).await);
                        drop(on_its_way);
                    });
                    Err(Error::new(ErrorKind::OutcomeUnknown).because("chaos: it arrives later"))
                }
            }
        })
    }

    /// Yields a few times before and after the request.
    async fn slowly<T>(&self, request: impl Future<Output = T>) -> T {
        for _ in 0..self.faults.pends {
            tokio::task::yield_now().await;
        }
        let answer = request.await;
        for _ in 0..self.faults.pends {
            tokio::task::yield_now().await;
        }
        answer
    }

    async fn pause(&self, time: Duration) {
        if !time.is_zero() {
            self.timers.after(time).await;
        }
    }
}

impl Backend for Chaos {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn extensions(&self) -> Extensions<'_> {
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
            sequencers: sequencers.map(|_| self as &dyn VerifySequencers),
            sql_fence,
            token_counter: token_counter.map(|_| self as &dyn TokenCounter),
            marks: marks.map(|_| self as &dyn Marks),
            permit_counter,
            counts: counts.map(|_| self as &dyn Counts),
            server_runs,
            releases,
            awaited,
            pollers,
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let ask = ask.clone();
            // The store's own client knows of a doubt even if the network loses the reply.
            let doubt = Arc::new(AtomicBool::new(false));
            let noted = Arc::clone(&doubt);
            let outcome = self.request(about_attempt(&ask.ticket), move |inner| {
                Box::pin(async move {
                    let reply = inner.attempt(&ask).await;
                    noted.store(reply.in_doubt, Ordering::SeqCst);
                    reply.outcome
                })
            });
            AttemptReply {
                outcome: outcome.await,
                in_doubt: doubt.load(Ordering::SeqCst),
            }
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.to_vec();
        let matters = batch.iter().map(|one| about(&one.ticket)).collect();
        self.request(matters, move |inner| {
            Box::pin(async move { inner.renew(&batch).await })
        })
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.request(vec![about(&ticket)], move |inner| {
            Box::pin(async move { inner.release(&ticket).await })
        })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.request(vec![about(&ticket)], move |inner| {
            Box::pin(async move { inner.withdraw(&ticket).await })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.slowly(self.inner.close()))
    }
}

impl TokenCounter for Chaos {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        let name = name.clone();
        let matter = (String::new(), name.to_string());
        self.request(vec![matter], move |inner| {
            Box::pin(async move {
                match inner.extensions().token_counter {
                    Some(counter) => counter.raise(&name, newest).await,
                    None => Err(Error::new(ErrorKind::Unsupported)),
                }
            })
        })
    }
}

impl Marks for Chaos {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        let name = name.clone();
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move { inner.extensions().need_marks()?.now(&name).await })
        })
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        let (name, slot) = (name.clone(), slot.to_owned());
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move { inner.extensions().need_marks()?.read(&name, &slot).await })
        })
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        let (name, slot) = (name.clone(), change.slot.to_owned());
        let (before, after) = (change.before.map(str::to_owned), change.after.to_owned());
        let (keep, wish) = (change.keep, change.wish);
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move {
                let marks = inner.extensions().need_marks()?;
                let change = MarkChange {
                    slot: &slot,
                    before: before.as_deref(),
                    after: &after,
                    keep,
                    wish,
                };
                marks.replace(&name, change).await
            })
        })
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        let name = name.clone();
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move { inner.extensions().need_marks()?.history(&name, limit).await })
        })
    }
}

impl Counts for Chaos {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        let (name, id, settled) = (name.clone(), id.clone(), settled.to_vec());
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move {
                let counts = inner.extensions().need_counts()?;
                counts.change(&name, change, &id, &settled).await
            })
        })
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        let name = name.clone();
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move { inner.extensions().need_counts()?.count(&name, kind).await })
        })
    }

    fn arm<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        let name = name.clone();
        self.request(vec![(String::new(), name.to_string())], move |inner| {
            Box::pin(async move { inner.extensions().need_counts()?.arm(&name, kind).await })
        })
    }
}

impl VerifySequencers for Chaos {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let name = name.clone();
        let matter = (String::new(), name.as_str().to_owned());
        self.request(vec![matter], move |inner| {
            Box::pin(async move {
                match inner.extensions().sequencers {
                    Some(sequencers) => sequencers.verify(&name, generation).await,
                    None => Err(Error::new(ErrorKind::Unsupported)),
                }
            })
        })
    }
}

impl Operate for Chaos {
    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // An attempt of the holder that is still on its way, and the holder is often another client, would give the lock back
            // to it. It would not learn of any loss then.
            let mut on_their_way = self.faults.on_their_way.subscribe();
            // The sender lives as long as `self`.
            drop(on_their_way.wait_for(|count| *count == 0).await);
            self.slowly(self.inner.force_release(name, seen)).await
        })
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(self.slowly(self.inner.inspect(name)))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.slowly(self.inner.list(pattern, after)))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.announce(client, info)
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.inner.diagnose()
    }
}
