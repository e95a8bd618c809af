//! The listener at a scripted server.

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use crate::engine::runtime::sync::Mutex;
use crate::store::postgres::address::Address;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::frozen::{frozen, settle};
use crate::store::postgres::tests::wire::{NO_RIGHT, ServerAnswer, big, flag, int, row};
use crate::store::postgres::tests::{LIMIT, env, in_short, once, patient, skip, sql, wake_of};
use crate::store::{AttemptReply, Background, Clock, LockKind, Store, Timers};

/// How long a test waits at most.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_close_during_a_connect_is_not_missed() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    let env = Env::of_limits(timers, background, LONG);
    let url = format!(
        "postgres://me@{}?sslmode=disable",
        mute.local_addr().unwrap()
    );
    let address = Arc::new(Address::parse(&url, &env).unwrap());
    let connection = || Connection::new(Arc::clone(&address), &env);
    let listener = NotifyListener::new(connection(), connection(), &Sql::new("t"), &env);
    assert_eq!(listener.hears(Duration::ZERO).await, ListenState::Unknown);
    let (mut stream, _) = timeout(LONG, mute.accept()).await.unwrap().unwrap();
    listener.close();
    // The server never answers, but the connect ends at once, and with it the connection.
    let mut sent = Vec::new();
    let ended = timeout(LONG / 6, stream.read_to_end(&mut sent)).await;
    assert!(ended.is_ok_and(|read| read.is_ok()));
}

/// The listener asks whether there is room when it listens and each time when it looks whether its connection answers.
const LISTEN: &str = "LISTEN ";

/// A part of the test message.
const TEST: &str = "SELECT pg_notify(";

/// A server at which all locks are held, and its store.
async fn held() -> (ScriptedDatabase, Store) {
    let server = ScriptedDatabase::start().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    let store = server.store().await;
    (server, store)
}

/// The answer of the listener's server.
fn has_room(is_so: bool) -> ServerAnswer {
    row([flag(is_so)])
}

/// The refusal of an attempt that waits.
async fn refused(store: &Store) -> AttemptReply {
    store.front.attempt(&patient(LockKind::Mutex)).await
}

#[tokio::test]
async fn waiters_ask_again_when_the_listener_has_lost_its_connection() {
    let (server, store) = held().await;
    let mut wake = wake_of(refused(&store).await).unwrap();
    assert!(wake_of(refused(&store).await).is_some());
    assert_eq!(server.heard(LISTEN).len(), 1, "one listener for all");
    server.hangs_up_on_listeners().await;
    wake.woken().await;
    server.hears(LISTEN, 2).await;
    server.hears(TEST, 2).await;
    assert!(wake_of(refused(&store).await).is_some());
}

#[tokio::test]
async fn a_listener_that_cannot_listen_tries_again() {
    let (server, store) = held().await;
    server.on(LISTEN, [NO_RIGHT, has_room(true)]);
    let reply = refused(&store).await;
    assert_eq!(in_short(&reply), "held 50ms");
    assert!(wake_of(reply).is_none());
    while wake_of(refused(&store).await).is_none() {}
    assert_eq!(server.heard(TEST).len(), 1);
}

/// The callers may reach another server by now, and the former one may still answer the listener.
#[tokio::test]
async fn a_new_connection_of_the_callers_is_tested_as_the_first_one_was() {
    let (server, store) = held().await;
    assert!(wake_of(refused(&store).await).is_some());
    skip(CHECK_INTERVAL).await;
    server.hears(LISTEN, 2).await;
    assert!(wake_of(refused(&store).await).is_some());
    assert_eq!(server.heard(TEST).len(), 1, "it is the same connection");
    server.on(
        &sql().attempt.text,
        [ServerAnswer::HangsUp, row([int(0), big(20_000_000)])],
    );
    refused(&store).await.outcome.unwrap_err();
    refused(&store).await.outcome.unwrap();
    skip(CHECK_INTERVAL).await;
    server.hears(TEST, 2).await;
}

#[tokio::test]
async fn waiters_poll_while_the_queue_of_the_server_has_no_room() {
    let (server, store) = held().await;
    server.on(LISTEN, [has_room(true), has_room(false), has_room(true)]);
    let mut wake = wake_of(refused(&store).await).unwrap();
    skip(CHECK_INTERVAL).await;
    wake.woken().await;
    let reply = refused(&store).await;
    assert_eq!(in_short(&reply), "held 50ms");
    assert!(wake_of(reply).is_none());
    skip(CHECK_INTERVAL).await;
    while wake_of(refused(&store).await).is_none() {}
    assert_eq!(server.heard(LISTEN).len(), 3);
    assert_eq!(server.heard("STARTUP").len(), 2, "the connection stays");
}

/// No connection was tested before there was room.
#[tokio::test]
async fn a_listener_that_found_no_room_tests_its_connection_when_there_is_some() {
    let (server, store) = held().await;
    server.on(LISTEN, [has_room(false), has_room(true)]);
    assert!(wake_of(refused(&store).await).is_none());
    assert!(server.heard(TEST).is_empty());
    skip(CHECK_INTERVAL).await;
    while wake_of(refused(&store).await).is_none() {}
    assert_eq!(server.heard(TEST).len(), 1);
}

/// A connection that is half open looks alive until something is sent.
#[tokio::test]
async fn waiters_ask_again_when_the_listener_gets_no_answer() {
    let (server, store) = held().await;
    server.on(
        LISTEN,
        [has_room(true), ServerAnswer::Silence, has_room(true)],
    );
    let mut wake = wake_of(refused(&store).await).unwrap();
    skip(CHECK_INTERVAL).await;
    server.hears(LISTEN, 2).await;
    skip(LIMIT).await;
    wake.woken().await;
    server.hears(LISTEN, 3).await;
}

#[tokio::test]
async fn behind_a_pooler_the_listener_tries_again_after_a_minute() {
    let (server, store) = held().await;
    server.delivers_nothing();
    let (reply, ()) = tokio::join!(refused(&store), async {
        server.hears(TEST, 1).await;
        // The answer comes behind that to the test message.
        let other = store.front.attempt(&once(LockKind::Mutex)).await;
        other.outcome.unwrap();
        tokio::task::yield_now().await;
        // For so long the attempt waits for the listener.
        skip(LIMIT / 2).await;
    });
    assert_eq!(in_short(&reply), "held 50ms");
    skip(LIMIT / 2).await;
    let reply = refused(&store).await;
    assert_eq!(in_short(&reply), "held 50ms");
    skip(POOLER_RETRY_PAUSE.saturating_sub(Duration::from_secs(1))).await;
    for _ in 0..10 {
        assert!(wake_of(refused(&store).await).is_none());
    }
    assert_eq!(server.heard(LISTEN).len(), 1);
    skip(Duration::from_secs(1)).await;
    server.hears(LISTEN, 2).await;
}

/// Somebody may wait for it in a queue that this process has to look at.
#[tokio::test]
async fn the_name_of_each_lock_that_was_left_free_is_told() {
    let server = ScriptedDatabase::start().await;
    let (ear, mouth) = (server.connection(), server.connection());
    let listener = NotifyListener::new(ear, mouth, &sql(), &env());
    let names = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&names);
    listener.on_release(move |name| told.lock().push(name.to_owned()));
    let mut wake = listener.arm("till", LIMIT).await.unwrap();
    // In this order.
    for said in ["fstock", "stock", "ftill"] {
        server.tell(said).await;
    }
    wake.woken().await;
    assert_eq!(*names.lock(), ["stock", "till"]);
}

/// The log has it, and nothing else tells why waiters poll.
#[tokio::test]
async fn the_reason_for_which_nobody_listens_names_the_server() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, env) = (free.local_addr().unwrap(), env());
    drop(free);
    let url = format!("postgres://me@{at}/d?sslmode=disable");
    let address = Arc::new(Address::parse(&url, &env).unwrap());
    let connection = Connection::new(address, &env);
    let listener = NotifyListener::new(connection.clone(), connection, &sql(), &env);
    let (test, ended) = (TestNotification::default(), Arc::default());
    let failure = hear(&listener, &test, &ended).await.err().unwrap();
    let why = failure.to_string();
    assert!(why.contains(&at.to_string()), "{why}");
}

/// Each try is a connection, and a server that is overloaded or restarts would get a hundred of them a second from each
/// client.
#[tokio::test]
async fn a_listener_that_fails_again_and_again_pauses_longer_before_each_try() {
    let (server, store) = held().await;
    server.on(LISTEN, [NO_RIGHT]);
    tokio::time::pause();
    let reply = frozen(refused(&store)).await;
    assert!(wake_of(reply).is_none());
    // The longest pause is this, and half of it is random.
    let longest = Duration::from_millis(640);
    for _ in 0..1000 {
        settle().await;
        if server.heard(LISTEN).len() >= 8 {
            break;
        }
        tokio::time::advance(longest).await;
    }
    let tries = server.heard(LISTEN).len();
    assert!(tries >= 8, "{tries}");
    tokio::time::advance(longest / 4).await;
    settle().await;
    assert_eq!(server.heard(LISTEN).len(), tries);
}
