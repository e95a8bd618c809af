//! How a holder learns that its lock is lost: the loss signal, and work that is dropped with it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::event::{Event, EventListener};
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::guard::Guard;
use crate::store::Name;
use crate::types::LostReason;

/// Future of [`Guard::lost`]. All clones resolve together.
///
/// # Cancel safety
/// Cancel safe; it only listens.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Lost, LostReason};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("job").acquire().await?;
/// let lost: Lost = guard.lost();
/// let watcher = tokio::spawn(lost.clone()); // borrows nothing from the guard
/// client.close(std::time::Duration::ZERO).await;
/// assert_eq!(lost.await, LostReason::Closed);
/// assert_eq!(watcher.await.ok(), Some(LostReason::Closed));
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Lost {
    status: Arc<HoldStatus>,
    listener: EventListener<Arc<Event>>,
}

impl Lost {
    pub(crate) fn new(status: Arc<HoldStatus>) -> Self {
        let listener = EventListener::new(status.loss_event());
        Self { status, listener }
    }

    fn poll_reason(&mut self, cx: &mut Context<'_>) -> Poll<LostReason> {
        let Self { status, listener } = self;
        listener.poll_until_some(cx, || status.signal())
    }
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        self.poll_reason(cx)
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.status))
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}

/// Future of [`Guard::while_held`].
///
/// # Cancel safety
/// As cancel safe as the work, which is dropped with it. The guard is not dropped: the lock stays held.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::future::pending;
/// use tidelock::{AcquireOptions, LostReason};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let briefly = AcquireOptions::new().max_hold(std::time::Duration::from_millis(50));
/// let guard = client.lock("report").acquire_with(briefly).await?;
/// let endless = guard.while_held(pending::<()>());
/// let error = endless.await.unwrap_err(); // and the work was dropped
/// assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct WhileHeld<F> {
    lost: Lost,
    name: Name,
    /// `None` once the work was dropped.
    work: Option<Pin<Box<F>>>,
}

impl<F> WhileHeld<F> {
    pub(crate) fn new(lost: Lost, name: Name, work: F) -> Self {
        let work = Some(Box::pin(work));
        Self { lost, name, work }
    }
}

impl<F: Future> Future for WhileHeld<F> {
    type Output = Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // We check for the loss first; otherwise the work would take one more step after a freeze.
        match self.lost.poll_reason(cx) {
            Poll::Ready(reason) => {
                self.work = None; // drops the work now, even if the caller keeps this future
                Poll::Ready(Err(Error::lost(reason).on_lock(self.name.as_str())))
            }
            Poll::Pending => match &mut self.work {
                Some(work) => work.as_mut().poll(cx).map(Ok),
                None => Poll::Pending,
            },
        }
    }
}

impl<F> fmt::Debug for WhileHeld<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhileHeld").finish_non_exhaustive()
    }
}
