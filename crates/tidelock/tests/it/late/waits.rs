//! What a wait says that ends without an answer of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture};
use tidelock::testing::{Twist, Twisted};
use tidelock::{AcquireOptions, Client, ErrorKind, Owner};

/// Answers nothing while it is mute.
#[derive(Debug)]
struct Silent(Arc<AtomicBool>);

impl Twist for Silent {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            while self.0.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            inner.attempt(ask).await
        })
    }
}

/// A client of this store, which answers nothing while `mute` is set.
async fn silent_client(name: &'static str, mute: &Arc<AtomicBool>) -> Client {
    let hand = Arc::clone(mute);
    let builder = Client::builder().simulated_time();
    let client = builder.connect_to(async move |env| {
        let store = tidelock::testing::open(name, env).await?;
        Ok(Twisted::wrap(store, Silent(hand)))
    });
    client.await.unwrap()
}

async fn kinds_of_waits(lock: &tidelock::Lock, count: usize, limit: Duration) -> Vec<ErrorKind> {
    let waits = (0..count).map(|_| lock.acquire_timeout(limit));
    let answers = join_all(waits).await;
    answers
        .into_iter()
        .map(|answer| answer.map(drop).unwrap_err().kind())
        .collect()
}

/// Only the store can say that another owner holds a lock. A wait that ends before the store has answered is no
/// timeout, whether the waiter asks the store itself or waits in the local queue behind one that asks.
#[tokio::test(start_paused = true)]
async fn a_wait_blames_another_owner_only_if_the_store_does() {
    let mute = Arc::new(AtomicBool::new(false));
    let second = Duration::from_secs(1);
    let client = silent_client("memory:", &mute).await;
    let lock = client.lock("a");
    mute.store(true, Ordering::SeqCst);
    let kinds = kinds_of_waits(&lock, 3, second).await;
    assert_eq!(
        kinds,
        [
            ErrorKind::OutcomeUnknown,
            ErrorKind::Unavailable,
            ErrorKind::Unavailable
        ]
    );
    // The attempt that was under way takes effect now, and its lock is released.
    mute.store(false, Ordering::SeqCst);
    let held = lock.acquire_timeout(second).await.unwrap();
    let kinds = kinds_of_waits(&lock, 3, second).await;
    assert_eq!(
        kinds,
        [ErrorKind::TimedOut; 3],
        "a task of this client has it"
    );
    let before = tidelock::AcquireOptions::new().wait(second * 2);
    let (waits, ()) = tokio::join!(lock.acquire_with(before), async {
        tokio::time::sleep(second).await;
        mute.store(true, Ordering::SeqCst);
        held.release().await.unwrap();
    });
    // Freed for a second, and the store does not say who has it.
    let error = waits.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
}

/// The same for the acquisitions of one owner, which take turns. An attempt whose caller has left keeps the turn until the
/// store gives it up.
#[tokio::test(start_paused = true)]
async fn a_wait_for_the_turn_of_an_owner_blames_another_one_only_if_the_store_does() {
    let mute = Arc::new(AtomicBool::new(false));
    let second = Duration::from_secs(1);
    let name = "memory:turns-of-an-owner";
    let other = Client::builder().simulated_time().connect(name);
    let (other, client) = (other.await.unwrap(), silent_client(name, &mute).await);
    let (lock, me) = (client.lock("a"), Owner::new());
    let mine = |limit| AcquireOptions::new().owner(&me).wait(limit);
    let kind = |limit| {
        let answer = lock.acquire_with(mine(limit));
        async move { answer.await.map(drop).unwrap_err().kind() }
    };
    mute.store(true, Ordering::SeqCst);
    assert_eq!(kind(second / 10).await, ErrorKind::OutcomeUnknown);
    let tried = lock.try_acquire_with(AcquireOptions::new().owner(&me));
    let tried = tried.await.map(|guard| guard.is_some()).unwrap_err();
    assert_eq!(tried.kind(), ErrorKind::Unavailable, "{tried}");
    assert_eq!(kind(second).await, ErrorKind::Unavailable);
    // The attempt that was under way takes effect now, and its lock is released.
    mute.store(false, Ordering::SeqCst);
    let held = lock.acquire_with(mine(second)).await.unwrap();
    held.release().await.unwrap();
    // Another client holds the lock. The first wait is told so, and the store is silent when the second one gets the turn.
    let held = other.lock("a").acquire().await.unwrap();
    let waits = join_all([second; 3].map(kind));
    let (kinds, ()) = tokio::join!(waits, async {
        tokio::time::sleep(second * 9 / 10).await;
        mute.store(true, Ordering::SeqCst);
    });
    assert_eq!(kinds, [ErrorKind::TimedOut; 3]);
    mute.store(false, Ordering::SeqCst);
    held.release().await.unwrap();
}

/// The store has answered the attempt whose caller has left. Another acquisition of the owner has the turn since, and waits for
/// a lock that is held.
#[tokio::test(start_paused = true)]
async fn a_try_behind_another_wait_of_its_owner_blames_no_store() {
    let mute = Arc::new(AtomicBool::new(false));
    let second = Duration::from_secs(1);
    let name = "memory:tries-of-an-owner";
    let other = Client::builder().simulated_time().connect(name);
    let (other, client) = (other.await.unwrap(), silent_client(name, &mute).await);
    let (lock, me) = (client.lock("a"), Owner::new());
    let mine = |limit| AcquireOptions::new().owner(&me).wait(limit);
    let held = other.lock("a").acquire().await.unwrap();
    mute.store(true, Ordering::SeqCst);
    let error = lock.acquire_with(mine(second / 10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let mut waits = Box::pin(lock.acquire_with(mine(second * 60)));
    assert!(futures_util::poll!(waits.as_mut()).is_pending());
    let asks_once = async {
        let options = AcquireOptions::new().owner(&me);
        let tried = lock.try_acquire_with(options).await;
        held.release().await.unwrap();
        tried
    };
    let answers = async {
        tokio::time::sleep(second).await;
        mute.store(false, Ordering::SeqCst);
    };
    let (waited, tried, ()) = tokio::join!(waits, asks_once, answers);
    assert!(tried.unwrap().is_none());
    waited.unwrap().release().await.unwrap();
}
