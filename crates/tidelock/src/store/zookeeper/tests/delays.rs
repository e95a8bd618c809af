//! Locks that nobody gets for a while after a hold has ended without a release.

use super::*;

const DELAY: Duration = Duration::from_secs(5);

/// The delay node of a hold that has ended.
const OF_ANOTHER: &[u8] = b"7 5000";

fn delayed(ask: AttemptRequest) -> AttemptRequest {
    AttemptRequest {
        delay: DELAY,
        ..ask
    }
}

/// The delay node of this hold.
fn own_mark(grant: &Grant) -> String {
    let token = grant.token.expect("a token");
    format!("{} 5000", token.get())
}

#[tokio::test]
async fn a_hold_marks_its_delay_and_a_release_ends_both() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = delayed(ask(LockKind::Mutex));
    let grant = granted(&store, &held).await;
    assert_eq!(server.data(MARK), Some(own_mark(&grant)));
    let again = granted(&store, &held).await;
    assert_eq!(again.token, grant.token);
    assert_eq!(server.data(MARK), Some(own_mark(&grant)));
    let released = store.release(&held.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert_eq!(server.data(MARK), None);
    assert!(server.children(STOCK).is_empty());
    assert_eq!(server.heard("multi").len(), 1);
}

#[tokio::test]
async fn a_delay_runs_by_the_clock_of_the_server_from_the_moment_it_is_seen() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    // Both times are rounded down to a millisecond.
    for (passed, left) in [(0, 5000), (2000, 3001), (3000, 1)] {
        server.tree(|tree| tree.clock += passed);
        let wait = refused(&store, &ask(LockKind::Mutex)).await;
        assert_eq!(wait.recheck, Some(Duration::from_millis(left)));
        assert_eq!(server.data(MARK).as_deref(), Some("7 5000 seen"));
        assert!(server.children(STOCK).is_empty(), "it does not wait");
    }
    server.tree(|tree| tree.clock += 1);
    granted(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(server.data(MARK), None);
}

#[tokio::test]
async fn a_delay_ends_by_the_clock_of_this_process_whatever_the_server_says() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    refused(&store, &ask(LockKind::Mutex)).await;
    skip(DELAY).await;
    let held = delayed(ask(LockKind::Mutex));
    let grant = granted(&store, &held).await;
    assert_eq!(server.data(MARK), Some(own_mark(&grant)));
    store.release(&held.ticket).await.unwrap();
    assert_eq!(server.data(MARK), None);
    // The next delay starts over.
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    let wait = refused(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(wait.recheck, Some(DELAY));
}

#[tokio::test]
async fn a_delay_that_nobody_can_read_bars_nobody() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, b"junk"));
    granted(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(server.data(MARK), None);
}

#[tokio::test]
async fn a_delay_that_changes_after_the_look_is_read_again() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    server.before("set /tidelock/%delays", |tree| tree.remove(MARK));
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    store.release(&held.ticket).await.unwrap();
    server.tree(|tree| tree.make(MARK, b"8 0"));
    server.before("delete /tidelock/%delays", |tree| tree.write(MARK, b"9 0"));
    granted(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(server.heard("delete /tidelock/%delays").len(), 2);
    assert_eq!(server.data(MARK), None);
}

#[tokio::test]
async fn a_delay_node_that_another_hold_leaves_meanwhile_is_replaced() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let create = format!("create {MARK}");
    server.before(&create, |tree| tree.make(MARK, b"8 0"));
    let grant = granted(&store, &delayed(ask(LockKind::Mutex))).await;
    assert_eq!(server.data(MARK), Some(own_mark(&grant)));
}

#[tokio::test]
async fn a_delay_that_the_server_does_not_let_this_user_change_is_an_error() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    let set = format!("set {MARK}");
    server.on(&set, ServerFault::Refuses(NO_AUTH));
    let first = ask(LockKind::Mutex);
    let error = failed(&store, &first).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    server.on(&set, ServerFault::Ignores);
    let error = unanswered(&server, &set, failed(&store, &first)).await;
    assert!(error.outcome_unknown(), "{error}");
}

/// The delay node is known before it is written.
#[tokio::test]
async fn a_withdrawal_after_a_lost_reply_leaves_no_delay_behind() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make("/tidelock/%delays", b""));
    let create = format!("create {MARK}");
    server.on(&create, ServerFault::LosesReply);
    let lost = delayed(ask(LockKind::Mutex));
    let error = unanswered(&server, &create, failed(&store, &lost)).await;
    assert!(error.outcome_unknown(), "{error}");
    assert!(server.data(MARK).is_some());
    store.withdraw(&lost.ticket).await.unwrap();
    assert_eq!(server.data(MARK), None);
    assert!(server.children(STOCK).is_empty());
}

#[tokio::test]
async fn a_waiter_is_woken_when_an_operator_ends_the_delay() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    let waits = patient(LockKind::Mutex);
    let wait = refused(&store, &waits).await;
    assert_eq!(wait.recheck, Some(DELAY));
    let mut wake = wait.wake.expect("it waits");
    server.tree(|tree| tree.remove(MARK));
    in_time(wake.woken()).await;
    granted(&store, &waits).await;
    assert_eq!(server.heard("watched exists /tidelock/%delays").len(), 1);
}

#[tokio::test]
async fn a_delay_that_ends_before_it_is_watched_bars_nobody() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    let watch = format!("watched exists {MARK}");
    server.before(&watch, |tree| tree.remove(MARK));
    granted(&store, &patient(LockKind::Mutex)).await;
}

#[tokio::test]
async fn a_waiter_that_cannot_watch_the_delay_looks_by_itself() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, OF_ANOTHER));
    let session = store.0.connection.current().unwrap();
    let path = "x".repeat(96 << 10);
    let all = session.watches.enter([&*path]).expect("it is empty");
    let wait = refused(&store, &patient(LockKind::Mutex)).await;
    assert_eq!(wait.recheck, Some(Duration::from_secs(1)));
    drop(all);
}

#[tokio::test]
async fn a_release_leaves_the_delay_of_another_hold_alone() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = delayed(ask(LockKind::Mutex));
    granted(&store, &held).await;
    server.tree(|tree| tree.write(MARK, OF_ANOTHER));
    let released = store.release(&held.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert_eq!(server.data(MARK).as_deref(), Some("7 5000"));
    assert!(server.children(STOCK).is_empty());
}

/// Another client may have the lock by now.
#[tokio::test]
async fn a_release_of_a_hold_that_was_lost_leaves_its_delay() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = delayed(ask(LockKind::Mutex));
    let grant = granted(&store, &held).await;
    let path = server.path_of(&held.ticket);
    server.tree(|tree| tree.remove(&path));
    let released = store.release(&held.ticket).await.unwrap();
    assert_eq!(released, Released::NotHeld);
    assert_eq!(server.data(MARK), Some(own_mark(&grant)));
}

#[tokio::test]
async fn a_release_deletes_its_node_although_its_delay_changes_meanwhile() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = delayed(ask(LockKind::Mutex));
    granted(&store, &held).await;
    server.before("multi", |tree| tree.write(MARK, OF_ANOTHER));
    let released = store.release(&held.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert!(server.children(STOCK).is_empty());
    assert_eq!(server.data(MARK).as_deref(), Some("7 5000"));
}

#[tokio::test]
async fn a_release_of_both_without_a_reply_is_not_reported_as_done() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = delayed(ask(LockKind::Mutex));
    granted(&store, &held).await;
    server.on("multi", ServerFault::Refuses(NO_AUTH));
    let error = store.release(&held.ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    server.on("multi", ServerFault::LosesReply);
    let lost = unanswered(&server, "multi", store.release(&held.ticket)).await;
    assert!(lost.unwrap_err().outcome_unknown());
    let repeated = store.release(&held.ticket).await.unwrap();
    assert_eq!(repeated, Released::NotHeld);
    assert!(server.children(STOCK).is_empty() && server.data(MARK).is_none());
}
