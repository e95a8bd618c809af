//! Tests of a release that meets a `close`.

use futures_util::poll;

use super::in_background_if_held;
use crate::{Client, ErrorKind, LostReason};

async fn connect(store: &str) -> Client {
    let settings = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    settings.connect(store).await.unwrap()
}

/// A `close` removes all holds from the lease table before it tells the first holder. A release that comes in between
/// leaves the lock to it: the second of two releases would find nothing, as after a loss to another client.
#[tokio::test(start_paused = true)]
async fn a_hold_that_a_close_has_taken_is_released_once() {
    for drops in [false, true] {
        let store = format!("memory:taken-by-a-close-{drops}");
        let (client, other) = (connect(&store).await, connect(&store).await);
        let is_free = async || other.lock("a").try_acquire().await.unwrap().is_some();
        let guard = client.lock("a").acquire().await.unwrap();
        let steward = &client.core().steward;
        let taken = steward.table.drain();
        if drops {
            drop(guard);
        } else {
            let error = guard.release().await.unwrap_err();
            assert_eq!(error.lost_reason(), Some(LostReason::Closed), "{error}");
        }
        steward.settled().await;
        assert!(!is_free().await, "the close releases it");
        for entry in taken {
            steward.end_by_close(entry);
        }
        steward.settled().await;
        assert!(is_free().await);
    }
}

/// A `close` sets its flag before it calls the waiters. In between a release gives the lock back to the store. A waiter
/// would only be told that the client is closed, and one that is kept and not polled would keep the lock.
#[tokio::test(start_paused = true)]
async fn nothing_is_handed_on_once_a_close_has_begun() {
    let store = "memory:handed-on-in-a-close";
    let (client, other) = (connect(store).await, connect(store).await);
    let lock = client.lock("a");
    let first = lock.acquire().await.unwrap();
    let (mut second, mut third) = (Box::pin(lock.acquire()), Box::pin(lock.acquire()));
    assert!(poll!(second.as_mut()).is_pending());
    assert!(poll!(third.as_mut()).is_pending());
    // A waiter stands behind the second hold when it is granted, so that one can be handed on.
    first.release().await.unwrap();
    let held = second.await.unwrap();
    assert!(client.core().steward.closed.set());
    held.release().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_some());
    drop(third);
}

/// The store has answered that it has nothing to free, so there is nothing to send again.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_a_loss_is_not_repeated() {
    let store = "memory:release-of-nothing";
    let (client, other) = (connect(store).await, connect(store).await);
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(other.lock("a").force_release().await.unwrap());
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    client.core().steward.settled().await;
    assert_eq!(client.stats().cleanups_of_nothing, 0);
}

/// A hold that somebody may have freed by force. Released in the background it is free at once, and not only when its lease
/// ends, unless a `close` has taken it.
#[tokio::test(start_paused = true)]
async fn a_hold_that_may_have_been_freed_is_released_in_the_background() {
    let store = "memory:released-if-held";
    let (client, other) = (connect(store).await, connect(store).await);
    let is_free = async || other.lock("a").try_acquire().await.unwrap().is_some();
    let guard = client.lock("a").acquire().await.unwrap();
    in_background_if_held(guard.0);
    let steward = &client.core().steward;
    steward.settled().await;
    assert!(is_free().await);

    let guard = client.lock("a").acquire().await.unwrap();
    let taken = steward.table.drain();
    in_background_if_held(guard.0);
    steward.settled().await;
    assert!(!is_free().await, "the close releases it");
    for entry in taken {
        steward.end_by_close(entry);
    }
    steward.settled().await;
    assert!(is_free().await);
}
