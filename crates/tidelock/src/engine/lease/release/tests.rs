//! Tests of a release that meets a `close`.

use crate::{Client, LostReason};

/// A `close` removes all holds from the lease table before it tells the first holder. A release that comes in between
/// leaves the lock to it: the second of two releases would find nothing, as after a loss to another client.
#[tokio::test(start_paused = true)]
async fn a_hold_that_a_close_has_taken_is_released_once() {
    for drops in [false, true] {
        let store = format!("memory:taken-by-a-close-{drops}");
        let connect = async || {
            let settings = Client::builder()
                .simulated_time()
                .publish_process_info(false);
            settings.connect(&store).await.unwrap()
        };
        let (client, other) = (connect().await, connect().await);
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
