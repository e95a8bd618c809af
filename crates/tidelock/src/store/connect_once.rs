//! Connect once: tasks that need a connection at the same time share one attempt to open it.
//!
//! 1. The first caller without a live connection starts an attempt, in a task of its own. Callers that come meanwhile
//!    wait for the same attempt. A caller that leaves does not cancel it: the next caller uses its connection.
//! 2. A failure reaches all callers that wait. The next caller starts another attempt.
//! 3. A caller whose deadline passes gives the attempt up for those that come later: the runtime that it runs on may
//!    have shut down, or may not poll its tasks.
//! 4. Dropping the last handle ends the attempt. The timers stop together with the client, and without them nothing
//!    else would end it.
//!
//! ```text
//!   empty ──first caller──► connecting ──connected──► up ──lost, retired or closed──► empty
//!     ▲                         │
//!     └─ failed, given up, closed
//! ```

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use crate::engine::runtime::background;
use crate::engine::runtime::event::Flag;
use crate::engine::runtime::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::error::{Error, Result};
use crate::store::errors::unsent;
use crate::store::{Background, BootInstant, BoxFuture, Timers};

/// The runtime on which a connection runs.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionRuntime {
    /// The runtime of the caller that needs the connection. It saves a change of thread, and puts no load on the
    /// steward's thread.
    #[allow(dead_code, reason = "some stores use the steward's thread only")]
    Caller,
    /// The steward's thread.
    Background(Background),
}

impl ConnectionRuntime {
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        match self {
            Self::Caller => background::spawn_detached(work),
            Self::Background(background) => {
                background.spawn(work);
                Ok(())
            }
        }
    }
}

/// A connection that may have ended.
pub(crate) trait MayEnd {
    fn has_ended(&self) -> bool;
}

/// The place of one connection, and the attempt to open it.
pub(crate) struct ConnectOnce<C> {
    slot: Arc<RwLock<ConnectSlot<C>>>,
    /// What the last attempt that ended has failed with. A later one that is cut off says nothing of the reason.
    failed: Arc<Mutex<Option<String>>>,
    /// Set when this is dropped.
    dropped: Arc<Flag>,
}

enum ConnectSlot<C> {
    Empty,
    Connecting(SharedAttempt<C>),
    Up(Arc<C>),
}

/// An attempt in progress. Clones wait for the same one.
struct SharedAttempt<C> {
    /// Tells this attempt from a later one.
    id: Arc<()>,
    outcome: Shared<BoxFuture<'static, ConnectOutcome<C>>>,
}

/// `None`: the runtime that was connecting has shut down.
type ConnectOutcome<C> = Option<Result<Arc<C>, Arc<Error>>>;

impl<C> Clone for SharedAttempt<C> {
    fn clone(&self) -> Self {
        Self {
            id: Arc::clone(&self.id),
            outcome: self.outcome.clone(),
        }
    }
}

impl<C: MayEnd + Send + Sync + 'static> ConnectOnce<C> {
    pub(crate) fn new() -> Self {
        Self {
            slot: Arc::new(RwLock::new(ConnectSlot::Empty)),
            failed: Arc::default(),
            dropped: Arc::default(),
        }
    }

    /// The connection, if it is open.
    pub(crate) fn live(&self) -> Option<Arc<C>> {
        self.read().live()
    }

    /// Waits until the deadline for a connection that `connect` opens, or that is open by now. `connect` must end by
    /// itself. `address`: for the error.
    pub(crate) async fn connect<F>(
        &self,
        timers: &Timers,
        deadline: BootInstant,
        runtime: &ConnectionRuntime,
        address: &impl fmt::Display,
        connect: impl FnOnce() -> F,
    ) -> Result<Arc<C>>
    where
        F: Future<Output = Result<C>> + Send + 'static,
    {
        let attempt = match self.join(runtime, connect)? {
            JoinedConnect::Up(connection) => return Ok(connection),
            JoinedConnect::Connecting(attempt) => attempt,
        };
        match timers.until(deadline, attempt.outcome).await {
            Some(Some(Ok(connection))) => Ok(connection),
            Some(Some(Err(error))) => Err(told_again(&error)),
            Some(None) | None => {
                end(&self.slot, &attempt.id, ConnectSlot::Empty);
                Err(self.late(address))
            }
        }
    }

    fn late(&self, address: &impl fmt::Display) -> Error {
        let before = self.failed.lock().clone().unwrap_or_default();
        let why = if before.is_empty() {
            ""
        } else {
            "; the attempt before it failed: "
        };
        unsent(format_args!(
            "{address}: no connection in time{why}{before}"
        ))
    }

    /// Joins the attempt in progress, or starts one.
    fn join<F>(
        &self,
        runtime: &ConnectionRuntime,
        connect: impl FnOnce() -> F,
    ) -> Result<JoinedConnect<C>>
    where
        F: Future<Output = Result<C>> + Send + 'static,
    {
        let mut slot = self.write();
        if let ConnectSlot::Connecting(attempt) = &*slot {
            return Ok(JoinedConnect::Connecting(attempt.clone()));
        }
        // We check again under the write lock: another caller may have connected since `live`.
        if let Some(connection) = slot.live() {
            return Ok(JoinedConnect::Up(connection));
        }
        let id: Arc<()> = Arc::default();
        let (answer, answered) = oneshot::channel();
        let (own, place) = (Arc::clone(&id), Arc::downgrade(&self.slot));
        let (connecting, dropped) = (connect(), Arc::clone(&self.dropped));
        let failed = Arc::clone(&self.failed);
        runtime.spawn(async move {
            let result = tokio::select! {
                result = connecting => result.map(Arc::new).map_err(Arc::new),
                () = dropped.happened() => return,
            };
            let why = |error: &Arc<Error>| error.detail().unwrap_or_default().to_owned();
            *failed.lock() = result.as_ref().err().map(why);
            settle(&place, &own, &result);
            // An error means that no caller waits any more.
            let _ = answer.send(result);
        })?;
        let outcome: BoxFuture<'static, ConnectOutcome<C>> =
            Box::pin(async move { answered.await.ok() });
        let outcome = outcome.shared();
        let attempt = SharedAttempt { id, outcome };
        *slot = ConnectSlot::Connecting(attempt.clone());
        Ok(JoinedConnect::Connecting(attempt))
    }

    /// The next caller reconnects. Requests in flight keep this connection until they are done. False: it is not in
    /// use here any more.
    pub(crate) fn retire(&self, connection: &Arc<C>) -> bool {
        let mut slot = self.write();
        let current = matches!(&*slot, ConnectSlot::Up(up) if Arc::ptr_eq(up, connection));
        if current {
            *slot = ConnectSlot::Empty;
        }
        current
    }

    /// Lets the connection go. An attempt in progress still reaches its callers, and its connection ends with them.
    pub(crate) fn close(&self) {
        *self.write() = ConnectSlot::Empty;
    }

    fn read(&self) -> RwLockReadGuard<'_, ConnectSlot<C>> {
        self.slot.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, ConnectSlot<C>> {
        self.slot.write()
    }
}

enum JoinedConnect<C> {
    Up(Arc<C>),
    Connecting(SharedAttempt<C>),
}

impl<C: MayEnd> ConnectSlot<C> {
    fn live(&self) -> Option<Arc<C>> {
        match self {
            Self::Up(connection) if !connection.has_ended() => Some(Arc::clone(connection)),
            _ => None,
        }
    }
}

/// The same error, for one of several callers.
fn told_again(error: &Error) -> Error {
    let again = Error::new(error.kind());
    match error.detail() {
        Some(detail) => again.because(detail),
        None => again,
    }
}

fn settle<C>(
    slot: &Weak<RwLock<ConnectSlot<C>>>,
    id: &Arc<()>,
    result: &Result<Arc<C>, Arc<Error>>,
) {
    if let Some(slot) = slot.upgrade() {
        let new = match result {
            Ok(connection) => ConnectSlot::Up(Arc::clone(connection)),
            Err(_) => ConnectSlot::Empty,
        };
        end(&slot, id, new);
    }
}

/// Ends the attempt with this id, unless it was given up, or a close came before.
fn end<C>(slot: &RwLock<ConnectSlot<C>>, id: &Arc<()>, new: ConnectSlot<C>) {
    let mut slot = slot.write();
    if matches!(&*slot, ConnectSlot::Connecting(own) if Arc::ptr_eq(&own.id, id)) {
        *slot = new;
    }
}

impl<C> Drop for ConnectOnce<C> {
    fn drop(&mut self) {
        self.dropped.set();
    }
}

#[cfg(test)]
mod tests;
