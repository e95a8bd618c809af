//! Attempts whose answer comes too late, or not at all: after a freeze, or from a store that is not ready.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture, NotYet, Store};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, Error, ErrorKind};

/// Delays its first reply by this much.
#[derive(Debug)]
struct Late {
    by: Duration,
    /// The first reply is this error, and its request did not take effect.
    error: Option<ErrorKind>,
    is_over: AtomicBool,
}

impl Twist for Late {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            if self.is_over.swap(true, Ordering::SeqCst) {
                return inner.attempt(ask).await;
            }
            let answer = match self.error {
                Some(kind) => Error::new(kind).into(),
                None => inner.attempt(ask).await,
            };
            tokio::time::sleep(self.by).await;
            answer
        })
    }
}

/// As after a freeze of the process between the request and the reply. The reply proves nothing any more, but the lock
/// is or will be free, so the caller has no reason to give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_after_its_lease_is_asked_for_anew() {
    let fixture = Fixture::memory().wrapped(|env, store| {
        let late = Late {
            by: env.lease * 3 / 2,
            error: None,
            is_over: AtomicBool::new(false),
        };
        Twisted::wrap(Store::single(store.front), late)
    });
    let (party, began) = (fixture.party().await, Instant::now());
    let lock = party.lock("stock");
    let held = lock.acquire().await.expect("it is free");
    assert!(
        began.elapsed() > fixture.lease(),
        "the first answer was late"
    );
    assert!(held.is_held().await);
    held.release().await.expect("it was held");
    assert!(!lock.is_locked().await);
}

/// The process was frozen while a request was in flight: the request times out although the store works. A waiter
/// retries, and so does `try_acquire`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_after_its_process_was_frozen() {
    let errors = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
    let limits = [None, Some(Duration::from_secs(600)), Some(Duration::ZERO)];
    let cases = errors.map(|error| limits.map(|limit| goes_on_after(error, limit)));
    join_all(cases.into_iter().flatten()).await;
}

async fn goes_on_after(error: ErrorKind, limit: Option<Duration>) {
    let fixture = Fixture::memory().wrapped(move |env, store| {
        let late = Late {
            by: env.response_timeout.max(env.lease) * 2,
            error: Some(error),
            is_over: AtomicBool::new(false),
        };
        Twisted::wrap(Store::single(store.front), late)
    });
    let party = fixture.party().await;
    let mut options = AcquireOptions::new();
    if let Some(limit) = limit {
        options = options.wait(limit);
    }
    let granted = party.lock("stock").acquire_with(options).await;
    let guard = granted.unwrap_or_else(|told| panic!("{error:?}, {limit:?}: {told}"));
    guard.release().await.unwrap();
}

/// Refuses each attempt: it must wait for many leases before it can answer safely.
#[derive(Debug)]
struct Unready {
    within: Duration,
}

impl Twist for Unready {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let within = self.within;
        let error = Error::new(ErrorKind::Unavailable).caused_by(NotYet { within });
        Box::pin(async move { error.into() })
    }
}

/// A waiter waits until the store is ready. Who only asks gets the error as soon as a response timeout is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_asks_does_not_wait_until_the_store_is_ready() {
    let fixture = Fixture::memory().wrapped(|env, store| {
        let within = env.lease * 40;
        Twisted::wrap(Store::single(store.front), Unready { within })
    });
    let lock = fixture.party().await.lock("stock");
    let began = Instant::now();
    let refused = lock.acquire_with(AcquireOptions::new().wait(Duration::ZERO));
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < fixture.lease() * 20, "it waited");
    let waiter = lock.acquire();
    tokio::time::timeout(fixture.lease() * 3 / 2, waiter)
        .await
        .expect_err("an outage of a lease ends no wait for a store that says when it is ready");
}
