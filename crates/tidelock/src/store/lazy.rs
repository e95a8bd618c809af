//! A store that is opened by its first request.
//!
//! 1. Its abilities follow from the URL, so they are known before anything is sent.
//! 2. Callers that need the store at the same time share one attempt to open it. Each waits for it at most a little
//!    longer than a response timeout. A caller that leaves does not cancel the attempt, and the store of a slow attempt
//!    is there for the next caller.
//! 3. A failed attempt has sent no request of a lock. So its error is never an unknown outcome, and the acquire loop
//!    repeats it as it does during any outage.
//! 4. A ticket that ends while no attempt waits for the store has left nothing. While one waits, a withdrawal fails and
//!    the engine repeats it: a set of stores withdraws tickets whose attempts it has left behind, and such an attempt
//!    would be granted after the withdrawal.
//! 5. Nothing but a request of a caller opens the store: neither the steward nor a [`close`](Backend::close).

mod counts;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future;

use crate::engine::runtime::event::Flag;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::connect_once::{ConnectOnce, ConnectionRuntime, MayEnd};
use crate::store::errors::unsent;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Env, Extensions,
    LockKind, MarkChange, Marks, Name, Operate, Page, PermitChange, PermitCounter, Released,
    Renewal, Renewed, Store, Ticket, Timers, TokenCounter, VerifySequencers, ready,
};
use crate::types::FencingToken;

/// Opens the store. Called again after a failure.
pub(crate) type OpenStore = Box<dyn Fn() -> BoxFuture<'static, Result<Store>> + Send + Sync>;

/// What a URL tells of its store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOutline {
    /// The name of the store in messages.
    pub(crate) label: &'static str,
    pub(crate) can: Capabilities,
    /// What its plain locks can do, if it has such locks.
    pub(crate) plain: Option<Capabilities>,
}

/// The place of the store, and the attempt to open it.
pub(crate) struct LazyStore {
    open: OpenStore,
    attempt: ConnectOnce<Store>,
    /// Set once.
    opened: OnceLock<Store>,
    /// The store is open, or will never be.
    settled: Arc<Flag>,
    /// The attempts that wait for the store.
    waiting: InFlightCounter,
    closed: AtomicBool,
    label: &'static str,
    timers: Timers,
    limit: Duration,
}

/// An open store reconnects by itself.
impl MayEnd for Store {
    fn has_ended(&self) -> bool {
        false
    }
}

impl LazyStore {
    /// The store, and the flag that is set when it is open or its last handle is gone.
    pub(crate) fn of(outline: &StoreOutline, open: OpenStore, env: &Env) -> (Store, Arc<Flag>) {
        let settled = Arc::<Flag>::default();
        let shared = Arc::new(Self {
            open,
            attempt: ConnectOnce::new(),
            opened: OnceLock::new(),
            settled: Arc::clone(&settled),
            waiting: InFlightCounter::default(),
            closed: AtomicBool::new(false),
            label: outline.label,
            timers: env.timers.clone(),
            // Longer than the timeout of the connect itself, because the store's own error says more. At most one and a
            // half response timeouts: a longer round does not count as an outage.
            limit: env.response_timeout + env.response_timeout / 4,
        });
        let side = |can, is_front, is_plain| {
            let shared = Arc::clone(&shared);
            Arc::new(LazySide {
                shared,
                can,
                is_front,
                is_plain,
            }) as Arc<dyn Backend>
        };
        let both =
            |can, is_plain| Store::new(side(can, true, is_plain), side(can, false, is_plain));
        let store = Store {
            plain: outline.plain.map(|can| Box::new(both(can, true))),
            ..both(outline.can, false)
        };
        (store, settled)
    }

    async fn opened(self: &Arc<Self>) -> Result<&Store> {
        if let Some(store) = self.opened.get() {
            return Ok(store);
        }
        self.refuse_if_closed()?;
        let deadline = self.timers.now() + self.limit;
        let (place, opening) = (Arc::downgrade(self), (self.open)());
        let opening = || async move {
            let store = opening.await?;
            // We keep the store before the attempt reaches its callers: all of them may have given it up.
            match place.upgrade() {
                Some(place) => place.keep(store).await,
                None => Err(Error::new(ErrorKind::Closed)),
            }
        };
        let opened = self
            .attempt
            .connect(
                &self.timers,
                deadline,
                &ConnectionRuntime::Caller,
                &self.label,
                opening,
            )
            .await;
        // No request of a lock was sent, whatever became of the requests that open the store.
        let opened = opened.map_err(Error::without_effect)?;
        Ok(self.opened.get_or_init(|| Store::clone(&opened)))
    }

    /// Keeps the store for all later requests. Of two attempts the first to end wins; the other one was given up.
    async fn keep(&self, store: Store) -> Result<Store> {
        let kept = self.opened.get_or_init(|| store).clone();
        self.settled.set();
        // A close sets the flag before it looks for the store. So at least one of the two closes it.
        if self.refuse_if_closed().is_err() {
            future::join(kept.front.close(), kept.back.close()).await;
        }
        self.refuse_if_closed()?;
        Ok(kept)
    }

    fn refuse_if_closed(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed));
        }
        Ok(())
    }
}

impl Drop for LazyStore {
    fn drop(&mut self) {
        self.settled.set();
    }
}

/// One side of a store that may not be open yet.
struct LazySide {
    shared: Arc<LazyStore>,
    can: Capabilities,
    is_front: bool,
    is_plain: bool,
}

impl LazySide {
    /// The same side of the open store.
    fn of<'a>(&self, store: &'a Store) -> &'a dyn Backend {
        let plain = store.plain.as_deref().filter(|_| self.is_plain);
        let store = plain.unwrap_or(store);
        if self.is_front {
            &*store.front
        } else {
            &*store.back
        }
    }

    /// The backend, if the store is open.
    fn inner(&self) -> Option<&dyn Backend> {
        self.shared.opened.get().map(|store| self.of(store))
    }

    /// Opens the store if necessary, and sends a request.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        request: impl FnOnce(&'a dyn Backend) -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        match self.inner() {
            Some(inner) => request(inner),
            None => Box::pin(async move { request(self.of(self.shared.opened().await?)).await }),
        }
    }
}

impl Backend for LazySide {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn extensions(&self) -> Extensions<'_> {
        // A guard, a server run and a noticed release exist only after an answer of the open store.
        self.inner().map_or(
            Extensions {
                sequencers: self.can.sequencers.then_some(self),
                token_counter: self.can.raises_tokens.then_some(self),
                marks: self.can.marks.then_some(self),
                permit_counter: self.can.has(LockKind::Permits(1)).then_some(self),
                counts: self.can.counts.then_some(self),
                ..Extensions::NONE
            },
            Backend::extensions,
        )
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        if let Some(inner) = self.inner() {
            return inner.attempt(ask);
        }
        // Counted from here on, and not from the first poll: a withdrawal may come before that.
        let waiting = InFlight::new(&self.shared.waiting);
        Box::pin(async move {
            let _waiting = waiting;
            match self.shared.opened().await {
                Ok(_) if ask.liveness.has_left() => unsent("the caller has left").into(),
                Ok(store) => self.of(store).attempt(ask).await,
                Err(error) => error.into(),
            }
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.ask(|inner| inner.renew(batch))
    }

    fn lane(&self, name: &Name) -> u64 {
        // Before the store is open, all requests fail together, with the connect.
        self.inner().map_or(0, |inner| inner.lane(name))
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.end(|inner| inner.release(ticket))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.end(|inner| inner.withdraw(ticket))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.attempt.close();
        match self.inner() {
            Some(inner) => inner.close(),
            None => ready(()),
        }
    }
}

impl LazySide {
    /// Ends a ticket.
    fn end<'a>(
        &'a self,
        request: impl FnOnce(&'a dyn Backend) -> BoxFuture<'a, Result<Released>>,
    ) -> BoxFuture<'a, Result<Released>> {
        match self.inner() {
            Some(inner) => request(inner),
            None if self.shared.waiting.is_zero() => ready(Ok(Released::NotHeld)),
            None => ready(Err(unsent("the client is connecting to the store"))),
        }
    }
}

impl VerifySequencers for LazySide {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        self.ask(move |inner| match inner.extensions().sequencers {
            Some(sequencers) => sequencers.verify(name, generation),
            None => ready(Err(Error::new(ErrorKind::Unsupported))),
        })
    }
}

impl TokenCounter for LazySide {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        self.ask(move |inner| match inner.extensions().token_counter {
            Some(counter) => counter.raise(name, newest),
            None => ready(Err(Error::new(ErrorKind::Unsupported))),
        })
    }
}

impl PermitCounter for LazySide {
    fn queues(&self) -> bool {
        // A ticket has a position only after an answer of the open store.
        let counter = self
            .inner()
            .and_then(|inner| inner.extensions().permit_counter);
        counter.is_some_and(PermitCounter::queues)
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        self.ask(move |inner| match inner.extensions().permit_counter {
            Some(counter) => counter.change(name, change),
            None => ready(Err(Error::new(ErrorKind::Unsupported))),
        })
    }
}

impl Marks for LazySide {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        self.ask_marks(|marks| marks.now(name))
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        self.ask_marks(|marks| marks.read(name, slot))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.ask_marks(move |marks| marks.replace(name, change))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        self.ask_marks(move |marks| marks.history(name, limit))
    }
}

impl LazySide {
    fn ask_marks<'a, T: Send + 'a>(
        &'a self,
        request: impl FnOnce(&'a dyn Marks) -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        self.ask(|inner| match inner.extensions().need_marks() {
            Ok(marks) => request(marks),
            Err(error) => ready(Err(error)),
        })
    }
}

impl Operate for LazySide {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.ask(|inner| inner.inspect(name))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        self.ask(move |inner| inner.list(pattern, after))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.ask(move |inner| inner.force_release(name, seen))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        match self.inner() {
            Some(inner) => inner.announce(client, info),
            None => ready(Err(unsent("the store is not open yet"))),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.ask(|inner| inner.diagnose())
    }
}

impl fmt::Debug for LazySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner() {
            Some(inner) => inner.fmt(f),
            None => write!(f, "{} (not connected yet)", self.shared.label),
        }
    }
}

#[cfg(test)]
mod tests;
