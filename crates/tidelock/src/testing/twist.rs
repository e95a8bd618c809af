//! A store wrapper that changes the behavior of a store for a test: it adds a bug, removes wakes or counts requests.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Counts, Extensions,
    HearReleases, Marks, Name, Operate, Page, PermitCounter, Pollers, Released, Renewal, Renewed,
    ServerRuns, Store, Ticket, VerifySequencers,
};

/// The changed behavior. Each method gets the wrapped store; by default it forwards to that store.
pub trait Twist: fmt::Debug + Send + Sync + 'static {
    /// The capabilities that the wrapped store reports.
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        inner.capabilities()
    }

    /// See [`Extensions::marks`].
    fn marks<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        inner.extensions().marks
    }

    /// See [`Extensions::counts`].
    fn counts<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn Counts> {
        inner.extensions().counts
    }

    /// See [`Extensions::permit_counter`].
    fn permit_counter<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn PermitCounter> {
        inner.extensions().permit_counter
    }

    /// See [`Extensions::sequencers`].
    fn sequencers<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn VerifySequencers> {
        inner.extensions().sequencers
    }

    /// See [`Extensions::pollers`].
    fn pollers<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn Pollers> {
        inner.extensions().pollers
    }

    /// See [`Extensions::releases`].
    fn releases<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn HearReleases> {
        inner.extensions().releases
    }

    /// See [`Extensions::server_runs`].
    fn server_runs<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn ServerRuns> {
        inner.extensions().server_runs
    }

    /// See [`Backend::attempt`].
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
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

    /// See [`Backend::lane`].
    fn lane(&self, inner: &dyn Backend, name: &Name) -> u64 {
        inner.lane(name)
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

    /// See [`Operate::inspect`].
    fn inspect<'a>(
        &'a self,
        inner: &'a dyn Backend,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Snapshot>> {
        inner.inspect(name)
    }

    /// See [`Backend::close`].
    fn close<'a>(&'a self, inner: &'a dyn Backend) -> BoxFuture<'a, ()> {
        inner.close()
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
        store.map(&|inner| {
            let twist = Arc::clone(&twist);
            Arc::new(Self { inner, twist })
        })
    }
}

impl<T: Twist> Backend for Twisted<T> {
    fn capabilities(&self) -> Capabilities {
        self.twist.capabilities(&*self.inner)
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            marks: self.twist.marks(&*self.inner),
            counts: self.twist.counts(&*self.inner),
            permit_counter: self.twist.permit_counter(&*self.inner),
            releases: self.twist.releases(&*self.inner),
            pollers: self.twist.pollers(&*self.inner),
            server_runs: self.twist.server_runs(&*self.inner),
            sequencers: self.twist.sequencers(&*self.inner),
            ..self.inner.extensions()
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        self.twist.attempt(&*self.inner, ask)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.twist.renew(&*self.inner, batch)
    }

    fn lane(&self, name: &Name) -> u64 {
        self.twist.lane(&*self.inner, name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.twist.release(&*self.inner, ticket)
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.twist.withdraw(&*self.inner, ticket)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.twist.close(&*self.inner)
    }
}

impl<T: Twist> Operate for Twisted<T> {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.twist.inspect(&*self.inner, name)
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        self.inner.list(pattern, after)
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.inner.force_release(name, seen)
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
