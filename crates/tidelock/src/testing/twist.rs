//! A store wrapper that changes the behavior of a store for a test: it adds a bug, removes wakes or counts requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::fence::SqlFence;
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    Attempt, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Incarnation, Name, Page,
    Released, ReleasesSeen, Renewal, Renewed, Store, Ticket,
};

/// The changed behavior. Each method gets the wrapped store; by default it forwards to that store.
pub trait Twist: fmt::Debug + Send + Sync + 'static {
    /// The capabilities that the wrapped store reports.
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        inner.capabilities()
    }

    /// See [`Backend::attempt`].
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, Result<Attempt>> {
        inner.attempt(ask)
    }

    /// See [`Backend::renew`].
    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        inner.renew(batch)
    }

    /// See [`Backend::release`].
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        inner.release(ticket)
    }

    /// See [`Backend::withdraw`].
    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        inner.withdraw(ticket)
    }
}

/// A store with a [`Twist`]. Methods that the twist does not cover go to the wrapped store.
#[derive(Debug)]
pub struct Twisted<T> {
    inner: Arc<dyn Backend>,
    twist: Arc<T>,
}

impl<T: Twist> Twisted<T> {
    /// Wraps both sides of a store with one twist.
    pub fn wrap(store: Store, twist: T) -> Store {
        let twist = Arc::new(twist);
        let wrap = |inner| -> Arc<dyn Backend> {
            let twist = Arc::clone(&twist);
            Arc::new(Self { inner, twist })
        };
        Store {
            front: wrap(store.front),
            back: wrap(store.back),
        }
    }
}

impl<T: Twist> Backend for Twisted<T> {
    fn capabilities(&self) -> Capabilities {
        self.twist.capabilities(&*self.inner)
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, Result<Attempt>> {
        self.twist.attempt(&*self.inner, ask)
    }

    fn in_doubt(&self, ticket: &Ticket) -> bool {
        self.inner.in_doubt(ticket)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.twist.renew(&*self.inner, batch)
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.twist.release(&*self.inner, ticket)
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.twist.withdraw(&*self.inner, ticket)
    }

    fn check<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        self.inner.check(name, generation)
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
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.announce(client, info, ttl)
    }

    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        self.inner.retract(client)
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.inner.examine()
    }

    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        self.inner.incarnation()
    }

    fn pause(&self, name: &Name) -> Option<Duration> {
        self.inner.pause(name)
    }

    fn releases_seen(&self, name: &Name) -> Option<ReleasesSeen> {
        self.inner.releases_seen(name)
    }

    fn plain(&self) -> Option<Arc<dyn Backend>> {
        let inner = self.inner.plain()?;
        let twist = Arc::clone(&self.twist);
        Some(Arc::new(Self { inner, twist }))
    }

    fn sql_fence(&self, name: &Name, token: FencingToken) -> Option<SqlFence> {
        self.inner.sql_fence(name, token)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
