//! Attempts to connect that the test lets end, and the callers that wait for them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::error::ErrorKind;
use crate::store::Clock;

#[derive(Debug, Default)]
struct Conn(AtomicBool);

impl MayEnd for Conn {
    fn has_ended(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A server that connects callers when the test lets it, on a simulated clock.
struct World {
    once: Arc<ConnectOnce<Conn>>,
    timers: Timers,
    runtime: ConnectionRuntime,
    attempts: Arc<AtomicUsize>,
    /// One permit lets one attempt end.
    may_end: Arc<Semaphore>,
    refuses: Arc<AtomicBool>,
}

const LIMIT: Duration = Duration::from_secs(3);

impl World {
    fn new() -> Self {
        let clock = Clock::Simulated;
        let (background, _) = Background::start(clock).unwrap();
        let timers = Timers::new(clock);
        background.spawn(timers.clone().drive());
        Self {
            once: Arc::new(ConnectOnce::new()),
            timers,
            runtime: ConnectionRuntime::Background(background),
            attempts: Arc::default(),
            may_end: Arc::new(Semaphore::new(0)),
            refuses: Arc::default(),
        }
    }

    fn get(&self) -> tokio::task::JoinHandle<Result<Arc<Conn>>> {
        let (once, timers) = (Arc::clone(&self.once), self.timers.clone());
        let (runtime, attempts) = (self.runtime.clone(), Arc::clone(&self.attempts));
        let (may_end, refuses) = (Arc::clone(&self.may_end), Arc::clone(&self.refuses));
        tokio::spawn(async move {
            if let Some(connection) = once.live() {
                return Ok(connection);
            }
            let deadline = timers.now() + LIMIT;
            let connect = || async move {
                attempts.fetch_add(1, Ordering::SeqCst);
                may_end.acquire().await.unwrap().forget();
                if refuses.load(Ordering::SeqCst) {
                    return Err(Error::new(ErrorKind::Refused).because("go away"));
                }
                Ok(Conn::default())
            };
            once.connect(&timers, deadline, &runtime, &"here", connect)
                .await
        })
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

async fn settled() {
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

#[tokio::test(start_paused = true)]
async fn many_callers_make_one_attempt_and_one_that_leaves_cancels_nothing() {
    let world = World::new();
    let first = world.get();
    settled().await;
    let others: Vec<_> = (0..5).map(|_| world.get()).collect();
    settled().await;
    first.abort();
    settled().await;
    world.may_end.add_permits(1);
    for other in others {
        let connection = other.await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&connection, &world.once.live().unwrap()));
    }
    assert_eq!(world.attempts(), 1);
    // If all callers leave, the connection is there for the next one.
    world.once.close();
    let leaves = world.get();
    settled().await;
    leaves.abort();
    world.may_end.add_permits(1);
    settled().await;
    assert!(world.once.live().is_some());
    assert_eq!(world.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_reaches_all_that_wait_and_the_next_caller_tries_again() {
    let world = World::new();
    world.refuses.store(true, Ordering::SeqCst);
    let all: Vec<_> = (0..5).map(|_| world.get()).collect();
    settled().await;
    world.may_end.add_permits(1);
    for caller in all {
        let error = caller.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("go away"), "{error}");
    }
    assert_eq!(world.attempts(), 1);
    world.refuses.store(false, Ordering::SeqCst);
    world.may_end.add_permits(1);
    let connection = world.get().await.unwrap().unwrap();
    assert_eq!(world.attempts(), 2);
    // A connection that has ended, or is retired, is replaced.
    connection.0.store(true, Ordering::SeqCst);
    world.may_end.add_permits(2);
    let next = world.get().await.unwrap().unwrap();
    assert!(!world.once.retire(&connection), "it is not in use");
    assert!(world.once.retire(&next) && !world.once.retire(&next));
    world.get().await.unwrap().unwrap();
    assert_eq!(world.attempts(), 4);
}

/// It was opened before the close, which may have been for a new login.
#[tokio::test(start_paused = true)]
async fn the_connection_of_an_attempt_that_was_given_up_is_not_that_of_later_callers() {
    let world = World::new();
    let first = world.get();
    settled().await;
    world.once.close();
    let second = world.get();
    settled().await;
    assert_eq!(world.attempts(), 2);
    // The attempts end in the order in which they began.
    world.may_end.add_permits(1);
    let early = first.await.unwrap().unwrap();
    assert!(world.once.live().is_none());
    world.may_end.add_permits(1);
    let used = second.await.unwrap().unwrap();
    assert!(!Arc::ptr_eq(&used, &early));
    assert!(Arc::ptr_eq(&used, &world.once.live().unwrap()));
}

#[test]
fn an_error_is_told_to_each_caller_with_its_kind_and_its_detail() {
    let bare = Error::new(ErrorKind::Refused);
    for error in [bare, Error::new(ErrorKind::Refused).because("go away")] {
        let again = told_again(&error);
        assert_eq!(again.kind(), ErrorKind::Refused);
        assert_eq!(again.detail(), error.detail());
    }
}

/// The last error of a wait should say why there is no connection.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cut_off_tells_why_the_one_before_it_failed() {
    let world = World::new();
    let late = world.get().await.unwrap().unwrap_err().to_string();
    assert!(late.ends_with("here: no connection in time"), "{late}");
    world.refuses.store(true, Ordering::SeqCst);
    world.may_end.add_permits(2);
    world.get().await.unwrap().unwrap_err();
    let error = world.get().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = "here: no connection in time; the attempt before it failed: go away";
    assert!(error.to_string().ends_with(words), "{error}");
    // A connection has been there since.
    world.refuses.store(false, Ordering::SeqCst);
    world.may_end.add_permits(2);
    world.get().await.unwrap().unwrap();
    world.once.close();
    let late = world.get().await.unwrap().unwrap_err().to_string();
    assert!(late.ends_with("here: no connection in time"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_given_up_and_ends_with_the_last_handle() {
    let world = World::new();
    let begun = world.timers.now();
    let error = world.get().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(world.timers.now().since(begun) >= LIMIT);
    let again = world.get();
    settled().await;
    assert_eq!(world.attempts(), 2);
    again.abort();
    settled().await;
    // Each attempt in progress holds the semaphore.
    assert_eq!(Arc::strong_count(&world.may_end), 3);
    let World { once, may_end, .. } = world;
    drop(once);
    settled().await;
    assert_eq!(Arc::strong_count(&may_end), 1);
}
