//! The future of an explicit release: the caller waits for the store's confirmation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::lease::hold::{Hold, HoldContext};
use crate::engine::lease::pending_release;
use crate::engine::lease::release;
use crate::engine::lease::status::HoldStatus;
use crate::engine::lease::steward::StewardCommand;
use crate::error::{Error, ErrorKind, Result};
#[cfg(doc)]
use crate::guard::Guard;
use crate::store::BoxFuture;

/// Future of [`Guard::release`].
///
/// A dropped future continues in the background once it was polled. Dropped before its first poll, it releases like a
/// dropped guard.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let lock = client.lock("job");
/// let guard = lock.acquire().await?;
/// let release: tidelock::Release = guard.release();
/// tokio::spawn(release).await.expect("no panic")?; // borrows nothing; dropped, it goes on in the background
/// assert!(lock.try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Release(ReleaseState);

/// The release in flight, and the context with the steward that completes it if the caller leaves.
type Settling = (Arc<dyn HoldContext>, BoxFuture<'static, Result<()>>);

enum ReleaseState {
    /// Not the last guard of its hold. Holds the error if the lock had been lost.
    Shared(Option<Error>),
    Last {
        /// `None` after the first poll. Dropped before, the hold releases itself as with a guard.
        hold: Option<Arc<Hold>>,
        /// The reader that a writer was downgraded to.
        reader: Option<Arc<HoldStatus>>,
        rest: Option<Settling>,
    },
}

impl Release {
    pub(crate) fn of(mut hold: Arc<Hold>) -> Self {
        // No other guard exists, and no clone can be made: this one ends the hold.
        if Arc::get_mut(&mut hold).is_some() {
            return Self::of_last(hold);
        }
        let (status, name) = (Arc::clone(&hold.status), hold.granted().ticket.name.clone());
        // If several guards are released at the same moment, `into_inner` returns the hold to exactly one of them.
        match Arc::into_inner(hold) {
            Some(hold) => Self::of_last(Arc::new(hold)),
            // Another guard is or was the last one. `NotHeld` means it has already released: that is a success here.
            None => Self(ReleaseState::Shared(
                status
                    .refusal()
                    .filter(|error| error.kind() != ErrorKind::NotHeld)
                    .map(|error| error.on_lock(&name)),
            )),
        }
    }

    /// The release of a writer that was downgraded to this reader.
    pub(crate) fn of_downgraded(writer: Arc<Hold>, reader: &Hold) -> Self {
        let mut release = Self::of(writer);
        if let ReleaseState::Last { reader: beside, .. } = &mut release.0 {
            *beside = Some(Arc::clone(&reader.status));
        }
        release
    }

    fn of_last(hold: Arc<Hold>) -> Self {
        Self(ReleaseState::Last {
            hold: Some(hold),
            reader: None,
            rest: None,
        })
    }
}

impl Future for Release {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let (hold, reader, rest) = match &mut self.0 {
            ReleaseState::Last { hold, reader, rest } => (hold, reader, rest),
            ReleaseState::Shared(error) => return Poll::Ready(error.take().map_or(Ok(()), Err)),
        };
        if let Some(hold) = hold.take() {
            // A local waiter gets the hold first: that needs no round trip.
            let Err(hold) = Hold::pass_on(hold) else {
                return Poll::Ready(Ok(()));
            };
            let context = Arc::clone(&hold.context);
            *rest = Some((context, Box::pin(release::settle(hold, reader.take()))));
        }
        let Some((_, running)) = rest else {
            return Poll::Ready(Err(Error::new(ErrorKind::NotHeld)
                .because("the future was polled after it had completed")));
        };
        let result = std::task::ready!(running.as_mut().poll(cx));
        *rest = None;
        Poll::Ready(result)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let ReleaseState::Last { rest, .. } = &mut self.0
            && let Some((context, rest)) = rest.take()
        {
            // The release is in flight and the caller has gone: the steward completes it.
            context
                .steward()
                .send(StewardCommand::Adopt(Box::pin(async move {
                    pending_release::log(rest.await);
                })));
        }
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Release").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::Client;
    use crate::types::LostReason;

    #[tokio::test]
    async fn a_guard_beside_others_is_told_of_a_loss_when_it_is_released() {
        let client = Client::connect("memory:").await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        let other = guard.reenter();
        guard.reenter().release().await.unwrap();
        client.close(Duration::ZERO).await;
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Closed), "{error}");
        assert_eq!(error.lock_name(), Some("a"));
        drop(other);
    }

    #[tokio::test]
    async fn a_release_that_is_polled_after_its_end_says_so() {
        let client = Client::connect("memory:").await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        let mut release = guard.release();
        (&mut release).await.unwrap();
        let error = (&mut release).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    }
}
