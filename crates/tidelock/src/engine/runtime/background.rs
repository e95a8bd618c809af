//! The steward's thread, and the alarm on the boot clock. No other file of the library spawns tokio tasks or sleeps.

use std::future::Future;
use std::io;
use std::sync::Arc;
#[cfg(feature = "blocking")]
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[cfg(feature = "blocking")]
use futures_util::FutureExt;
#[cfg(any(feature = "blocking", not(schedules = "shuttle")))]
use tokio::runtime::Builder;
#[cfg(not(schedules = "shuttle"))]
use tokio::runtime::Handle;
use tokio::sync::oneshot;
#[cfg(feature = "blocking")]
use tokio::task::coop;

use crate::engine::runtime::clock::{BootInstant, Clock};
#[cfg(schedules = "shuttle")]
use crate::engine::runtime::scheduled::{self, Handle};
#[cfg(feature = "blocking")]
use crate::engine::runtime::sync::RwLock;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};

/// The thread on which the steward and a store's background connections run. It is their own, so that a blocked
/// executor of the caller delays neither a renewal nor a deadline. In simulated time it is the test's own runtime.
///
/// All clones share one runtime handle, which is dropped when the thread ends. Otherwise a clone that is kept would
/// keep the runtime's file descriptors open.
#[derive(Debug, Clone)]
pub struct Background(Arc<Mutex<Option<Handle>>>);

impl Background {
    /// Starts the thread. It ends when the returned [`Stop`] is dropped: tasks that still run are dropped, and blocking
    /// ones get 100 ms. In simulated time it starts no thread and uses the current runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Runtime`] if the thread cannot be started, or in simulated time if there is no current runtime.
    pub(crate) fn start(clock: Clock) -> Result<(Self, Stop)> {
        if clock == Clock::Simulated {
            let here =
                Handle::try_current().map_err(|e| Error::new(ErrorKind::Runtime).caused_by(e))?;
            return Ok((Self::of(here), Stop(None)));
        }
        Self::start_thread()
    }

    /// A thread of the operating system is outside of the schedule, so nothing would be reproducible.
    #[cfg(schedules = "shuttle")]
    fn start_thread() -> Result<(Self, Stop)> {
        Err(Error::new(ErrorKind::Runtime).because("this build has only simulated time"))
    }

    #[cfg(not(schedules = "shuttle"))]
    fn start_thread() -> Result<(Self, Stop)> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| no_thread(&e))?;
        let background = Self::of(runtime.handle().clone());
        let own = background.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("tidelock".to_owned())
            .spawn(move || {
                // The result is always an error, because the sender is only dropped. That is the signal.
                let _ = runtime.block_on(stopped);
                // Otherwise a clone of the handle that is kept would keep the runtime's descriptors open.
                own.handle().take();
                runtime.shutdown_timeout(Duration::from_millis(100));
            })
            .map_err(|e| no_thread(&e))?;
        Ok((background, Stop(Some(stop))))
    }

    fn of(handle: Handle) -> Self {
        Self(Arc::new(Mutex::new(Some(handle))))
    }

    fn handle(&self) -> MutexGuard<'_, Option<Handle>> {
        self.0.lock()
    }

    /// Runs a future in the background. It is dropped when the thread ends; after that it does not start at all.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let handle = self.handle().clone();
        if let Some(handle) = handle {
            handle.spawn(future);
        }
    }

    /// Runs a future in the background and waits for its output. `None`: the thread has ended first.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // An error means that the caller has stopped waiting.
            let _ = answer.send(future.await);
        });
        answered.await.ok()
    }

    /// As [`run`](Self::run), for a request: it ends with its caller. Otherwise requests that nobody waits for would be sent
    /// before those of others, and could grant a lock that nobody releases.
    pub async fn run_for_caller<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (mut answer, answered) = oneshot::channel();
        self.spawn(async move {
            let result = tokio::select! {
                biased;
                () = answer.closed() => return,
                result = request => result,
            };
            // An error means that the caller does not wait any more.
            let _ = answer.send(result);
        });
        answered.await.ok()
    }
}

fn no_thread(why: &io::Error) -> Error {
    Error::new(ErrorKind::Runtime).because(format!(
        "cannot start the background thread of the client: {why}"
    ))
}

/// Keeps the background thread alive until it is dropped.
#[derive(Debug)]
pub(crate) struct Stop(
    #[allow(dead_code, reason = "dropping it is its use")] Option<oneshot::Sender<()>>,
);

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a future on the current runtime until the returned task is dropped.
///
/// # Errors
/// [`ErrorKind::Runtime`] outside of a tokio runtime.
pub(crate) fn spawn_here(future: impl Future<Output = ()> + Send + 'static) -> Result<AbortOnDrop> {
    need_runtime()?;
    Ok(AbortOnDrop(tokio::spawn(future).abort_handle()))
}

/// Runs a future on the current runtime until it completes.
///
/// # Errors
/// [`ErrorKind::Runtime`] outside of a tokio runtime.
pub(crate) fn spawn_detached(future: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    need_runtime()?;
    tokio::spawn(future);
    Ok(())
}

/// Runs blocking work on a thread that may block. `None`: it panicked, or the runtime shuts down.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Returns a clear error outside of a tokio runtime. Otherwise a driver would panic later.
pub(crate) fn need_runtime() -> Result<()> {
    Handle::try_current().map(drop).map_err(|_| {
        Error::new(ErrorKind::Runtime).because(
            "called outside a tokio runtime; call it from async code, or use tidelock::blocking",
        )
    })
}

/// The runtime of the blocking API. Callers wait on it with their own threads. `None`: the client is closed.
#[cfg(feature = "blocking")]
#[derive(Debug)]
pub(crate) struct Blocker(RwLock<Option<Arc<BlockingRuntime>>>);

/// A runtime that shuts down without a wait. The plain drop of a runtime waits for its threads, and panics inside
/// another runtime.
#[cfg(feature = "blocking")]
#[derive(Debug)]
struct BlockingRuntime(Option<tokio::runtime::Runtime>);

#[cfg(feature = "blocking")]
impl Blocker {
    /// Starts one worker thread. One is enough: it serves connections and callbacks, and callers wait on their own
    /// threads.
    pub(crate) fn start() -> Result<Self> {
        refuse_inside_a_runtime()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tidelock-blocking")
            .enable_all()
            .build()
            .map_err(|e| no_thread(&e))?;
        let runtime = Arc::new(BlockingRuntime(Some(runtime)));
        Ok(Self(RwLock::new(Some(runtime))))
    }

    /// Waits for a future on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::Runtime`] in async code, whose executor a wait would block; it drops the future.
    /// [`ErrorKind::Closed`] on a closed client, unless the future is ready at once.
    pub(crate) fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        refuse_inside_a_runtime()?;
        let runtime = self.runtime();
        match runtime.as_deref() {
            Some(BlockingRuntime(Some(runtime))) => Ok(runtime.block_on(future)),
            _ => future
                .now_or_never()
                .ok_or_else(|| Error::new(ErrorKind::Closed)),
        }
    }

    /// Runs a future on the worker until the returned task is dropped. The worker lives at least until the future
    /// completes. Otherwise closing the client would abort a callback that the close itself has caused. `None`: the
    /// client is closed, and what the future waits for has happened or never will. In the first case it has run on this
    /// thread.
    pub(crate) fn spawn(
        &self,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortOnDrop> {
        let Some(worker) = self.runtime() else {
            // Otherwise a callback that comes just after the close would hear neither of it nor of the loss.
            future.now_or_never();
            return None;
        };
        let handle = worker.0.as_ref()?.handle().clone();
        let task = handle.spawn(async move {
            future.await;
            drop(worker);
        });
        Some(AbortOnDrop(task.abort_handle()))
    }

    /// The client is closed. The worker ends when the last call in flight ends.
    pub(crate) fn close(&self) {
        let runtime = self.0.write().take();
        drop(runtime); // not under the lock: it may be the last reference, whose drop shuts the runtime down
    }

    fn runtime(&self) -> Option<Arc<BlockingRuntime>> {
        self.0.read().clone()
    }
}

#[cfg(feature = "blocking")]
impl Drop for BlockingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns an error where a wait would block an executor, and where tokio would panic in `block_on`.
#[cfg(feature = "blocking")]
fn refuse_inside_a_runtime() -> Result<()> {
    if Handle::try_current().is_ok() && runs_a_task() {
        return Err(Error::new(ErrorKind::Runtime).because(
            "blocking call in async code, whose executor it would block; use the async client, or tokio::task::spawn_blocking",
        ));
    }
    Ok(())
}

/// Whether this thread polls a task at the moment. A thread of `spawn_blocking` or `block_in_place` does not. tokio has
/// no question for it, but it gives each poll a budget of steps, and a thread that may block has no budget to use up.
#[cfg(feature = "blocking")]
fn runs_a_task() -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..MORE_THAN_THE_BUDGET).any(|_| match coop::poll_proceed(&mut cx) {
        Poll::Ready(step) => {
            step.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

/// Exceeds the steps of one poll, which are 128.
#[cfg(feature = "blocking")]
const MORE_THAN_THE_BUDGET: u32 = 1024;

/// The one sleep behind all timers: until an instant of the client's clock.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    #[cfg(all(target_os = "linux", not(miri)))]
    boot: Option<boot::BootAlarm>,
}

impl Alarm {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            #[cfg(all(target_os = "linux", not(miri)))]
            boot: if matches!(clock, Clock::Boot) {
                boot::BootAlarm::new()
            } else {
                None
            },
        }
    }

    /// Sleeps until `at`. It may return early, so the caller must read the clock afterwards. `FAR`: never returns.
    #[cfg(schedules = "shuttle")]
    pub(crate) async fn until(&mut self, at: BootInstant) {
        scheduled::until(at.0).await;
    }

    /// Sleeps until `at`. It may return early, so the caller must read the clock afterwards. `FAR`: never returns.
    #[cfg(not(schedules = "shuttle"))]
    pub(crate) async fn until(&mut self, at: BootInstant) {
        if at == BootInstant::FAR {
            return std::future::pending().await;
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Some(boot) = &mut self.boot {
            return boot.until(at).await;
        }
        // Without an alarm on the boot clock we sleep in slices of at most a second. tokio's clock may stop while the
        // machine is suspended, and a slice bounds how late we notice that.
        let left = at.since(self.clock.now());
        let slice = if matches!(self.clock, Clock::Boot) {
            left.min(Duration::from_secs(1))
        } else {
            left
        };
        tokio::time::sleep(slice).await;
    }
}

/// Not under Miri, which has no timerfd.
#[cfg(all(target_os = "linux", not(miri)))]
mod boot {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use crate::engine::runtime::clock::BootInstant;

    /// A timerfd on `CLOCK_BOOTTIME`. It counts the time in which the machine was suspended.
    #[derive(Debug)]
    pub(crate) struct BootAlarm(AsyncFd<OwnedFd>);

    impl BootAlarm {
        /// `None` if the kernel or a sandbox forbids it; then we sleep in slices.
        pub(crate) fn new() -> Option<Self> {
            let fd = timerfd_create(
                TimerfdClockId::Boottime,
                TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
            )
            .ok()?;
            // `new` is deprecated because a type may return a wrong descriptor. `OwnedFd` does not, and the replacement
            // of `new` is unsafe.
            #[allow(
                deprecated,
                reason = "OwnedFd gives the same descriptor for as long as it lives"
            )]
            AsyncFd::new(fd).ok().map(Self)
        }

        pub(crate) async fn until(&mut self, at: BootInstant) {
            let spec = Timespec {
                tv_sec: i64::try_from(at.nanos() / 1_000_000_000).unwrap_or(i64::MAX),
                // At least 1: a time of zero would disarm the timer.
                tv_nsec: i64::try_from(at.nanos() % 1_000_000_000)
                    .unwrap_or(0)
                    .max(1),
            };
            let once = Itimerspec {
                it_interval: Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: spec,
            };
            // On an error we return early, and the driver tries again.
            if timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once).is_err() {
                return tokio::task::yield_now().await;
            }
            if let Ok(mut ready) = self.0.readable().await {
                ready.clear_ready();
            }
        }
    }
}

#[cfg(feature = "blocking")]
#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a program that keeps a client after its close would keep the thread too.
    #[test]
    #[cfg_attr(miri, ignore = "nothing waits for the end of the thread")]
    fn a_client_that_has_closed_has_no_worker() {
        let blocker = Blocker::start().unwrap();
        assert!(blocker.spawn(std::future::pending()).is_some());
        blocker.close();
        assert!(blocker.spawn(std::future::pending()).is_none());
        let waited = blocker.run(std::future::pending::<()>());
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
    }

    /// A request that nobody waits for could grant a lock that nobody releases.
    #[tokio::test]
    async fn a_request_for_a_caller_ends_with_it() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        assert_eq!(background.run_for_caller(async { 7 }).await, Some(7));
        let (kept, dropped) = oneshot::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let caller = tokio::spawn(async move {
            let request = async move {
                begins.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(kept);
            };
            background.run_for_caller(request).await
        });
        begun.await.unwrap();
        caller.abort();
        assert!(dropped.await.is_err());
    }

    /// The driver of the timers starts it again after an early return, and would keep a core busy for up to a second.
    #[tokio::test]
    async fn an_alarm_sleeps_until_its_instant() {
        let (clock, mut alarm) = (Clock::Boot, Alarm::new(Clock::Boot));
        for _ in 0..3 {
            let at = clock.now() + Duration::from_millis(50);
            alarm.until(at).await;
            assert!(clock.now() >= at);
        }
    }
}
