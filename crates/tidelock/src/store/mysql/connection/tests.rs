use std::thread::ThreadId;

use futures_util::FutureExt as _;

use super::*;
use crate::store::Clock;
use crate::store::liveness::tests::gone;
use crate::store::mysql::tests::server::ScriptedServer;
use crate::store::mysql::tests::{LIMIT, env, pool, pool_at, row};
use crate::store::tests::scripted::{HANG_UP, SILENCE, in_time, skip};

/// The error of a request to a server that does not answer, with these credentials, and the steward's thread.
async fn ask_with(
    login: impl Fn() -> Credentials + Send + Sync + 'static,
    limit: Duration,
) -> (Error, ThreadId) {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    let mut env = Env::of_limits(timers, background.clone(), limit);
    env.credentials = Some(Arc::new(login));
    let url = format!("mysql://{}/locks", mute.local_addr().unwrap());
    let pool = Pool::new(Address::parse(&url).unwrap(), &env, 1);
    let asked = pool.ask("SELECT 1".to_owned(), pool.deadline()).await;
    let steward = background.run(async { std::thread::current().id() }).await;
    (asked.unwrap_err().error(), steward.unwrap())
}

/// A slow credentials callback must not delay renewals and deadlines.
#[tokio::test]
async fn the_source_of_the_credentials_has_a_thread_of_its_own() {
    let asked: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let login = move || {
        seen.lock().push(std::thread::current().id());
        Credentials::default()
    };
    let (error, steward) = ask_with(login, Duration::from_secs(1)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let asked = asked.lock().clone();
    assert_eq!(asked.len(), 1);
    assert_ne!(asked[0], steward);
}

#[tokio::test]
async fn a_source_of_credentials_that_panics_fails_its_request() {
    // A panic prints a backtrace, which takes seconds on a busy machine; the request ends as soon as that is done.
    let limit = Duration::from_secs(60);
    let (error, _) = ask_with(|| panic!("no credentials today"), limit).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// A request without an answer.
async fn ask(pool: &Pool) -> Error {
    let asked = pool.ask("SELECT 1".to_owned(), pool.deadline()).await;
    asked.unwrap_err().error()
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_with_the_response_timeout() {
    let (env, _) = env();
    let pool = pool(&env);
    assert_eq!(pool.deadline().since(pool.now()), LIMIT);
    assert!(pool.pause(LIMIT).now_or_never().is_none());
    assert_eq!(pool.database(), "locks");
    let shown = format!("{pool:?}");
    assert_eq!(shown, "mysql socket /tidelock/none.sock/locks");
}

/// The outcome of the next request on it would be unknown too.
#[tokio::test]
async fn a_connection_that_has_broken_serves_no_other_request() {
    let (env, opened) = env();
    let pool = pool(&env);
    pool.break_next();
    let error = ask(&pool).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    let error = ask(&pool).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

/// The server may have closed it meanwhile, and a request on it would have an unknown outcome.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_idle_for_long_is_tried_before_a_request_is_sent() {
    let nano = Duration::from_nanos(1);
    for (idle, kind) in [
        (Duration::ZERO, ErrorKind::OutcomeUnknown),
        (IDLE_TRUSTED.saturating_sub(nano), ErrorKind::OutcomeUnknown),
        (IDLE_TRUSTED, ErrorKind::Unavailable),
        (STALE, ErrorKind::Unavailable),
    ] {
        let (env, _) = env();
        let pool = pool(&env);
        pool.break_next();
        tokio::time::advance(idle).await;
        let error = ask(&pool).await;
        assert_eq!(error.kind(), kind, "{idle:?}");
    }
}

/// It could acquire a lock that nobody releases.
#[tokio::test]
async fn nothing_is_sent_for_a_caller_that_has_left() {
    let (env, opened) = env();
    let pool = pool(&env);
    pool.break_next();
    let text = Statements::Each("SELECT 1".to_owned());
    let asked = pool.ask_for(text, pool.deadline(), gone()).await;
    let error = asked.unwrap_err().error();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no longer waits"), "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    assert_eq!(ask(&pool).await.kind(), ErrorKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_no_connection_is_certainly_not_sent() {
    let (env, _) = env();
    let pool = pool(&env);
    pool.break_next();
    let all_taken = pool.0.permits.acquire().await.unwrap();
    let error = ask(&pool).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("busy"), "{error}");
    drop(all_taken);
}

#[tokio::test]
async fn a_closed_pool_opens_and_keeps_no_connection() {
    let (env, opened) = env();
    let pool = pool(&env);
    pool.break_next();
    pool.close();
    assert!(pool.0.idle().is_empty());
    pool.break_next();
    assert!(pool.0.idle().is_empty());
    assert_eq!(ask(&pool).await.kind(), ErrorKind::Closed);
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

/// All of them may lead to the server that has become a replica.
#[tokio::test]
async fn the_idle_connections_are_dropped_together() {
    let (env, _) = env();
    let pool = pool(&env);
    for _ in 0..2 {
        pool.break_next();
    }
    pool.0.drop_idle();
    assert!(pool.0.idle().is_empty());
}

/// Sends a text, each of whose statements is committed by itself.
async fn sent(pool: &Pool, text: &str) -> Result<Vec<TextRow>, RequestError> {
    pool.ask(text.to_owned(), pool.deadline()).await
}

#[tokio::test]
async fn a_text_that_a_deadlock_has_undone_is_sent_again_but_not_forever() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    server.answers("SELECT 1", &["ERR 1213 Deadlock found", "7"]);
    assert_eq!(sent(&pool, "SELECT 1").await.unwrap(), [row("7")]);
    server.answers("SELECT 2", &["ERR 1213 Deadlock found"]);
    let failure = sent(&pool, "SELECT 2").await.unwrap_err();
    assert_eq!(failure.undone(), Some(1213));
    assert_eq!(server.connections("SELECT 2"), [0; 4]);
}

/// Of the others, some say that it may have taken effect, and all may come again at once.
#[tokio::test]
async fn a_text_is_sent_once_unless_a_deadlock_has_undone_it() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    let others = [
        "ERR 1205 Lock wait timeout exceeded",
        "ERR 1290 The server is running with --read-only",
        "OK; ERR 1213 Deadlock found",
        HANG_UP,
    ];
    server.answers("SELECT 1", &others);
    for (number, answer) in (1..).zip(others) {
        assert!(sent(&pool, "SELECT 1").await.is_err(), "{answer}");
        assert_eq!(server.heard("SELECT 1").len(), number, "{answer}");
    }
}

/// After any other answer the session may be over, or its transaction open.
#[tokio::test]
async fn a_connection_is_kept_after_an_answer_that_is_certain() {
    for (answer, is_kept) in [
        ("7", true),
        ("ERR 1205 Lock wait timeout exceeded", true),
        ("ERR 1142 INSERT command denied", true),
        ("OK; ERR 1205 Lock wait timeout exceeded", false),
        ("ERR 1317 Query execution was interrupted", false),
        ("ERR 1290 The server is running with --read-only", false),
        (HANG_UP, false),
    ] {
        let server = ScriptedServer::start().await;
        let pool = pool_at(&server);
        server.answers("SELECT 1", &[answer, "7"]);
        assert_eq!(sent(&pool, "SELECT 1").await.is_ok(), answer == "7");
        sent(&pool, "SELECT 1").await.unwrap();
        let second = usize::from(!is_kept);
        assert_eq!(server.connections("SELECT 1"), [0, second], "{answer}");
    }
}

/// The server has become a replica, and by now the address may lead to another one.
#[tokio::test]
async fn a_server_that_takes_no_changes_is_left_by_all_idle_connections() {
    for (answer, leaves) in [
        ("ERR 1290 The server is running with --read-only", true),
        ("ERR 1317 Query execution was interrupted", false),
    ] {
        let server = ScriptedServer::start().await;
        let pool = Pool::new(server.address(), &env().0, 2);
        let (one, two) = tokio::join!(sent(&pool, "SELECT 1"), sent(&pool, "SELECT 1"));
        assert!(one.is_ok() && two.is_ok());
        server.answers("UPDATE", &[answer]);
        sent(&pool, "UPDATE").await.unwrap_err();
        sent(&pool, "SELECT 2").await.unwrap();
        let is_new = server.connections("SELECT 2") == [2];
        assert_eq!(is_new, leaves, "{answer}");
    }
}

#[tokio::test]
async fn a_connection_is_tried_after_some_seconds_and_dropped_after_minutes() {
    let nano = Duration::from_nanos(1);
    for (idle, tries, opened) in [
        (Duration::ZERO, 0, 1),
        (IDLE_TRUSTED.saturating_sub(nano), 0, 1),
        (IDLE_TRUSTED, 1, 1),
        (STALE.saturating_sub(nano), 1, 1),
        (STALE, 0, 2),
    ] {
        let server = ScriptedServer::start().await;
        let pool = pool_at(&server);
        let connection = pool.0.raw_connection().await.unwrap();
        tokio::time::pause();
        pool.0.keep_idle(connection);
        tokio::time::advance(idle).await;
        assert!(pool.0.raw_connection().await.is_ok());
        tokio::time::resume();
        assert_eq!(server.heard("PING").len(), tries, "{idle:?}");
        assert_eq!(server.heard("SET SESSION").len(), opened, "{idle:?}");
    }
}

/// On the old one the outcome of the request would be unknown.
#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced_before_a_request() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    server.answers("PING", &[HANG_UP]);
    sent(&pool, "SELECT 1").await.unwrap();
    skip(IDLE_TRUSTED).await;
    sent(&pool, "SELECT 1").await.unwrap();
    assert_eq!(server.connections("SELECT 1"), [0, 1]);
}

#[tokio::test]
async fn a_request_without_an_answer_in_time_takes_its_connection_along() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    server.answers("SELECT 1", &[SILENCE]);
    let passing = async {
        server.hears("SELECT 1", 1).await;
        skip(LIMIT).await;
    };
    let (answer, ()) = tokio::join!(sent(&pool, "SELECT 1"), passing);
    let error = answer.unwrap_err().error();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("within 7s"), "{error}");
    sent(&pool, "SELECT 2").await.unwrap();
    assert_eq!(server.connections("SELECT 2"), [1]);
}

/// Its caller waits for other connections and answers too.
#[tokio::test]
async fn a_statement_waits_for_a_row_for_a_part_of_the_response_timeout() {
    let server = ScriptedServer::start().await;
    sent(&pool_at(&server), "SELECT 1").await.unwrap();
    let settings = server.heard("SET SESSION");
    let third = " innodb_lock_wait_timeout = 2,";
    assert!(settings[0].contains(third), "{settings:?}");
}

#[tokio::test]
async fn a_text_is_sent_also_if_nobody_waits_for_its_outcome() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    pool.send("DELETE 1".to_owned());
    server.hears("DELETE 1", 1).await;
}

#[tokio::test]
async fn a_pool_that_is_closed_leaves_no_connection_behind() {
    let server = ScriptedServer::start().await;
    let pool = pool_at(&server);
    sent(&pool, "SELECT 1").await.unwrap();
    assert_eq!(server.open_connections(), 1);
    pool.close();
    let closed = async {
        while server.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
}
