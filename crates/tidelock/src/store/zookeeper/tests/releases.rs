//! Releases and withdrawals.

use super::*;

#[tokio::test]
async fn a_release_deletes_the_node_and_a_second_one_finds_nothing() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    let path = server.path_of(&held.ticket);
    for expected in [Released::Freed, Released::NotHeld] {
        let released = store.release(&held.ticket).await.unwrap();
        assert_eq!(released, expected);
    }
    assert_eq!(server.heard("delete"), [format!("delete {path}")]);
    assert!(server.children(STOCK).is_empty());
}

/// Otherwise the caller would take the lock for free, and others would wait for its lease.
#[tokio::test]
async fn a_release_without_a_reply_is_not_reported_as_done() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    for (fault, second) in [
        (ServerFault::LosesReply, Released::NotHeld),
        (ServerFault::Ignores, Released::Freed),
    ] {
        granted(&store, &held).await;
        server.on("delete", fault);
        let lost = unanswered(&server, "delete", store.release(&held.ticket)).await;
        assert!(lost.unwrap_err().outcome_unknown());
        let repeated = store.release(&held.ticket).await.unwrap();
        assert_eq!(repeated, second);
        assert!(server.children(STOCK).is_empty());
    }
}

#[tokio::test]
async fn a_release_that_the_server_refuses_keeps_the_lock() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    server.on("delete", ServerFault::Refuses(NO_AUTH));
    let error = store.release(&held.ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    refused(&store, &ask(LockKind::Mutex)).await;
    let released = store.release(&held.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
}

#[tokio::test]
async fn a_waiter_that_is_withdrawn_leaves_no_node_and_never_holds() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (first, second) = (patient(LockKind::Mutex), patient(LockKind::Mutex));
    granted(&store, &first).await;
    refused(&store, &second).await;
    let left = store.withdraw(&second.ticket).await.unwrap();
    assert_eq!(left, Released::NotHeld);
    assert_eq!(server.children(STOCK).len(), 1);
    let error = failed(&store, &second).await;
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let known = store.withdraw(&ticket(LockKind::Mutex)).await.unwrap();
    assert_eq!(known, Released::NotHeld, "it has sent nothing");
    assert_eq!(server.heard("delete").len(), 1);
}

/// The create is executed before the list of the withdrawal, so the list shows its node.
#[tokio::test]
async fn a_withdrawal_deletes_the_node_of_a_create_without_a_reply_and_no_other() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let other = patient(LockKind::Mutex);
    granted(&store, &other).await;
    server.on(CREATE, ServerFault::LosesReply);
    let lost = patient(LockKind::Mutex);
    unanswered(&server, CREATE, failed(&store, &lost)).await;
    assert_eq!(server.children(STOCK).len(), 2);
    let left = store.withdraw(&lost.ticket).await.unwrap();
    assert_eq!(left, Released::NotHeld);
    assert_eq!(server.children(STOCK).len(), 1);
    server.path_of(&other.ticket);
}

/// The server may not have deleted the node yet. "Not held" would be a success if the release is repeated.
#[tokio::test]
async fn a_release_after_a_close_is_in_doubt() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    let grant = granted(&store, &held).await;
    store.close().await;
    assert!(server.sessions().is_empty() && server.children(STOCK).is_empty());
    let error = store.release(&held.ticket).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    // The task that watches over the session hears of its end.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let bond = grant.bond.expect("a session");
    assert!(!bond.is_severed(), "its owner has ended it");
}
