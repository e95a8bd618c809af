//! The sides of a read-write lock, and a writer that becomes a reader.

use super::*;
use crate::types::LostReason;

/// An attempt of a reader to take over the hold of this writer.
fn downgrade(writer: &AttemptRequest) -> AttemptRequest {
    AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        ..ask(LockKind::Read)
    }
}

#[tokio::test]
async fn readers_share_and_a_reader_waits_for_a_writer_ahead_of_it() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let readers = [ask(LockKind::Read), patient(LockKind::Read)];
    for reader in &readers {
        etcd.grants(reader).await;
    }
    let writer = patient(LockKind::Write);
    etcd.refuses(&writer).await;
    let late = patient(LockKind::Read);
    etcd.refuses(&late).await;
    // Without patience nobody gets a place in the queue.
    let keys = server.keys();
    for kind in [LockKind::Read, LockKind::Write] {
        etcd.refuses(&ask(kind)).await;
    }
    assert_eq!(server.keys(), keys);
    for reader in &readers {
        let released = etcd.release(&reader.ticket).await.unwrap();
        assert_eq!(released, Released::Freed);
    }
    etcd.refuses(&late).await;
    etcd.grants(&writer).await;
    etcd.release(&writer.ticket).await.unwrap();
    etcd.grants(&late).await;
}

#[tokio::test]
async fn a_reader_that_waits_did_not_hold_the_lock_when_it_leaves() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let reader = patient(LockKind::Read);
    etcd.refuses(&reader).await;
    let left = etcd.withdraw(&reader.ticket).await.unwrap();
    assert_eq!(left, Released::NotHeld);
    assert_eq!(
        server.keys(),
        ["shop/stock/read/1a.downgrade", "shop/stock/write/1a"]
    );
    let released = etcd.release(&writer.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert!(server.keys().is_empty());
}

/// A reader that came later blocks nobody ahead of it, and its own key is no predecessor.
#[tokio::test]
async fn a_reader_finds_the_newest_key_ahead_of_its_own_after_a_lost_reply() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let reader = patient(LockKind::Read);
    server.in_turn("Txn", &[Turn::Lost]);
    etcd.fails(&reader).await;
    let behind = patient(LockKind::Write);
    etcd.refuses(&behind).await;
    // Its key was there before, so a second request finds out which key is ahead of it.
    etcd.refuses(&reader).await;
    etcd.release(&writer.ticket).await.unwrap();
    etcd.refuses(&behind).await;
    let key = server.key("shop/stock/read/1b").unwrap();
    assert_eq!(etcd.grants(&reader).await, token_at(key.create_revision));
}

/// As above, and its key goes between the two requests.
#[tokio::test]
async fn a_reader_whose_key_has_gone_asks_again_at_once() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Write)).await;
    let reader = patient(LockKind::Read);
    server.in_turn("Txn", &[Turn::Lost]);
    etcd.fails(&reader).await;
    let goes = Turn::Meanwhile(|model| model.delete_by_hand("shop/stock/read/1b"));
    server.in_turn("Txn", &[Turn::Usual, goes]);
    let wait = etcd.refuses(&reader).await;
    assert_eq!(wait.recheck, Some(Duration::ZERO));
    etcd.refuses(&reader).await;
    assert!(server.key("shop/stock/read/1b").is_some());
}

#[tokio::test]
async fn a_downgrade_leaves_no_gap_and_its_token_is_larger() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::WriteFenced);
    let first = etcd.grants(&writer).await;
    let waits = patient(LockKind::Write);
    etcd.refuses(&waits).await;
    let reader = downgrade(&writer);
    let second = etcd.grants(&reader).await;
    assert!(second > first, "{second} after {first}");
    // Repeated, it finds what it has.
    assert_eq!(etcd.grants(&reader).await, second);
    let released = etcd.release(&writer.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    etcd.refuses(&waits).await;
    assert!(matches!(
        etcd.renews(&reader.ticket, LEASE).await,
        Renewed::Kept
    ));
    let released = etcd.release(&reader.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    // Its token was newer than the key of this writer.
    assert!(etcd.grants(&waits).await > second);
}

#[tokio::test]
async fn a_writer_that_no_reader_followed_takes_its_place_with_it() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    // The request of the reader does not arrive.
    server.in_turn("Txn", &[NO_LEADER]);
    etcd.fails(&downgrade(&writer)).await;
    let released = etcd.release(&writer.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert!(server.keys().is_empty());
    // A reader that comes late could use the id of that lease, so nobody else gets it.
    etcd.settles().await;
    assert!(!server.leases().contains(&FIRST));
}

#[tokio::test]
async fn a_writer_that_does_not_hold_the_lock_is_not_downgraded() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let unknown = ask(LockKind::Write);
    let lost = ask(LockKind::Write);
    etcd.grants(&lost).await;
    server.etcd(|model| model.end_lease(FIRST));
    for writer in [&unknown, &lost] {
        let error = etcd.fails(&downgrade(writer)).await;
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!(error.lost_reason(), Some(LostReason::Taken));
    }
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_downgraded_reader_has_lost_its_hold_if_its_place_has_gone() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let reader = downgrade(&writer);
    etcd.grants(&reader).await;
    etcd.release(&writer.ticket).await.unwrap();
    server.etcd(|model| model.delete_by_hand("shop/stock/read/1a.downgrade"));
    assert!(matches!(
        etcd.renews(&reader.ticket, LEASE).await,
        Renewed::Gone
    ));
}
