//! Answers that come late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidelock::Result;
use tidelock::backend::{Ask, Attempt, Backend, BoxFuture, Store};
use tidelock::testing::{Fixture, Twist, Twisted};

/// Its first answer is as late as that.
#[derive(Debug)]
struct Late {
    by: Duration,
    is_over: AtomicBool,
}

impl Twist for Late {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let answer = inner.attempt(ask).await;
            if !self.is_over.swap(true, Ordering::SeqCst) {
                tokio::time::sleep(self.by).await;
            }
            answer
        })
    }
}

/// As after a process was frozen between its question and the answer. What was granted proves nothing any more; the lock is
/// free, or will be, and there is no reason to give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_after_its_lease_is_asked_for_anew() {
    let fixture = Fixture::memory().wrapped(|env, store| {
        let by = env.lease * 3 / 2;
        let is_over = AtomicBool::new(false);
        Twisted::wrap(Store::single(store.front), Late { by, is_over })
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
