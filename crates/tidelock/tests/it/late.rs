//! Answers that come late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidelock::backend::{Ask, Attempt, Backend, BoxFuture, Store};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, Error, ErrorKind, Result};

/// Its first answer is as late as that.
#[derive(Debug)]
struct Late {
    by: Duration,
    /// It is this error, and the request did not take effect.
    error: Option<ErrorKind>,
    is_over: AtomicBool,
}

impl Twist for Late {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            if self.is_over.swap(true, Ordering::SeqCst) {
                return inner.attempt(ask).await;
            }
            let answer = match self.error {
                Some(kind) => Err(Error::new(kind)),
                None => inner.attempt(ask).await,
            };
            tokio::time::sleep(self.by).await;
            answer
        })
    }
}

/// As after a process was frozen between its question and the answer. What was granted proves nothing any more; the lock is
/// free, or will be, and there is no reason to give up.
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

/// The process was frozen while a request was on its way: the request runs out of time although the store is well. A waiter
/// retries, and so does a caller that only tries.
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
