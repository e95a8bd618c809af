//! Attempts to acquire a lock.

use futures_util::FutureExt;

use super::*;
use crate::store::zookeeper::entry::NodePlace;
use crate::store::zookeeper::own_node::OwnNode;
use crate::store::{BootInstant, NotYet};

#[tokio::test]
async fn a_grant_has_the_transaction_of_its_node_as_token_and_ends_with_its_session() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let ask = ask(LockKind::Fenced);
    let grant = granted(&store, &ask).await;
    let path = server.path_of(&ask.ticket);
    assert_eq!(grant.token, Some(FencingToken::new(server.created(&path))));
    assert_eq!(server.data(&path).as_deref(), Some(ask.ticket.owner.text()));
    let owner = server.tree(|tree| tree.node(&path).unwrap().owner);
    assert_eq!(server.sessions(), [owner]);
    let bond = grant.bond.expect("a session");
    assert!(bond.is_connected() && !bond.is_severed());
    server.expires_sessions();
    is_severed(&bond).await;
}

/// The path of the lock is missing. The server deletes such paths when nobody queues.
#[tokio::test]
async fn the_path_of_a_lock_is_made_for_its_first_node() {
    for patience in [Duration::ZERO, LIMIT] {
        let server = TestServer::start().await;
        let store = server.store().await;
        let first = AttemptRequest {
            patience,
            ..ask(LockKind::Mutex)
        };
        granted(&store, &first).await;
        let anyone = (31, "world".to_owned(), "anyone".to_owned());
        for path in [STOCK, &server.path_of(&first.ticket)] {
            let rights = server.tree(|tree| tree.node(path).unwrap().rights.clone());
            assert_eq!(rights, std::slice::from_ref(&anyone), "{path}");
        }
    }
}

/// A parent that may or may not exist does no harm.
#[tokio::test]
async fn a_path_that_cannot_be_made_leaves_no_doubt() {
    let (deleted, closed) = ("was deleted during", "the connection was lost");
    for (faults, kind, why) in [
        ([Some(NO_AUTH), None], ErrorKind::Refused, "may not do that"),
        ([Some(NO_NODE); 2], ErrorKind::Unavailable, deleted),
        ([None; 2], ErrorKind::Unavailable, closed),
    ] {
        let server = TestServer::start().await;
        let store = server.store().await;
        for fault in faults {
            let fault = fault.map_or(ServerFault::HangsUp, ServerFault::Refuses);
            server.on("create /tidelock", fault);
        }
        let error = failed(&store, &ask(LockKind::Mutex)).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_is_an_error_and_leaves_no_doubt() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(MARK, b"7 5000"));
    let waits = patient(LockKind::Mutex);
    refused(&store, &waits).await;
    for request in ["sync", "list", "get"] {
        let known = server.heard("get").len();
        server.on(request, ServerFault::Refuses(NO_AUTH));
        let error = failed(&store, &waits).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{request}: {error}");
        // The last one that it has sent. The next fault is for another attempt.
        server.hears("get", known + 1).await;
    }
    server.on("list", ServerFault::LosesReply);
    let error = unanswered(&server, "list", failed(&store, &waits)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_caller_that_does_not_wait_looks_first_and_leaves_no_node() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let holder = ask(LockKind::Mutex);
    granted(&store, &holder).await;
    let wait = refused(&store, &ask(LockKind::Mutex)).await;
    assert!(wait.wake.is_none() && wait.ahead.is_none() && wait.recheck.is_none());
    assert_eq!(server.heard(CREATE).len(), 1, "only that of the holder");
    assert_eq!(server.children(STOCK).len(), 1);
    granted(&store, &holder).await;
}

#[tokio::test]
async fn a_caller_that_does_not_wait_takes_its_node_back_if_another_one_was_faster() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let other = format!("{STOCK}/_c_x-lock-0000000000");
    let path = other.clone();
    server.before(CREATE, move |tree| tree.make_for(FOREIGN, &path, b""));
    refused(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(server.heard(CREATE).len(), 1);
    assert_eq!(server.children(STOCK), ["_c_x-lock-0000000000"]);
    server.tree(|tree| tree.remove(&other));
    granted(&store, &ask(LockKind::Mutex)).await;
}

/// The caller waits for one answer, so all its requests share one response timeout.
#[tokio::test]
async fn a_try_that_lost_a_race_ends_within_the_response_timeout() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let other = format!("{STOCK}/_c_x-lock-0000000000");
    server.before(CREATE, move |tree| {
        tree.make_for(FOREIGN, &other, b"");
    });
    server.on("delete", ServerFault::Ignores);
    let begun = tokio::time::Instant::now();
    let ask = ask(LockKind::Mutex);
    let failed = failed(&store, &ask);
    let tried = async {
        server.hears(CREATE, 1).await;
        skip(LIMIT / 2).await;
        server.hears("delete", 1).await;
        skip(LIMIT / 2).await;
    };
    let (error, ()) = tokio::join!(failed, tried);
    assert!(error.is_retryable(), "{error}");
    assert!(begun.elapsed() < LIMIT * 3 / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_before_it_and_holds_next() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (first, second) = (patient(LockKind::Mutex), patient(LockKind::Mutex));
    granted(&store, &first).await;
    let wait = refused(&store, &second).await;
    assert_eq!((wait.ahead, wait.recheck), (Some(1), None));
    let mut wake = wait.wake.expect("it waits");
    assert!(wake.woken().now_or_never().is_none());
    let released = store.release(&first.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    in_time(wake.woken()).await;
    granted(&store, &second).await;
    assert_eq!(server.heard(CREATE).len(), 3, "one of them had no path");
}

#[tokio::test]
async fn each_waiter_watches_the_last_node_that_blocks_it() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let [reader, writer, second, third] = [
        LockKind::Read,
        LockKind::Write,
        LockKind::Read,
        LockKind::Read,
    ]
    .map(patient);
    granted(&store, &reader).await;
    for (ask, ahead) in [(&writer, 1), (&second, 2), (&third, 3)] {
        assert_eq!(refused(&store, ask).await.ahead, Some(ahead));
    }
    let [before_writer, before_readers] =
        [&reader, &writer].map(|ask| format!("watched exists {}", server.path_of(&ask.ticket)));
    let watched = server.heard("watched exists");
    assert_eq!(
        watched,
        [before_writer, before_readers.clone(), before_readers]
    );
    store.release(&reader.ticket).await.unwrap();
    store.withdraw(&writer.ticket).await.unwrap();
    let [one, other] = [
        granted(&store, &second).await,
        granted(&store, &third).await,
    ];
    assert!(one.token < other.token);
}

#[tokio::test]
async fn a_waiter_whose_node_was_deleted_queues_again() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (first, second) = (patient(LockKind::Mutex), patient(LockKind::Mutex));
    granted(&store, &first).await;
    refused(&store, &second).await;
    let lost = server.path_of(&second.ticket);
    server.tree(|tree| tree.remove(&lost));
    assert_eq!(refused(&store, &second).await.ahead, Some(1));
    assert_ne!(server.path_of(&second.ticket), lost);
}

#[tokio::test]
async fn a_node_that_goes_before_it_is_watched_blocks_nobody() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let other = format!("{STOCK}/_c_x-lock-0000000000");
    server.tree(|tree| tree.make_for(FOREIGN, &other, b""));
    let gone = other.clone();
    server.before("watched exists", move |tree| tree.remove(&gone));
    granted(&store, &patient(LockKind::Mutex)).await;
}

#[tokio::test]
async fn a_create_without_a_reply_is_found_and_not_repeated() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(STOCK, b""));
    server.on(CREATE, ServerFault::LosesReply);
    let ask = patient(LockKind::Mutex);
    let error = unanswered(&server, CREATE, failed(&store, &ask)).await;
    assert!(error.outcome_unknown(), "{error}");
    let grant = granted(&store, &ask).await;
    assert_eq!(server.heard(CREATE).len(), 1);
    let created = server.created(&server.path_of(&ask.ticket));
    assert_eq!(grant.token.map(FencingToken::get), Some(created));
}

/// The lease task deletes the node of a waiter that was not polled for two leases. The server may throttle the delete.
#[tokio::test]
async fn a_node_that_is_being_deleted_is_not_found_again() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let other = format!("{STOCK}/_c_x-lock-0000000000");
    server.tree(|tree| tree.make_for(FOREIGN, &other, b""));
    let waits = patient(LockKind::Mutex);
    refused(&store, &waits).await;
    let deleted = server.path_of(&waits.ticket);
    // The task has given it up, and no delete arrives.
    store.0.registry.end(BootInstant::FAR, |_, path| {
        store.0.deleting.lock().insert(path.to_owned());
    });
    server.on(CREATE, ServerFault::Ignores);
    let error = unanswered(&server, CREATE, failed(&store, &waits)).await;
    assert!(error.outcome_unknown(), "{error}");
    let wait = refused(&store, &waits).await;
    assert_eq!(wait.ahead, Some(2), "it has made a new node");
    server.tree(|tree| {
        tree.remove(&other);
        tree.remove(&deleted);
    });
    granted(&store, &waits).await;
}

#[tokio::test]
async fn a_create_that_never_arrived_is_sent_again() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(STOCK, b""));
    server.on(CREATE, ServerFault::Ignores);
    let ask = patient(LockKind::Mutex);
    let error = unanswered(&server, CREATE, failed(&store, &ask)).await;
    assert!(error.outcome_unknown(), "{error}");
    // A node of an earlier session of this client: it goes with that session.
    let earlier = format!("{STOCK}/{}0000000000", keys::prefix(&ask.ticket));
    server.tree(|tree| tree.make_for(FOREIGN, &earlier, b""));
    let wait = refused(&store, &ask).await;
    assert_eq!(wait.ahead, Some(1), "that node is not its own");
    server.tree(|tree| tree.remove(&earlier));
    granted(&store, &ask).await;
    assert_eq!(server.heard(CREATE).len(), 2);
}

#[tokio::test]
async fn a_create_that_the_server_refuses_leaves_no_doubt_and_may_be_repeated() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(STOCK, b""));
    server.on(CREATE, ServerFault::Refuses(THROTTLED));
    let ask = patient(LockKind::Mutex);
    let error = failed(&store, &ask).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(store.0.registry.connection(&ask.ticket).is_none());
    granted(&store, &ask).await;
}

#[tokio::test]
async fn a_semaphore_is_no_lock() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(NUMBER, b"3 1f"));
    for ask in [ask(LockKind::Mutex), patient(LockKind::Mutex)] {
        let error = failed(&store, &ask).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
}

/// While its node is there, the server keeps the path and does not count from zero again.
#[tokio::test]
async fn a_node_without_a_number_of_its_own_is_deleted_and_its_caller_waits() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        tree.make(STOCK, b"");
        tree.node_mut(STOCK).next = i64::from(i32::MAX);
    });
    let ask = patient(LockKind::Mutex);
    let error = failed(&store, &ask).await;
    assert!(NotYet::of(&error).is_some(), "{error}");
    assert!(server.children(STOCK).is_empty());
    server.tree(|tree| tree.node_mut(STOCK).next = 0);
    granted(&store, &ask).await;
}

#[tokio::test]
async fn a_waiter_for_which_the_session_has_no_room_to_watch_looks_by_itself() {
    let server = TestServer::start().await;
    let store = server.store().await;
    granted(&store, &ask(LockKind::Mutex)).await;
    let session = store.0.connection.current().unwrap();
    let path = "x".repeat(96 << 10);
    let all = session.watches.enter([&*path]).expect("it is empty");
    let waits = patient(LockKind::Mutex);
    let wait = refused(&store, &waits).await;
    assert_eq!(wait.recheck, Some(Duration::from_secs(1)));
    assert!(server.heard("watched").is_empty());
    drop(all);
    assert_eq!(refused(&store, &waits).await.recheck, None);
    assert_eq!(server.heard("watched").len(), 1);
}

/// Newer servers let nobody watch a node that it may not read, as one of a client with another login.
#[tokio::test]
async fn a_waiter_that_may_not_watch_the_node_before_it_looks_by_itself() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let holder = ask(LockKind::Mutex);
    granted(&store, &holder).await;
    server.on("watched exists", ServerFault::Refuses(NO_AUTH));
    let waits = patient(LockKind::Mutex);
    let wait = refused(&store, &waits).await;
    assert_eq!(wait.recheck, Some(Duration::from_secs(1)));
    store.release(&holder.ticket).await.unwrap();
    granted(&store, &waits).await;
}

#[tokio::test]
async fn a_waiter_without_a_watch_looks_the_less_often_the_more_are_ahead() {
    let server = TestServer::start().await;
    let (store, ticket) = (server.store().await, ticket(LockKind::Mutex));
    let own = OwnNode {
        shared: &store.0,
        connection: &store.0.connection,
        ticket: &ticket,
        place: NodePlace {
            parent: STOCK.to_owned(),
            prefix: keys::prefix(&ticket),
        },
        deadline: store.0.connection.deadline(),
    };
    for (ahead, pause) in [
        (0, 1000),
        (200, 1000),
        (201, 1005),
        (1999, 9995),
        (2001, 10_000),
        (usize::MAX, 10_000),
    ] {
        let pause = Duration::from_millis(pause);
        assert_eq!(own.looks_after(ahead), pause, "{ahead}");
    }
}

/// Without this bound, a task that is never polled would block the whole queue.
#[tokio::test]
async fn a_waiter_that_nobody_polls_loses_its_node_after_two_leases() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make_for(FOREIGN, &format!("{STOCK}/_c_x-lock-0000000000"), b""));
    let patience = LEASE * 2 + LIMIT;
    let earliest = store.0.timers.now() + patience;
    let waits = patient(LockKind::Mutex);
    refused(&store, &waits).await;
    let ends = store.0.registry.next_check();
    assert!(ends >= earliest && ends <= store.0.timers.now() + patience);
    skip(patience).await;
    server.hears("delete", 1).await;
    assert_eq!(server.children(STOCK), ["_c_x-lock-0000000000"]);
}
