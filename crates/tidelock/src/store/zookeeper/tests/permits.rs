//! Permits of a semaphore.

use futures_util::FutureExt;

use super::*;
use crate::snapshot::{Mode, PermitCount};
use crate::store::{NotYet, PermitChange, PermitCounter};

/// The transaction that grants permits.
const GRANTS: &str = "multi check";

/// A read or a watch of a claim begins so.
const CLAIM: &str = "/tidelock/%permits/stock/_c_";

/// A server with a semaphore, and its store.
async fn semaphore(permits: u32) -> (TestServer, ZooKeeper) {
    let server = TestServer::start().await;
    let store = server.store().await;
    let set = store.change(&stock(), PermitChange::Set(permits)).await;
    assert!(set.unwrap());
    (server, store)
}

fn one(permits: u16) -> AttemptRequest {
    ask(LockKind::Permits(permits))
}

fn waits(permits: u16) -> AttemptRequest {
    patient(LockKind::Permits(permits))
}

/// The path of the ticket's claim.
fn claim_of(server: &TestServer, ask: &AttemptRequest) -> String {
    let prefix = keys::prefix(&ask.ticket);
    let claims = server.children(CLAIMS).into_iter();
    let own: Vec<String> = claims.filter(|node| node.starts_with(&prefix)).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    format!("{CLAIMS}/{}", own[0])
}

/// The claim of another client.
fn foreign(permits: u16, number: u32) -> String {
    format!("{CLAIMS}/_c_x-{permits}-permits-{number:010}")
}

#[tokio::test]
async fn permits_go_to_those_that_wait_in_the_order_of_their_arrival() {
    let (server, store) = semaphore(3).await;
    let (first, second, third) = (waits(2), waits(2), waits(1));
    let grant = granted(&store, &first).await;
    assert!(grant.token.is_none() && grant.bond.is_some_and(|bond| bond.is_connected()));
    let path = claim_of(&server, &first);
    assert_eq!(
        server.data(&path).as_deref(),
        Some(first.ticket.owner.text())
    );
    let mut wakes = Vec::new();
    for ask in [&second, &third] {
        let wait = refused(&store, ask).await;
        assert_eq!(wait.recheck, None, "it is told");
        wakes.push(wait.wake.expect("it waits"));
    }
    assert_eq!(server.heard("watched exists /tidelock/stock").len(), 2);
    assert_eq!(server.heard("watched list").len(), 1, "the first waiter");
    let watched = format!("watched exists {}", claim_of(&server, &second));
    assert_eq!(server.heard("watched exists /tidelock/%permits"), [watched]);
    let released = store.release(&first.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    in_time(wakes[0].woken()).await;
    assert!(
        wakes[1].woken().now_or_never().is_none(),
        "it is not its turn"
    );
    granted(&store, &second).await;
    in_time(wakes[1].woken()).await;
    granted(&store, &third).await;
}

#[tokio::test]
async fn a_caller_that_does_not_wait_leaves_no_claim() {
    let (server, store) = semaphore(1).await;
    let held = one(1);
    granted(&store, &held).await;
    let creates = format!("create {CLAIM}");
    let known = server.heard(&creates).len();
    let wait = refused(&store, &one(1)).await;
    assert!(wait.wake.is_none() && wait.recheck.is_none());
    assert_eq!(server.heard(&creates).len(), known, "it looks first");
    store.release(&held.ticket).await.unwrap();
    // Another one is faster.
    server.before(&creates, |tree| {
        let number = u32::try_from(tree.node(CLAIMS).unwrap().next).unwrap();
        tree.make_for(FOREIGN, &foreign(1, number), b"");
    });
    refused(&store, &one(1)).await;
    assert_eq!(server.heard(&creates).len(), known + 1);
    assert_eq!(server.children(CLAIMS).len(), 1, "only that of the other");
}

#[tokio::test]
async fn a_grant_without_a_reply_is_found_and_counts_once() {
    let (server, store) = semaphore(2).await;
    let lost = waits(2);
    server.on(GRANTS, ServerFault::LosesReply);
    let error = unanswered(&server, GRANTS, failed(&store, &lost)).await;
    assert!(error.outcome_unknown(), "{error}");
    granted(&store, &lost).await;
    assert_eq!(server.children(CLAIMS).len(), 1);
    let released = store.release(&lost.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
}

#[tokio::test]
async fn a_claim_that_goes_before_its_grant_is_made_again() {
    let (server, store) = semaphore(2).await;
    let waits = waits(2);
    let prefix = keys::prefix(&waits.ticket);
    server.before(GRANTS, move |tree| {
        let claims = tree.children(CLAIMS).unwrap().into_iter();
        let own: Vec<String> = claims.filter(|node| node.starts_with(&prefix)).collect();
        tree.remove(&format!("{CLAIMS}/{}", own[0]));
    });
    granted(&store, &waits).await;
    assert!(claim_of(&server, &waits).ends_with("-0000000001"));
}

#[tokio::test]
async fn a_number_that_shrinks_before_the_grant_is_counted_anew() {
    let (server, store) = semaphore(2).await;
    granted(&store, &one(1)).await;
    let epoch = server.children(NUMBER).remove(0);
    let smaller = format!("1 {epoch}").into_bytes();
    server.before(GRANTS, move |tree| tree.write(NUMBER, &smaller));
    refused(&store, &one(1)).await;
    assert_eq!(server.children(CLAIMS).len(), 1);
}

/// Without an end, the grant would be tried again and again until the deadline.
#[tokio::test]
async fn a_number_without_its_epoch_gives_no_permits_until_it_is_made_again() {
    let (server, store) = semaphore(2).await;
    let epoch = format!("{NUMBER}/{}", server.children(NUMBER)[0]);
    server.tree(|tree| tree.remove(&epoch));
    let waits = waits(1);
    let error = failed(&store, &waits).await;
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    server.before(GRANTS, |tree| {
        tree.remove(NUMBER);
        tree.make(NUMBER, b"2 2f");
        tree.make(&format!("{NUMBER}/2f"), b"");
    });
    granted(&store, &waits).await;
}

#[tokio::test]
async fn a_lock_is_no_semaphore() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let lock = format!("{STOCK}/_c_x-lock-0000000000");
    server.tree(|tree| tree.make_for(FOREIGN, &lock, b""));
    for ask in [one(1), waits(1)] {
        let error = failed(&store, &ask).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
}

#[tokio::test]
async fn a_waiter_is_woken_when_the_number_is_made() {
    let server = TestServer::start().await;
    let store = server.store().await;
    refused(&store, &one(1)).await;
    let waits = waits(1);
    let mut wake = refused(&store, &waits).await.wake.expect("it waits");
    let set = store.change(&stock(), PermitChange::Set(1)).await;
    assert!(set.unwrap());
    in_time(wake.woken()).await;
    granted(&store, &waits).await;
}

#[tokio::test]
async fn a_claim_that_was_deleted_is_made_again() {
    let (server, store) = semaphore(1).await;
    granted(&store, &one(1)).await;
    let waits = waits(1);
    refused(&store, &waits).await;
    let lost = claim_of(&server, &waits);
    server.tree(|tree| tree.remove(&lost));
    refused(&store, &waits).await;
    let second = claim_of(&server, &waits);
    assert_ne!(second, lost);
    let gone = second.clone();
    server.before(&format!("exists {CLAIM}"), move |tree| tree.remove(&gone));
    refused(&store, &waits).await;
    assert_ne!(claim_of(&server, &waits), second);
}

/// Each of them changes between the look of a waiter and its watch.
#[tokio::test]
async fn what_changes_before_it_is_watched_is_read_again() {
    let (server, store) = semaphore(1).await;
    let held = foreign(1, 0);
    let takes = |tree: &mut ModelTree| tree.make_for(FOREIGN, &foreign(1, 0), b"its owner");
    // The number grows.
    server.tree(takes);
    let epoch = server.children(NUMBER).remove(0);
    let (larger, old) = (format!("2 {epoch}"), format!("1 {epoch}"));
    let watch = format!("watched exists {NUMBER}");
    server.before(&watch, move |tree| tree.write(NUMBER, larger.as_bytes()));
    let first = waits(1);
    granted(&store, &first).await;
    store.release(&first.ticket).await.unwrap();
    server.tree(|tree| tree.write(NUMBER, old.as_bytes()));
    // A holder leaves, while the first waiter looks.
    server.before("watched list", move |tree| tree.remove(&held));
    let second = waits(1);
    granted(&store, &second).await;
    // The waiter ahead leaves, and so does the holder.
    let ahead = foreign(1, 100);
    let path = ahead.clone();
    server.tree(|tree| tree.make_for(FOREIGN, &path, b""));
    let holder = claim_of(&server, &second);
    server.tree(|tree| tree.node_mut(CLAIMS).next = 101);
    server.before(&format!("watched exists {CLAIM}"), move |tree| {
        tree.remove(&ahead);
        tree.remove(&holder);
    });
    granted(&store, &waits(1)).await;
}

/// It got its permits before the number became smaller.
#[tokio::test]
async fn a_waiter_behind_one_that_holds_by_now_watches_all_claims() {
    let (server, store) = semaphore(1).await;
    granted(&store, &one(1)).await;
    let ahead = foreign(1, 1);
    server.tree(|tree| tree.make_for(FOREIGN, &ahead, b""));
    let path = ahead.clone();
    server.before(&format!("watched exists {CLAIM}"), move |tree| {
        tree.write(&path, b"its owner");
    });
    refused(&store, &waits(1)).await;
    assert_eq!(server.heard("watched list").len(), 1);
    refused(&store, &waits(1)).await;
    assert_eq!(
        server.heard("watched list").len(),
        1,
        "one waits ahead of it"
    );
}

#[tokio::test]
async fn a_waiter_for_which_there_is_no_room_to_watch_looks_by_itself() {
    let (server, store) = semaphore(1).await;
    let session = store.0.connection.current().unwrap();
    let path = "x".repeat(96 << 10);
    let all = session.watches.enter([&*path]).expect("it is empty");
    server.tree(|tree| tree.make_for(FOREIGN, &foreign(1, 0), b"its owner"));
    let first = waits(1);
    let wait = refused(&store, &first).await;
    assert_eq!(wait.recheck, Some(Duration::from_secs(1)));
    store.withdraw(&first.ticket).await.unwrap();
    server.tree(|tree| {
        for number in 1..300 {
            tree.make_for(FOREIGN, &foreign(1, number), b"");
        }
        tree.node_mut(CLAIMS).next = 300;
    });
    let wait = refused(&store, &waits(1)).await;
    assert_eq!(wait.recheck, Some(Duration::from_millis(1500)));
    assert!(server.heard("watched").is_empty());
    drop(all);
}

#[tokio::test]
async fn a_claim_without_a_number_of_its_own_is_deleted_and_its_caller_waits() {
    let (server, store) = semaphore(1).await;
    server.tree(|tree| {
        tree.make(CLAIMS, b"");
        tree.node_mut(CLAIMS).next = i64::from(i32::MAX);
    });
    let error = failed(&store, &waits(1)).await;
    assert!(NotYet::of(&error).is_some(), "{error}");
    assert!(server.children(CLAIMS).is_empty());
}

#[tokio::test]
async fn an_operator_sees_who_has_permits_and_takes_them_back() {
    let (server, store) = semaphore(5).await;
    let free = store.inspect(&stock()).await.unwrap();
    assert_eq!(free.permits, Some(PermitCount::new(5, 5)));
    assert!(!store.force_release(&stock(), None).await.unwrap());
    let (first, second) = (waits(3), waits(3));
    granted(&store, &first).await;
    refused(&store, &second).await;
    let seen = store.inspect(&stock()).await.unwrap();
    assert_eq!(seen.permits, Some(PermitCount::new(2, 5)));
    assert_eq!((seen.holders.len(), seen.waiters), (1, Some(1)));
    let holder = &seen.holders[0];
    assert_eq!(holder.owner, first.ticket.owner.permit_id(0));
    assert_eq!((holder.holds, holder.mode), (3, Mode::Permits));
    let left = seen.expires_in.expect("its lease is known");
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    let listed = store.list("*", None).await.unwrap();
    assert_eq!(listed.names, ["stock"]);
    assert!(!store.force_release(&stock(), Some(&free)).await.unwrap());
    assert!(store.force_release(&stock(), Some(&seen)).await.unwrap());
    claim_of(&server, &second);
    assert_eq!(
        server.children(CLAIMS).len(),
        1,
        "no waiter loses its place"
    );
    granted(&store, &second).await;
    assert!(!store.force_release(&stock(), Some(&seen)).await.unwrap());
    assert!(store.force_release(&stock(), None).await.unwrap());
    assert!(server.children(CLAIMS).is_empty());
}
