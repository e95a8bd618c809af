//! `postgres://…?locks=session`: the server's own advisory locks, kept by one connection of the client.
//!
//! The server knows of no lease: it keeps a lock until its session ends. So it is this process that ends a lease
//! ([`keep`]), and where it cannot, because it is frozen or cut off, the server ends the session, which was told at its
//! beginning how long a silence may be ([`life`]). A session may take a lock twice, and then has it twice: who has which
//! within this process is in [`slots`], and nobody else of it is asked for. Two statements of one session are run in the
//! order in which they were sent; what became of one that was not answered is settled by giving the lock back.

mod keep;
mod life;
mod look;
mod probe;
mod slots;
mod verbs;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use self::life::Session;
use super::link::Link;
use super::trouble::Trouble;
use crate::backend::{
    Ask, Attempt, Backend, Background, BoxFuture, Capabilities, ClientId, Env, Moment, Name,
    OwnerId, Page, Released, Renewal, Renewed, Store, Ticket, Timers,
};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};

/// What this kind of lock can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    wakes: false,
    tokens: false,
    queues: false,
    shared: true,
    durable: false,
    delays: false,
    sequencers: false,
    read_write: false,
};

/// How long a withdrawn owner is remembered: longer than any request of it can be on its way within this process.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Opens the store. Fails now if the session cannot be had, or does not stay ours.
pub(super) async fn open(link: Link, env: &Env) -> Result<Store> {
    let shared = Arc::new(Shared {
        link,
        timers: env.timers.clone(),
        background: env.background.clone(),
        span: env.lease,
        limit: env.response_timeout,
        session: Mutex::default(),
        opening: tokio::sync::Mutex::default(),
        withdrawn: Mutex::default(),
        bell: Arc::default(),
    });
    let first = Arc::clone(&shared);
    let work = async move { first.session(first.deadline()).await.map(drop) };
    shared.run(work).await?;
    env.background.spawn(keep::keep(Arc::downgrade(&shared)));
    // One face: a lock can be given back only in the session that took it, and no caller can block that.
    Ok(Store::single(Arc::new(Sessions(shared))))
}

/// What an open store has.
struct Shared {
    link: Link,
    timers: Timers,
    background: Background,
    /// How long the server keeps a silent session.
    span: Duration,
    limit: Duration,
    session: Mutex<Option<Arc<Session>>>,
    /// Whoever opens a session has it; the others wait for what comes of it.
    opening: tokio::sync::Mutex<()>,
    /// Whose late requests take no effect, and since when.
    withdrawn: Mutex<HashMap<OwnerId, Moment>>,
    /// Rung when there is something new to be looked after.
    bell: Arc<Notify>,
}

impl Shared {
    fn deadline(&self) -> Moment {
        self.timers.now() + self.limit
    }

    /// Where the connection is, and to its end also when the caller leaves: what is asked there changes what is held.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let done = self.background.run(work).await;
        done.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::OutcomeUnknown).because("the client is going"))
        })
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, if there is one. One that is over is let go, and with it its connection, if that still stands.
    fn current(&self) -> Option<Arc<Session>> {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|session| session.is_over()) {
            *slot = None;
        }
        slot.clone()
    }

    /// The session, opened if need be before the deadline.
    async fn session(&self, deadline: Moment) -> Result<Arc<Session>> {
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let open = async {
            let _turn = self.opening.lock().await;
            if let Some(session) = self.current() {
                return Ok(session);
            }
            let session = Session::open(&self.link, self.span).await?;
            *self.slot() = Some(Arc::clone(&session));
            self.bell.notify_one();
            Ok(session)
        };
        let opened = self.timers.until(deadline, Box::pin(open)).await;
        opened
            .unwrap_or_else(|| {
                let late = format!("{}: no connection in time", self.link);
                Err(Trouble::Unsent(late))
            })
            .map_err(Trouble::error)
    }

    fn withdraw(&self, owner: &OwnerId) {
        let now = self.timers.now();
        let mut all = self
            .withdrawn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|_, since| now.since(*since) < REMEMBERED);
        }
        all.insert(owner.clone(), now);
    }

    fn is_withdrawn(&self, owner: &OwnerId) -> bool {
        let all = self
            .withdrawn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.contains_key(owner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.bell.notify_one(); // the keeper sees that it has nothing to keep
    }
}

/// The one face of the store.
struct Sessions(Arc<Shared>);

impl Backend for Sessions {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        let (shared, ask) = (Arc::clone(&self.0), ask.clone());
        Box::pin(
            self.0
                .run(async move { verbs::attempt(&shared, &ask).await }),
        )
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(verbs::renew(&self.0, batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let (shared, ticket) = (Arc::clone(&self.0), ticket.clone());
        Box::pin(
            self.0
                .run(async move { verbs::end(&shared, &ticket).await }),
        )
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.0.withdraw(&ticket.owner);
        self.release(ticket)
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        let (shared, name) = (Arc::clone(&self.0), name.clone());
        Box::pin(
            self.0
                .run(async move { verbs::force(&shared, &name).await }),
        )
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let (shared, name) = (Arc::clone(&self.0), name.clone());
        Box::pin(
            self.0
                .run(async move { look::inspect(&shared, &name).await }),
        )
    }

    fn list<'a>(&'a self, pattern: &'a str, _cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(std::future::ready(Ok(look::list(&self.0, pattern))))
    }

    /// The server shows its sessions by itself.
    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        _info: &'a ClientInfo,
        _keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn retract<'a>(&'a self, _client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let shared = Arc::clone(&self.0);
        Box::pin(self.0.run(async move { look::examine(&shared).await }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if let Some(session) = self.0.slot().take() {
            session.leave();
        }
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.0.link).finish()
    }
}
