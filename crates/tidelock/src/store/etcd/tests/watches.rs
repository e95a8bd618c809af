//! Wakes of waiters: what happens to the key that each of them watches, and to the stream of all watches.

mod streams;

use super::*;
use crate::store::Wake;
use crate::store::etcd::api::{WatchRequest, Watching};
use crate::store::etcd::watched::WatchRange;

/// Waits until the stream of watches has been heard, and answered, for so many requests.
async fn watched(server: &ModelServer, etcd: &Etcd, count: usize) {
    server.hears("Watch", count).await;
    // A request that is answered later than the watch.
    etcd.inspect(&stock()).await.unwrap();
}

/// The wake of a waiter for the deletion of this key, which was seen at revision 3.
fn follows(etcd: &Etcd, channel: &str, key: &str) -> Wake {
    let wake = etcd.shared.signals.arm(channel);
    let ranges = vec![WatchRange::until_deleted(key.as_bytes())];
    etcd.shared.watcher.follow(channel, ranges, 3);
    wake
}

/// Whether a waiter has been woken by now.
async fn is_woken(wake: &mut Wake) -> bool {
    tokio::select! {
        biased;
        () = wake.woken() => true,
        () = std::future::ready(()) => false,
    }
}

/// A server with the keys `a` and `b`, at revision 3.
async fn with_keys() -> ModelServer {
    let server = ModelServer::start().await;
    server.etcd(|model| {
        model.put_by_hand("a", "", 0);
        model.put_by_hand("b", "", 0);
    });
    server
}

#[tokio::test]
async fn each_waiter_is_woken_by_the_key_that_it_watches_only() {
    let server = with_keys().await;
    let etcd = server.client();
    let (mut one, mut two) = (follows(&etcd, "1", "a"), follows(&etcd, "2", "b"));
    watched(&server, &etcd, 2).await;
    server.etcd(|model| model.put_by_hand("b", "changed", 0));
    server.etcd(|model| model.delete_by_hand("a"));
    in_time(one.woken()).await;
    assert!(!is_woken(&mut two).await);
    assert_eq!(server.connections("Watch"), [0, 0]);
    server.etcd(|model| model.delete_by_hand("b"));
    in_time(two.woken()).await;
}

#[tokio::test]
async fn a_key_that_has_gone_before_it_was_watched_wakes() {
    let server = with_keys().await;
    let etcd = server.client();
    server.etcd(|model| model.delete_by_hand("a"));
    let (mut one, mut two) = (follows(&etcd, "1", "a"), follows(&etcd, "2", "b"));
    in_time(one.woken()).await;
    watched(&server, &etcd, 2).await;
    assert!(!is_woken(&mut two).await);
}

#[tokio::test]
async fn a_look_back_that_fails_wakes_the_waiter() {
    let server = with_keys().await;
    let etcd = server.client();
    // The store has changed since, so the client looks back.
    server.etcd(|model| model.put_by_hand("c", "", 0));
    server.in_turn("Range", &[NO_LEADER]);
    let mut wake = follows(&etcd, "1", "a");
    in_time(wake.woken()).await;
}

#[tokio::test]
async fn the_same_key_is_watched_once_and_another_one_instead_of_it() {
    let server = with_keys().await;
    let etcd = server.client();
    let _wake = follows(&etcd, "1", "a");
    let _again = follows(&etcd, "1", "a");
    let _other = follows(&etcd, "1", "b");
    server.hears("Watch", 3).await;
    let heard = server.heard::<WatchRequest>("Watch");
    let said: Vec<_> = heard.into_iter().filter_map(|one| one.watching).collect();
    let [
        Watching::Create(first),
        Watching::Cancel(gone),
        Watching::Create(second),
    ] = &said[..]
    else {
        panic!("{said:?}");
    };
    assert_eq!((&*first.key, &*second.key), (&b"a"[..], &b"b"[..]));
    assert_eq!(first.watch_id, gone.id);
    assert_ne!(second.watch_id, gone.id);
    // Deletions only.
    assert_eq!(first.filters, [0]);
}

#[tokio::test]
async fn a_waiter_that_leaves_ends_its_watch_if_no_other_has_its_channel() {
    let server = with_keys().await;
    let etcd = server.client();
    let one = follows(&etcd, "1", "a");
    let other = follows(&etcd, "1", "a");
    server.hears("Watch", 1).await;
    drop(one);
    etcd.shared.watcher.leave("1");
    etcd.inspect(&stock()).await.unwrap();
    assert_eq!(server.connections("Watch").len(), 1);
    drop(other);
    server.hears("Watch", 2).await;
    let heard = server.heard::<WatchRequest>("Watch");
    assert!(matches!(heard[1].watching, Some(Watching::Cancel(_))));
}

#[tokio::test]
async fn the_end_of_the_stream_wakes_all_waiters_and_they_watch_again() {
    let server = with_keys().await;
    let etcd = server.client();
    let (mut one, mut two) = (follows(&etcd, "1", "a"), follows(&etcd, "2", "b"));
    watched(&server, &etcd, 2).await;
    server.hang_up();
    in_time(one.woken()).await;
    in_time(two.woken()).await;
    drop(one);
    let mut again = follows(&etcd, "1", "a");
    watched(&server, &etcd, 3).await;
    server.etcd(|model| model.delete_by_hand("a"));
    in_time(again.woken()).await;
}

#[tokio::test]
async fn a_stream_follows_the_requests_to_another_connection() {
    let server = with_keys().await;
    let etcd = server.client();
    let mut wake = follows(&etcd, "1", "a");
    watched(&server, &etcd, 1).await;
    server.in_turn("Txn", &[NO_LEADER]);
    assert!(etcd.inspect(&stock()).await.is_err());
    in_time(wake.woken()).await;
    let _wake = follows(&etcd, "1", "a");
    server.hears("Watch", 2).await;
    assert_eq!(server.connections("Watch"), [0, 1]);
}
