use std::thread::ThreadId;

use futures_util::FutureExt as _;

use super::*;
use crate::store::mysql::tests::{LIMIT, env, pool};
use crate::store::{Caller, Clock};

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

#[derive(Debug)]
struct Gone;

impl Caller for Gone {
    fn has_left(&self) -> bool {
        true
    }
}

/// It could acquire a lock that nobody releases.
#[tokio::test]
async fn nothing_is_sent_for_a_caller_that_has_left() {
    let (env, opened) = env();
    let pool = pool(&env);
    pool.break_next();
    let text = Statements::Each("SELECT 1".to_owned());
    let gone = Liveness::new(Arc::new(Gone));
    let asked = pool.ask_for(text, pool.deadline(), gone).await;
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
