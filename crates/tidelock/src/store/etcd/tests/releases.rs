//! Releases and withdrawals: by the owner only, and after a lost reply.

use super::*;

const KEY: &str = "shop/stock/1a";

#[tokio::test]
async fn a_ticket_without_a_lease_is_released_without_a_request() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let unknown = ticket(LockKind::Mutex);
    for kind in [LockKind::Mutex, LockKind::Permits(1)] {
        let unknown = Ticket {
            kind,
            ..unknown.clone()
        };
        let released = etcd.release(&unknown).await.unwrap();
        let withdrawn = etcd.withdraw(&unknown).await.unwrap();
        assert_eq!([released, withdrawn], [Released::NotHeld; 2]);
    }
    assert!(server.connections("Txn").is_empty());
}

#[tokio::test]
async fn a_release_leaves_the_key_of_the_next_holder() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let lost = ask(LockKind::Mutex);
    etcd.grants(&lost).await;
    server.etcd(|model| model.end_lease(FIRST));
    let next = ask(LockKind::Mutex);
    etcd.grants(&next).await;
    for _ in 0..2 {
        let released = etcd.release(&lost.ticket).await.unwrap();
        assert_eq!(released, Released::NotHeld);
    }
    assert_eq!(server.keys(), ["shop/stock/1b"]);
}

/// Its key was deleted and created again, by a late request of its own: that one is behind the present holder.
#[tokio::test]
async fn a_release_leaves_a_key_that_was_created_again() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    etcd.grants(&ask).await;
    server.etcd(|model| {
        model.delete_by_hand(KEY);
        let lease = model.grant(60);
        model.put_by_hand(KEY, ask.ticket.owner.text(), lease);
    });
    let released = etcd.release(&ask.ticket).await.unwrap();
    assert_eq!(released, Released::NotHeld);
    assert_eq!(server.keys(), [KEY]);
}

#[tokio::test]
async fn a_release_without_a_reply_is_not_reported_as_done() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    etcd.grants(&ask).await;
    server.in_turn("Txn", &[Turn::Lost, NO_LEADER]);
    for kind in [ErrorKind::OutcomeUnknown, ErrorKind::Unavailable] {
        let error = etcd.release(&ask.ticket).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    // The first one has done it.
    let released = etcd.release(&ask.ticket).await.unwrap();
    assert_eq!(released, Released::NotHeld);
}

#[tokio::test]
async fn a_waiter_that_leaves_did_not_hold_the_lock() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let waits = patient(LockKind::Mutex);
    etcd.refuses(&waits).await;
    let left = etcd.withdraw(&waits.ticket).await.unwrap();
    assert_eq!(left, Released::NotHeld);
    assert_eq!(server.keys(), [KEY]);
}

#[tokio::test]
async fn a_withdrawn_ticket_is_never_granted_again() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    etcd.grants(&ask).await;
    let withdrawn = etcd.withdraw(&ask.ticket).await.unwrap();
    assert_eq!(withdrawn, Released::Freed);
    assert!(server.keys().is_empty());
    let error = etcd.fails(&ask).await;
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(server.keys().is_empty());
    // Its lease had no request on its way, so the next ticket has it.
    etcd.grants(&patient(LockKind::Mutex)).await;
    assert_eq!(server.leases(), [FIRST]);
}

#[tokio::test]
async fn a_withdrawal_ends_the_leases_that_a_late_request_could_use() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = AttemptRequest {
        delay: Duration::from_secs(10),
        ..ask(LockKind::Mutex)
    };
    let late = Turn::Fails(Code::Unavailable, "etcdserver: request timed out");
    server.in_turn("Txn", &[late]);
    let error = etcd.fails(&ask).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    server.in_turn("LeaseRevoke", &[Turn::Usual, NO_LEADER]);
    // Only the first of two leases could be revoked.
    let error = etcd.withdraw(&ask.ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.leases().len(), 1);
    let withdrawn = etcd.withdraw(&ask.ticket).await.unwrap();
    assert_eq!(withdrawn, Released::NotHeld);
    assert!(server.leases().is_empty());
    assert_eq!(server.connections("LeaseRevoke").len(), 3);
}

#[tokio::test]
async fn a_lease_that_has_ended_already_is_revoked_without_an_error() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    server.in_turn("Txn", &[Turn::Lost]);
    etcd.fails(&ask).await;
    server.etcd(|model| model.end_lease(FIRST));
    let withdrawn = etcd.withdraw(&ask.ticket).await.unwrap();
    assert_eq!(withdrawn, Released::NotHeld);
}

#[tokio::test]
async fn a_close_waits_for_the_leases_that_are_given_back() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    server.in_turn("Txn", &[Turn::Lost]);
    etcd.fails(&ask).await;
    etcd.grants(&ask).await;
    etcd.release(&ask.ticket).await.unwrap();
    assert!(!etcd.shared.in_flight.is_zero());
    etcd.close().await;
    assert!(etcd.shared.in_flight.is_zero());
}
