//! The requests of watches, and the pauses of a stream that always fails.

use tokio::time::Instant;

use super::*;
use crate::store::etcd::api::RangeRequest;

#[tokio::test]
async fn a_key_is_read_again_only_if_the_store_has_changed_before_its_watch() {
    let server = with_keys().await;
    let etcd = server.client();
    let mut one = follows(&etcd, "1", "a");
    watched(&server, &etcd, 1).await;
    server.etcd(|model| model.delete_by_hand("a"));
    in_time(one.woken()).await;
    // A read for the first watch would come before that for the second one.
    let _two = follows(&etcd, "2", "b");
    server.hears("Range", 1).await;
    let read = server.heard::<RangeRequest>("Range").into_iter();
    let read: Vec<Vec<u8>> = read.map(|range| range.key).collect();
    assert_eq!(read, [b"b"]);
}

/// For the id 0 etcd chooses one itself, and with the id -1 it refuses a watch.
#[tokio::test]
async fn each_watch_has_an_id_above_zero() {
    let server = with_keys().await;
    let etcd = server.client();
    let _wakes = [follows(&etcd, "1", "a"), follows(&etcd, "2", "b")];
    server.hears("Watch", 2).await;
    let heard = server.heard::<WatchRequest>("Watch").into_iter();
    let ids = heard.filter_map(|one| match one.watching {
        Some(Watching::Create(create)) => Some(create.watch_id),
        _ => None,
    });
    let ids: Vec<i64> = ids.collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(|id| *id > 0), "{ids:?}");
}

/// Each of them asks again when it is woken, and opens another stream.
#[tokio::test]
async fn a_stream_that_always_fails_wakes_its_waiters_after_longer_and_longer_pauses() {
    let server = with_keys().await;
    let etcd = server.client();
    server.in_turn("Watch", &[NO_LEADER; 6]);
    let mut waited = Duration::ZERO;
    for count in 1..=6 {
        let since = Instant::now();
        let mut wake = follows(&etcd, "1", "a");
        server.hears("Watch", count).await;
        let ended = async {
            while !format!("{:?}", etcd.shared.watcher).contains("watches: 0") {
                tokio::task::yield_now().await;
            }
        };
        in_time(ended).await;
        // Only the pause is left, and it passes at once.
        tokio::time::pause();
        in_time(wake.woken()).await;
        tokio::time::resume();
        waited = since.elapsed();
    }
    // The longest pause is 640 ms, of which half is random.
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
}
