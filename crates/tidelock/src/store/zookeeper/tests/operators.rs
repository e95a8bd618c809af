//! Operators look at locks, and take them.

use std::time::SystemTime;

use super::*;
use crate::snapshot::Mode;

/// The path of a node of another program in the queue of `stock`.
fn foreign(number: u32) -> String {
    format!("{STOCK}/_c_x-lock-{number:010}")
}

/// A node that makes the number of a semaphore, ahead of all others.
const MAKER: &str = "/tidelock/stock/_c_a-number-__WRIT__%lock-0000000000";

async fn seen(store: &ZooKeeper) -> Snapshot {
    store.inspect(&stock()).await.unwrap()
}

#[tokio::test]
async fn an_operator_sees_the_holder_the_waiters_and_the_end_of_the_lease() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let info = ClientInfo::new("web-1", 7, "shop", SystemTime::UNIX_EPOCH);
    let client = ClientId::random();
    store.announce(&client, Some(&info)).await.unwrap();
    store.announce(&client, None).await.unwrap();
    let held = ask(LockKind::Mutex);
    let grant = granted(&store, &held).await;
    for _ in 0..2 {
        refused(&store, &patient(LockKind::Mutex)).await;
    }
    let seen = seen(&store).await;
    let [holder] = &seen.holders[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(holder.owner, held.ticket.owner.text());
    assert_eq!(holder.client.as_ref(), Some(&info));
    assert_eq!((seen.token, seen.waiters), (grant.token, Some(2)));
    let left = seen.expires_in.expect("its lease is known");
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
}

#[tokio::test]
async fn all_readers_are_shown_with_the_newest_token() {
    let server = TestServer::start().await;
    let store = server.store().await;
    granted(&store, &ask(LockKind::Read)).await;
    let last = granted(&store, &ask(LockKind::Read)).await;
    refused(&store, &patient(LockKind::Write)).await;
    let seen = seen(&store).await;
    assert!(seen.holders.iter().all(|holder| holder.mode == Mode::Read));
    assert_eq!((seen.holders.len(), seen.waiters), (2, Some(1)));
    assert_eq!(seen.token, last.token);
}

#[tokio::test]
async fn the_node_of_another_program_holds_without_a_known_end() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let empty = seen(&store).await;
    assert!(!empty.is_locked() && empty.token.is_none());
    assert_eq!((empty.waiters, empty.permits), (Some(0), None));
    server.tree(|tree| {
        tree.make_for(FOREIGN, MAKER, b"");
        tree.make_for(FOREIGN, &foreign(1), b"10.0.0.7");
    });
    let seen = seen(&store).await;
    let owners: Vec<&str> = seen.owners().collect();
    assert_eq!(owners, ["_c_x-lock-0000000001"], "a maker holds nothing");
    assert_eq!((seen.expires_in, seen.waiters), (None, Some(0)));
    assert!(store.force_release(&stock(), None).await.unwrap());
    let left = server.children(STOCK);
    assert_eq!(left, ["_c_a-number-__WRIT__%lock-0000000000"]);
}

/// Its permits are not in the queue of the lock.
#[tokio::test]
async fn a_semaphore_of_another_program_has_no_holder_that_could_be_freed() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(&format!("{STOCK}/leases"), b""));
    assert!(!seen(&store).await.is_locked());
    assert!(!store.force_release(&stock(), None).await.unwrap());
    assert_eq!(server.children(STOCK), ["leases"]);
}

/// Nodes of other programs know no delays.
#[tokio::test]
async fn our_nodes_wait_for_a_delay_and_those_of_other_programs_do_not() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, b"7 5000"));
    let waits = patient(LockKind::Mutex);
    refused(&store, &waits).await;
    let barred = seen(&store).await;
    assert_eq!((barred.is_locked(), barred.waiters), (false, Some(1)));
    assert!(!store.force_release(&stock(), Some(&barred)).await.unwrap());
    assert!(server.data(MARK).is_some());
    assert!(store.force_release(&stock(), None).await.unwrap());
    assert_eq!(server.data(MARK), None);
    assert_eq!(server.children(STOCK).len(), 1, "it keeps its place");
    store.withdraw(&waits.ticket).await.unwrap();
    server.tree(|tree| {
        tree.make(MARK, b"7 5000");
        tree.make_for(FOREIGN, &foreign(1), b"10.0.0.7");
    });
    let held = seen(&store).await;
    assert_eq!((held.is_locked(), held.waiters), (true, Some(0)));
}

#[tokio::test]
async fn a_lock_whose_holder_goes_during_the_look_is_read_again() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        tree.make_for(FOREIGN, &foreign(1), b"");
        tree.make_for(FOREIGN, &foreign(2), b"");
    });
    server.before("get /tidelock/stock/_c_x", |tree| tree.remove(&foreign(1)));
    let seen = seen(&store).await;
    let owners: Vec<&str> = seen.owners().collect();
    assert_eq!(owners, ["_c_x-lock-0000000002"]);
}

#[tokio::test]
async fn a_sequencer_is_good_as_long_as_its_node_is_the_first() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (first, second) = (patient(LockKind::Fenced), patient(LockKind::Fenced));
    let one = granted(&store, &first).await.token.unwrap();
    let name = stock();
    let is_good = |token| store.verify(&name, token);
    refused(&store, &second).await;
    let other = FencingToken::new(server.created(&server.path_of(&second.ticket)));
    assert!(is_good(one).await.unwrap() && !is_good(other).await.unwrap());
    let path = server.path_of(&first.ticket);
    server.before("exists", move |tree| tree.remove(&path));
    assert!(is_good(other).await.unwrap(), "the first one has gone");
    store.withdraw(&second.ticket).await.unwrap();
    assert!(!is_good(other).await.unwrap(), "nobody holds it");
}

#[tokio::test]
async fn a_list_has_the_names_that_are_held_or_wanted() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        tree.make_for(FOREIGN, &foreign(1), b"");
        tree.make(MARK, b"7 5000");
        tree.make_for(FOREIGN, "/tidelock/safe/_c_x-__READ__0000000000", b"");
        tree.make_for(FOREIGN, "/tidelock/secret/_c_x-lock-0000000000", b"");
        tree.make_for(
            FOREIGN,
            "/tidelock/made/_c_a-number-__WRIT__%lock-0000000000",
            b"",
        );
        tree.make("/tidelock/empty", b"");
        for semaphore in ["render", "still"] {
            tree.make(&format!("/tidelock/{semaphore}/{}", keys::NUMBER), b"3 1f");
        }
        let claim = "/tidelock/%permits/render/_c_x-2-permits-0000000000";
        tree.make_for(FOREIGN, claim, b"its owner");
        let waits = "/tidelock/%permits/still/_c_x-2-permits-0000000000";
        tree.make_for(FOREIGN, waits, b"");
    });
    let secret = "list /tidelock/secret";
    for (pattern, names) in [
        ("*", &["render", "safe", "stock"][..]),
        ("s*", &["safe", "stock"][..]),
    ] {
        server.on(secret, ServerFault::Refuses(NO_AUTH));
        let page = store.list(pattern, None).await.unwrap();
        assert_eq!(page.names, names);
        assert_eq!(page.next, None);
    }
    let all = store.list("*", None).await.unwrap();
    assert_eq!(all.names.len(), 4, "now this user may read all of them");
    let claims = "list /tidelock/%permits/render";
    server.on(claims, ServerFault::Refuses(NO_AUTH));
    let page = store.list("r*", None).await.unwrap();
    assert!(page.names.is_empty());
    for request in [claims, secret] {
        server.on(request, ServerFault::Refuses(THROTTLED));
        let error = store.list("*", None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_forced_release_frees_the_holder_and_no_waiter() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (first, second) = (patient(LockKind::Mutex), patient(LockKind::Mutex));
    assert!(!store.force_release(&stock(), None).await.unwrap());
    let held = AttemptRequest {
        delay: LIMIT,
        ..first
    };
    granted(&store, &held).await;
    refused(&store, &second).await;
    assert!(store.force_release(&stock(), None).await.unwrap());
    assert_eq!(server.data(MARK), None, "the delay ends too");
    server.path_of(&second.ticket);
    assert_eq!(server.children(STOCK).len(), 1);
    granted(&store, &second).await;
}

/// Its holder could release it in between, and the delay would be that of the next hold.
#[tokio::test]
async fn a_forced_release_ends_a_hold_and_its_delay_in_one_transaction() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = AttemptRequest {
        delay: LIMIT,
        ..ask(LockKind::Mutex)
    };
    granted(&store, &held).await;
    let path = server.path_of(&held.ticket);
    assert!(store.force_release(&stock(), None).await.unwrap());
    let both = format!("multi delete {path}; delete {MARK}");
    assert_eq!(server.heard("multi"), [both]);
    assert!(server.heard(&format!("delete {MARK}")).is_empty());
}

#[tokio::test]
async fn a_forced_release_of_the_holders_that_were_seen_touches_no_other() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = AttemptRequest {
        delay: LIMIT,
        ..ask(LockKind::Mutex)
    };
    granted(&store, &held).await;
    let old = seen(&store).await;
    store.release(&held.ticket).await.unwrap();
    let next = AttemptRequest {
        delay: LIMIT,
        ..ask(LockKind::Mutex)
    };
    granted(&store, &next).await;
    assert!(!store.force_release(&stock(), Some(&old)).await.unwrap());
    let now = seen(&store).await;
    assert!(now.is_locked());
    assert!(store.force_release(&stock(), Some(&now)).await.unwrap());
    assert!(server.children(STOCK).is_empty());
    assert_eq!(server.data(MARK), None);
}

/// The waiter has marked the delay as seen, which changes its version.
#[tokio::test]
async fn a_forced_release_ends_a_delay_that_changes_meanwhile_and_no_later_one() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let delete = format!("delete {MARK}");
    server.tree(|tree| {
        tree.make(STOCK, b"");
        tree.make(MARK, b"7 5000");
    });
    server.before(&delete, |tree| tree.write(MARK, b"7 5000 seen"));
    assert!(store.force_release(&stock(), None).await.unwrap());
    assert_eq!(server.data(MARK), None);
    assert_eq!(server.heard(&delete).len(), 2);
    server.tree(|tree| tree.make(MARK, b"7 5000"));
    server.before(&delete, |tree| tree.write(MARK, b"8 5000"));
    assert!(store.force_release(&stock(), None).await.unwrap());
    assert_eq!(server.data(MARK).as_deref(), Some("8 5000"));
}

#[tokio::test]
async fn a_forced_release_that_fails_half_way_leaves_its_outcome_open() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        for number in [1, 2] {
            let path = format!("{STOCK}/_c_x-__READ__{number:010}");
            tree.make_for(FOREIGN, &path, b"");
        }
    });
    let both = seen(&store).await;
    let second = format!("delete {STOCK}/_c_x-__READ__0000000002");
    server.on(&second, ServerFault::Refuses(THROTTLED));
    let error = store
        .force_release(&stock(), Some(&both))
        .await
        .unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    assert_eq!(server.children(STOCK), ["_c_x-__READ__0000000002"]);
    for seen in [None, Some(seen(&store).await)] {
        server.on(&second, ServerFault::Refuses(THROTTLED));
        let forced = store.force_release(&stock(), seen.as_ref()).await;
        let kind = forced.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Unavailable, "nothing was changed");
    }
    let path = format!("{STOCK}/_c_x-__READ__0000000003");
    server.tree(|tree| tree.make_for(FOREIGN, &path, b""));
    server.on(&second, ServerFault::Refuses(THROTTLED));
    let error = store.force_release(&stock(), None).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
}
