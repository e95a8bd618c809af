//! Logins, sessions and their ends.

use tokio::net::TcpListener;

use super::*;
use crate::Credentials;
use crate::store::zookeeper::tests::tree::AUTH_FAILED;
use crate::store::zookeeper::unreachable::reasons;

/// The new session of a client whose lease is [`LEASE`].
const FRESH: &str = "connect 40000 0";

/// As if its function gave these.
fn given(user: Option<&str>, password: Option<&str>) -> Env {
    let given = Credentials {
        user: user.map(str::to_owned),
        password: password.map(str::to_owned),
    };
    let mut env = env();
    env.credentials = Some(Arc::new(move || given.clone()));
    env
}

#[tokio::test]
async fn a_session_outlives_a_lease_by_a_third_unless_the_url_says_more() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let short: Vec<Duration> = store.0.short.iter().map(|short| short.lease()).collect();
    assert_eq!(short, [2, 4, 8, 16, 32].map(|part| LEASE / part));
    let options = "/shop?session_timeout=20s";
    let told = server.open("", options, &env()).await.unwrap();
    assert!(told.0.short.is_empty(), "each would have that timeout");
    assert_eq!(server.heard("connect"), [FRESH, "connect 20000 0"]);
}

#[tokio::test]
async fn a_lease_gets_the_shortest_session_that_serves_it_and_keeps_it() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    let (all, second) = (&store.0.short, Duration::from_secs(1));
    let other = ticket(LockKind::Mutex);
    for (ticket, lease, expected) in [
        (&other, LEASE, &store.0.connection),
        (&other, second * 16, &store.0.connection),
        (&other, second * 15, &all[0]),
        (&other, second, &all[3]),
        (&other, second / 2, &all[4]),
        (&held.ticket, second, &store.0.connection),
    ] {
        let chosen = store.0.connection_for(ticket, lease);
        assert!(Arc::ptr_eq(&chosen, expected), "{lease:?}");
    }
}

#[tokio::test]
async fn the_login_is_that_of_the_url_or_of_the_function() {
    for (login, env, auth, user) in [
        ("", env(), None, None),
        ("me:secret@", env(), Some("me:secret"), Some("me")),
        (
            "",
            given(Some("you"), Some("word")),
            Some("you:word"),
            Some("you"),
        ),
        (
            "me@",
            given(None, Some("word")),
            Some("me:word"),
            Some("me"),
        ),
        ("", given(Some("you"), None), Some("you:"), Some("you")),
    ] {
        let server = TestServer::start().await;
        let store = server.open(login, "", &env).await.unwrap();
        let expected: Vec<String> = auth
            .map(|auth| format!("auth digest {auth}"))
            .into_iter()
            .collect();
        assert_eq!(server.heard("auth"), expected);
        assert_eq!(store.0.connection.user().await.unwrap().as_deref(), user);
        let held = ask(LockKind::Mutex);
        granted(&store, &held).await;
        let path = server.path_of(&held.ticket);
        let rights = server.tree(|tree| tree.node(&path).unwrap().rights.clone());
        let scheme = if auth.is_some() { "auth" } else { "world" };
        assert!(rights.iter().all(|(_, of, _)| of == scheme), "{rights:?}");
    }
}

#[tokio::test]
async fn a_login_without_a_user_is_refused() {
    let server = TestServer::start().await;
    let env = given(None, Some("word"));
    let error = server.open("", "", &env).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(server.heard("connect").is_empty());
}

#[tokio::test]
async fn tls_files_and_half_a_login_are_refused_before_a_connect() {
    let mut tls = env();
    tls.tls.ca = Some("ca.pem".into());
    for (url, env) in [
        ("zookeeper://127.0.0.1", &tls),
        ("zookeeper://me@127.0.0.1", &env()),
    ] {
        let Err(error) = target(url, env) else {
            panic!("{url} is refused")
        };
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    }
    let asks = given(None, Some("word"));
    assert!(target("zookeeper://me@127.0.0.1", &asks).is_ok());
}

#[tokio::test]
async fn an_expired_session_is_followed_by_a_new_one() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let lost = ask(LockKind::Mutex);
    let bond = granted(&store, &lost).await.bond.unwrap();
    let first = server.sessions()[0];
    server.expires_sessions();
    is_severed(&bond).await;
    let held = ask(LockKind::Mutex);
    let next = granted(&store, &held).await.bond.unwrap();
    assert!(next.is_connected() && !bond.is_connected());
    let connects = server.heard("connect");
    let resumed = format!("connect 40000 {first}");
    assert_eq!(connects[..2], [FRESH.to_owned(), resumed]);
    assert_eq!(connects.last().map(String::as_str), Some(FRESH));
    let path = server.path_of(&held.ticket);
    let owner = server.tree(|tree| tree.node(&path).unwrap().owner);
    assert_eq!(server.sessions(), [owner]);
    assert_ne!(owner, first);
    let renewed = store
        .renew(&[renewal(&lost), renewal(&held)])
        .await
        .unwrap();
    let is_lost = matches!(renewed[..], [Renewed::Gone, Renewed::Kept]);
    assert!(is_lost, "{renewed:?}");
    // The node of the hold that was lost went with its session.
    skip(LEASE).await;
    server.hears("delete", 1).await;
    assert_eq!(server.heard("delete"), [format!("delete {path}")]);
    let released = store.release(&lost.ticket).await.unwrap();
    assert_eq!(released, Released::NotHeld);
}

#[tokio::test]
async fn a_store_that_is_dropped_ends_its_session() {
    let server = TestServer::start().await;
    let store = server.store().await;
    granted(&store, &ask(LockKind::Mutex)).await;
    drop(store);
    server.hears("close", 1).await;
    assert!(server.children(STOCK).is_empty());
}

/// Otherwise the task would sleep until the next node ends, and without a node for ever.
#[tokio::test]
async fn a_store_that_is_dropped_ends_its_lease_task() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let notify = Arc::clone(&store.0.registry.notify);
    // The registry has one reference, this test another, and the task that sleeps the third.
    in_time(async {
        while Arc::strong_count(&notify) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(store);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&notify), 1);
}

/// This process believes that its session has ended, and the server does not know it yet: the nodes still stand, and requests
/// that were sent could still take effect.
#[tokio::test]
async fn a_session_that_was_given_up_is_closed_before_the_next_one_opens() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let bond = granted(&store, &ask(LockKind::Mutex)).await.bond.unwrap();
    let first = server.sessions()[0];
    server.on("sync", ServerFault::Refuses(AUTH_FAILED));
    let error = failed(&store, &ask(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    is_severed(&bond).await;
    assert_eq!(server.sessions(), [first], "the server has not noticed it");
    granted(&store, &ask(LockKind::Mutex)).await;
    let resumed = format!("connect 40000 {first}");
    assert_eq!(server.heard("connect"), [FRESH, &resumed, FRESH]);
    assert_eq!(server.heard("close").len(), 1);
    assert_eq!(server.children(STOCK).len(), 1);
}

/// Its nodes still stand, and requests that were sent in it could still take effect.
#[tokio::test]
async fn no_session_opens_while_the_one_that_was_given_up_may_still_be_there() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let bond = granted(&store, &ask(LockKind::Mutex)).await.bond.unwrap();
    let resumed = format!("connect 40000 {}", server.sessions()[0]);
    server.on("sync", ServerFault::Refuses(AUTH_FAILED));
    failed(&store, &ask(LockKind::Mutex)).await;
    is_severed(&bond).await;
    server.on("close", ServerFault::Ignores);
    let waits = ask(LockKind::Mutex);
    let meanwhile = async {
        server.hears("close", 1).await;
        // Another client does more than this one would need to do for a new session.
        let other = server.store().await;
        refused(&other, &ask(LockKind::Mutex)).await;
        assert_eq!(server.heard("connect"), [FRESH, &resumed, FRESH]);
        skip(LIMIT).await;
    };
    let (error, ()) = tokio::join!(failed(&store, &waits), meanwhile);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// The driver would keep the request, and send it when its caller has left.
#[tokio::test]
async fn nothing_is_sent_in_a_session_without_a_connection() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    server.on("sync", ServerFault::HangsUp);
    server.on("connect", ServerFault::Ignores);
    assert!(store.renew(&[renewal(&held)]).await.is_err());
    server.hears("connect", 2).await;
    let (released, ()) = tokio::join!(store.release(&held.ticket), skip(LIMIT));
    let error = released.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no session"), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_lost_keeps_the_session_and_its_locks() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    let bond = granted(&store, &held).await.bond.unwrap();
    let batch = [renewal(&held)];
    server.on("sync", ServerFault::HangsUp);
    let error = store.renew(&batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let each = store.renew(&batch).await.unwrap();
    assert!(matches!(each[..], [Renewed::Kept]), "{each:?}");
    assert!(bond.is_connected() && !bond.is_severed());
    assert_eq!(server.sessions().len(), 1);
}

#[tokio::test]
async fn a_connect_without_an_answer_ends_with_the_response_timeout() {
    let server = TestServer::start().await;
    server.on("connect", ServerFault::Ignores);
    let env = env();
    let opened = unanswered(&server, "connect", server.open("", "", &env)).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("within the response timeout"));
}

#[tokio::test]
async fn a_close_waits_for_the_end_of_the_session_and_no_longer_than_for_an_answer() {
    let server = TestServer::start().await;
    let (one, other) = (server.store().await, server.store().await);
    tokio::join!(one.close(), one.close());
    assert_eq!(server.sessions().len(), 1);
    assert_eq!(server.heard("close").len(), 1);
    server.on("close", ServerFault::Ignores);
    unanswered(&server, "close", other.close()).await;
    assert_eq!(server.sessions().len(), 1);
}

#[tokio::test]
async fn an_error_says_of_each_server_why_it_cannot_be_reached() {
    let server = TestServer::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let somebody = format!("127.0.0.1:{}", server.port);
    let timers = env().timers;
    let accepts = reasons(&somebody, &timers, LIMIT).await;
    assert!(accepts.starts_with("it accepts connections"), "{accepts}");
    let refuses = reasons(&nobody, &timers, LIMIT).await;
    assert!(refuses.to_lowercase().contains("refused"), "{refuses}");
    let both = reasons(&format!("{somebody},{nobody}"), &timers, LIMIT).await;
    assert_eq!(both, format!("{somebody}: {accepts}; {nobody}: {refuses}"));
    let error = open(&format!("zookeeper://{nobody}"), &env()).await;
    let Err(error) = error else {
        panic!("nobody listens there")
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&refuses), "{error}");
}

#[tokio::test]
async fn what_this_store_has_is_offered() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let offered = store.extensions();
    assert!(offered.sequencers.is_some() && offered.marks.is_some());
    assert!(offered.permit_counter.is_some() && offered.counts.is_none());
    assert!(store.capabilities().has(LockKind::Permits(3)));
}
