//! The state that all operations of an open store share, with its current session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::session::life::Session;
use crate::store::{Background, BootInstant, OwnerId, Timers};

/// How long a withdrawn owner is remembered. Longer than any of its requests can be in flight within this process.
const WITHDRAWN_TTL: Duration = Duration::from_secs(300);

/// The state of an open store.
pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    /// How long the server keeps a silent session: the client's lease, or less if that is [too long](super::probe::span).
    pub(crate) span: Duration,
    pub(crate) limit: Duration,
    /// The current session. Replaced after it has ended.
    pub(crate) session: Mutex<Option<Arc<Session>>>,
    /// Set before the close takes the session.
    pub(crate) closed: AtomicBool,
    /// Held while a session opens. Other requests wait for the result instead of opening sessions of their own.
    pub(crate) opening: tokio::sync::Mutex<()>,
    /// Withdrawn owners, and when they were withdrawn. Their late requests take no effect.
    pub(crate) withdrawn: Mutex<HashMap<OwnerId, BootInstant>>,
    /// Wakes the background task when something new may be due earlier.
    pub(crate) notify: Arc<Notify>,
}

impl Shared {
    pub(crate) fn deadline(&self) -> BootInstant {
        self.timers.now() + self.limit
    }

    /// Runs the work on the steward's thread, to its end even if the caller leaves. Otherwise a request could change a
    /// lock without an update of its slot.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let done = self.background.run(work).await;
        done.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::OutcomeUnknown).because("the client is closing"))
        })
    }

    pub(crate) fn slot(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock()
    }

    /// The current session. If it has ended, it is dropped, which closes its connection.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|session| session.is_over()) {
            *slot = None;
        }
        slot.clone()
    }

    /// The current session, or a new one opened before the deadline.
    pub(crate) async fn session(&self, deadline: BootInstant) -> Result<Arc<Session>> {
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let open = async {
            let _turn = self.opening.lock().await;
            // Another request may have opened one while this one waited.
            if let Some(session) = self.current() {
                return Ok(session);
            }
            let session = Session::open(&self.connection, self.span).await?;
            *self.slot() = Some(Arc::clone(&session));
            self.notify.notify_one();
            Ok(session)
        };
        let opened = self.timers.until(deadline, Box::pin(open)).await;
        opened
            .unwrap_or_else(|| {
                let late = format!("{}: no connection in time", self.connection);
                Err(RequestError::Unsent(late))
            })
            .map_err(RequestError::error)
    }

    pub(crate) fn withdraw(&self, owner: &OwnerId) {
        let now = self.timers.now();
        let mut all = self.withdrawn.lock();
        // We remove old entries only when the map would grow: the cost per insert stays constant on average.
        if all.len() == all.capacity() {
            all.retain(|_, since| now.since(*since) < WITHDRAWN_TTL);
        }
        all.insert(owner.clone(), now);
    }

    pub(crate) fn is_withdrawn(&self, owner: &OwnerId) -> bool {
        let all = self.withdrawn.lock();
        all.contains_key(owner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.notify.notify_one(); // wakes the background task, which then ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::session::tests::without_session;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::skip;
    use crate::types::OwnerMint;

    #[tokio::test]
    async fn a_withdrawn_owner_is_remembered_while_its_requests_may_arrive() {
        let server = ScriptedDatabase::start().await;
        let (shared, mint) = (without_session(server.connection()), OwnerMint::new());
        let early: Vec<OwnerId> = (0..100).map(|_| mint.fresh()).collect();
        assert!(!shared.is_withdrawn(&early[0]));
        for owner in &early {
            shared.withdraw(owner);
        }
        skip(WITHDRAWN_TTL / 2).await;
        let late: Vec<OwnerId> = (0..1000).map(|_| mint.fresh()).collect();
        for owner in &late {
            shared.withdraw(owner);
        }
        let is_known = |owner: &OwnerId| shared.is_withdrawn(owner);
        assert!(early.iter().chain(&late).all(is_known));
        // Those that nobody needs any more are forgotten when the list would grow.
        skip(WITHDRAWN_TTL / 2).await;
        let last: Vec<OwnerId> = (0..2000).map(|_| mint.fresh()).collect();
        for owner in &last {
            shared.withdraw(owner);
        }
        assert!(!early.iter().any(is_known));
        assert!(late.iter().chain(&last).all(is_known));
    }

    #[tokio::test]
    async fn a_store_that_ends_wakes_its_background_task() {
        let server = ScriptedDatabase::start().await;
        let shared = without_session(server.connection());
        assert!(shared.current().is_none());
        let notify = Arc::clone(&shared.notify);
        drop(shared);
        notify.notified().await;
    }
}
