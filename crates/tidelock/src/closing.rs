//! How a program learns that its client is closing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::runtime::event::{Event, EventListener, Flag};

/// Future of [`Client::closing`](crate::Client::closing) and [`Guard::closing`](crate::Guard::closing). It is
/// `'static` and keeps neither the client nor the lock. All clones resolve together.
///
/// # Cancel safety
/// Cancel safe; it only listens.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::Closing;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let closing: Closing = client.closing();
/// let worker = tokio::spawn(async move { closing.await }); // a loop that takes new work until then
/// client.close(Duration::ZERO).await;
/// assert!(worker.await.is_ok());
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Closing {
    closed: Arc<Flag>,
    listener: EventListener<Arc<Event>>,
}

impl Closing {
    pub(crate) fn new(closed: &Arc<Flag>) -> Self {
        Self {
            closed: Arc::clone(closed),
            listener: EventListener::new(closed.event()),
        }
    }
}

impl Future for Closing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { closed, listener } = &mut *self;
        listener.poll_until_some(cx, || closed.is_set().then_some(()))
    }
}

impl Clone for Closing {
    fn clone(&self) -> Self {
        Self::new(&self.closed)
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}
