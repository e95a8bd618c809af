//! `postgres://…?locks=session`: the server's own advisory locks, held by one session per client.
//!
//! The server knows no leases: it keeps a lock until its session ends. So this process ends the leases ([`renew`]). If
//! the process is frozen or cut off, the server terminates the session after the silence that we configured when we
//! opened it ([`life`], [`probe`]).
//!
//! A session that takes an advisory lock twice holds it twice. So [`slots`] records which ticket of this process has
//! which lock, and a second ticket is refused without a request to the server. The server runs the statements of one
//! session in the order we sent them. If a statement gets no answer or fails there, we release its lock: after that its
//! outcome no longer matters.

mod inspect;
mod life;
mod probe;
mod renew;
mod shared;
mod slots;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::shared::Shared;
use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::postgres::connection::Connection;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Env, Extensions,
    LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store, Ticket, certain, ready,
};

/// What this kind of lock can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[LockKind::Mutex],
    wakes: false,
    queues: false,
    shared: true,
    durable: false,
    delays: false,
    sequencers: false,
    raises_tokens: false,
    marks: false,
    counts: false,
};

/// Opens the store and its first session. Fails if the session cannot be opened or a pooler shares it.
pub(crate) async fn open(connection: Connection, env: &Env) -> Result<Store> {
    let shared = Arc::new(Shared {
        connection,
        timers: env.timers.clone(),
        background: env.background.clone(),
        span: probe::span(env.lease),
        limit: env.response_timeout,
        session: Mutex::default(),
        closed: AtomicBool::new(false),
        opening: tokio::sync::Mutex::default(),
        withdrawn: Mutex::default(),
        notify: Arc::default(),
    });
    let first = Arc::clone(&shared);
    let work = async move { first.session(first.deadline()).await.map(drop) };
    shared.run(work).await?;
    env.background.spawn(renew::run(Arc::downgrade(&shared)));
    // Callers and steward share one session: only the session that took a lock can release it. Callers cannot block
    // it, because every request runs on the steward's thread.
    Ok(Store::single(Arc::new(Sessions(shared))))
}

/// The store, shared by callers and steward.
struct Sessions(Arc<Shared>);

impl Backend for Sessions {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::NONE
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        let (shared, ask) = (Arc::clone(&self.0), ask.clone());
        certain(
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
        // We mark the owner before we release. Otherwise a late attempt between the two could take the lock.
        self.0.withdraw(&ticket.owner);
        self.release(ticket)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::SeqCst);
        if let Some(session) = self.0.slot().take() {
            session.leave();
        }
        ready(())
    }
}

impl Operate for Sessions {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let (shared, name) = (Arc::clone(&self.0), name.clone());
        Box::pin(
            self.0
                .run(async move { inspect::inspect(&shared, &name).await }),
        )
    }

    fn list<'a>(
        &'a self,
        pattern: &'a str,
        _after: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Page>> {
        Box::pin(std::future::ready(Ok(inspect::list(&self.0, pattern))))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        let (shared, name, seen) = (Arc::clone(&self.0), name.clone(), seen.cloned());
        Box::pin(
            self.0
                .run(async move { verbs::force(&shared, &name, seen.as_ref()).await }),
        )
    }

    /// Does nothing: the server lists its sessions itself.
    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        _info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        ready(Ok(()))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let shared = Arc::clone(&self.0);
        Box::pin(self.0.run(async move { inspect::examine(&shared).await }))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.0.connection).finish()
    }
}

#[cfg(test)]
mod tests;
