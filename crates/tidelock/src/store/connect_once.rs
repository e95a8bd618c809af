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
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::Clock;

    #[derive(Debug, Default)]
    struct Conn(AtomicBool);

    impl MayEnd for Conn {
        fn has_ended(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// A server that connects callers when the test lets it, on a simulated clock.
    struct World {
        once: Arc<ConnectOnce<Conn>>,
        timers: Timers,
        runtime: ConnectionRuntime,
        attempts: Arc<AtomicUsize>,
        /// One permit lets one attempt end.
        may_end: Arc<Semaphore>,
        refuses: Arc<AtomicBool>,
    }

    const LIMIT: Duration = Duration::from_secs(3);

    impl World {
        fn new() -> Self {
            let clock = Clock::Simulated;
            let (background, _) = Background::start(clock).unwrap();
            let timers = Timers::new(clock);
            background.spawn(timers.clone().drive());
            Self {
                once: Arc::new(ConnectOnce::new()),
                timers,
                runtime: ConnectionRuntime::Background(background),
                attempts: Arc::default(),
                may_end: Arc::new(Semaphore::new(0)),
                refuses: Arc::default(),
            }
        }

        fn get(&self) -> tokio::task::JoinHandle<Result<Arc<Conn>>> {
            let (once, timers) = (Arc::clone(&self.once), self.timers.clone());
            let (runtime, attempts) = (self.runtime.clone(), Arc::clone(&self.attempts));
            let (may_end, refuses) = (Arc::clone(&self.may_end), Arc::clone(&self.refuses));
            tokio::spawn(async move {
                if let Some(connection) = once.live() {
                    return Ok(connection);
                }
                let deadline = timers.now() + LIMIT;
                let connect = || async move {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.unwrap().forget();
                    if refuses.load(Ordering::SeqCst) {
                        return Err(Error::new(ErrorKind::Refused).because("go away"));
                    }
                    Ok(Conn::default())
                };
                once.connect(&timers, deadline, &runtime, &"here", connect)
                    .await
            })
        }

        fn attempts(&self) -> usize {
            self.attempts.load(Ordering::SeqCst)
        }
    }

    async fn settled() {
        tokio::time::sleep(Duration::from_nanos(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_make_one_attempt_and_one_that_leaves_cancels_nothing() {
        let world = World::new();
        let first = world.get();
        settled().await;
        let others: Vec<_> = (0..5).map(|_| world.get()).collect();
        settled().await;
        first.abort();
        settled().await;
        world.may_end.add_permits(1);
        for other in others {
            let connection = other.await.unwrap().unwrap();
            assert!(Arc::ptr_eq(&connection, &world.once.live().unwrap()));
        }
        assert_eq!(world.attempts(), 1);
        // If all callers leave, the connection is there for the next one.
        world.once.close();
        let leaves = world.get();
        settled().await;
        leaves.abort();
        world.may_end.add_permits(1);
        settled().await;
        assert!(world.once.live().is_some());
        assert_eq!(world.attempts(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_reaches_all_that_wait_and_the_next_caller_tries_again() {
        let world = World::new();
        world.refuses.store(true, Ordering::SeqCst);
        let all: Vec<_> = (0..5).map(|_| world.get()).collect();
        settled().await;
        world.may_end.add_permits(1);
        for caller in all {
            let error = caller.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains("go away"), "{error}");
        }
        assert_eq!(world.attempts(), 1);
        world.refuses.store(false, Ordering::SeqCst);
        world.may_end.add_permits(1);
        let connection = world.get().await.unwrap().unwrap();
        assert_eq!(world.attempts(), 2);
        // A connection that has ended, or is retired, is replaced.
        connection.0.store(true, Ordering::SeqCst);
        world.may_end.add_permits(2);
        let next = world.get().await.unwrap().unwrap();
        assert!(!world.once.retire(&connection), "it is not in use");
        assert!(world.once.retire(&next) && !world.once.retire(&next));
        world.get().await.unwrap().unwrap();
        assert_eq!(world.attempts(), 4);
    }

    /// The last error of a wait should say why there is no connection.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_cut_off_tells_why_the_one_before_it_failed() {
        let world = World::new();
        let late = world.get().await.unwrap().unwrap_err().to_string();
        assert!(late.ends_with("here: no connection in time"), "{late}");
        world.refuses.store(true, Ordering::SeqCst);
        world.may_end.add_permits(2);
        world.get().await.unwrap().unwrap_err();
        let error = world.get().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let words = "here: no connection in time; the attempt before it failed: go away";
        assert!(error.to_string().ends_with(words), "{error}");
        // A connection has been there since.
        world.refuses.store(false, Ordering::SeqCst);
        world.may_end.add_permits(2);
        world.get().await.unwrap().unwrap();
        world.once.close();
        let late = world.get().await.unwrap().unwrap_err().to_string();
        assert!(late.ends_with("here: no connection in time"), "{late}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_is_given_up_and_ends_with_the_last_handle() {
        let world = World::new();
        let begun = world.timers.now();
        let error = world.get().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(world.timers.now().since(begun) >= LIMIT);
        let again = world.get();
        settled().await;
        assert_eq!(world.attempts(), 2);
        again.abort();
        settled().await;
        // Each attempt in progress holds the semaphore.
        assert_eq!(Arc::strong_count(&world.may_end), 3);
        let World { once, may_end, .. } = world;
        drop(once);
        settled().await;
        assert_eq!(Arc::strong_count(&may_end), 1);
    }
}
