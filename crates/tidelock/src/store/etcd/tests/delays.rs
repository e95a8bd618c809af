//! A lock-delay: the marker that still blocks a lock whose holder has gone without a release.

use super::*;

const KEY: &str = "shop/stock/1a";
const MARKER: &str = "shop/stock/1a.delay";
const DELAY: Duration = Duration::from_secs(10);

/// The longer lease of a marker, in seconds: that of the key, the delay, and one more.
const MARKER_TTL: i64 = 41;

fn delayed(patience: Duration) -> AttemptRequest {
    AttemptRequest {
        patience,
        delay: DELAY,
        ..ask(LockKind::Mutex)
    }
}

#[tokio::test]
async fn a_marker_blocks_the_lock_of_a_holder_that_has_gone() {
    for patience in [Duration::ZERO, LIMIT] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        etcd.grants(&delayed(patience)).await;
        assert_eq!(server.keys(), [KEY, MARKER]);
        assert_eq!(server.ttl_of(MARKER), Some(MARKER_TTL));
        server.etcd(|model| model.end_lease(FIRST));
        let next = patient(LockKind::Mutex);
        etcd.refuses(&next).await;
        let marker = server.key(MARKER).unwrap().lease;
        server.etcd(|model| model.end_lease(marker));
        etcd.grants(&next).await;
    }
}

#[tokio::test]
async fn a_release_takes_the_marker_and_all_its_leases_with_it() {
    for patience in [Duration::ZERO, LIMIT] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        let ask = delayed(patience);
        etcd.grants(&ask).await;
        let released = etcd.release(&ask.ticket).await.unwrap();
        assert_eq!(released, Released::Freed);
        assert!(server.keys().is_empty());
        etcd.settles().await;
        assert_eq!(server.leases(), [FIRST], "it is spare");
    }
}

/// The marker of a waiter is under the lease of its key until it holds the lock.
#[tokio::test]
async fn the_marker_of_a_waiter_goes_with_its_key() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let waits = delayed(LIMIT);
    etcd.refuses(&waits).await;
    let marker = server.key("shop/stock/1b.delay").unwrap();
    assert_eq!(marker.lease, FIRST + 1);
    etcd.withdraw(&waits.ticket).await.unwrap();
    assert_eq!(server.keys(), [KEY]);
}

#[tokio::test]
async fn a_hold_that_has_ended_by_itself_keeps_its_delay_when_it_is_released() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = delayed(LIMIT);
    etcd.grants(&ask).await;
    server.etcd(|model| model.end_lease(FIRST));
    let released = etcd.release(&ask.ticket).await.unwrap();
    assert_eq!(released, Released::NotHeld);
    etcd.settles().await;
    assert_eq!(server.keys(), [MARKER]);
    assert_eq!(server.ttl_of(MARKER), Some(MARKER_TTL));
}

#[tokio::test]
async fn a_try_without_a_lease_for_its_marker_writes_nothing() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.in_turn("LeaseGrant", &[Turn::Usual, NO_LEADER]);
    let error = etcd.fails(&delayed(Duration::ZERO)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_waiter_without_a_lease_for_its_marker_does_not_know_whether_it_holds_the_lock() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = delayed(LIMIT);
    server.in_turn("LeaseGrant", &[Turn::Usual, NO_LEADER]);
    let error = etcd.fails(&ask).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    server.in_turn("Txn", &[Turn::Usual, NO_LEADER]);
    let error = etcd.fails(&ask).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    etcd.grants(&ask).await;
    assert_eq!(server.ttl_of(MARKER), Some(MARKER_TTL));
}

#[tokio::test]
async fn a_grant_is_not_reported_if_its_key_goes_before_the_marker_has_moved() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let goes = Turn::Meanwhile(|model| {
        model.end_lease(FIRST);
    });
    server.in_turn("Txn", &[Turn::Usual, goes]);
    let wait = etcd.refuses(&delayed(LIMIT)).await;
    assert_eq!(wait.recheck, Some(Duration::ZERO));
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_repeated_attempt_uses_the_lease_of_its_marker_as_long_as_it_lives() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = delayed(Duration::ZERO);
    etcd.grants(&ask).await;
    let marker = server.key(MARKER).unwrap().lease;
    etcd.grants(&ask).await;
    assert!(server.heard_of("LeaseKeepAlive").contains(&marker));
    assert_eq!(server.leases(), [FIRST, marker]);
    server.etcd(|model| model.end_lease(marker));
    etcd.grants(&ask).await;
    assert_eq!(server.leases(), [FIRST, marker + 1]);
    assert_eq!(etcd.shared.ticket_leases.markers(&ask.ticket), [marker + 1]);
}

#[tokio::test]
async fn a_renewal_keeps_the_lease_of_the_marker_too() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = delayed(Duration::ZERO);
    etcd.grants(&ask).await;
    let marker = server.key(MARKER).unwrap().lease;
    let kept = etcd.renews(&ask.ticket, LEASE).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    // First that of the marker: a break midway must not shorten the delay.
    assert_eq!(server.heard_of("LeaseKeepAlive"), [marker, FIRST]);
}

#[tokio::test]
async fn a_longer_lease_moves_the_marker_too() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = delayed(Duration::ZERO);
    etcd.grants(&ask).await;
    let kept = etcd.renews(&ask.ticket, LEASE * 2).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    etcd.settles().await;
    assert_eq!(server.ttl_of(KEY), Some(60));
    assert_eq!(server.ttl_of(MARKER), Some(MARKER_TTL + 30));
    assert_eq!(server.leases().len(), 2);
}
