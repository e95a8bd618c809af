//! Executors that run or drop a task inside `wake`, together with everything the task owns. No internal lock may be
//! held at that time, otherwise it deadlocks. And executors that panic in `wake`: no other task may suffer from it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tidelock::{AcquireOptions, Client, Guard, LostReason};
use tokio::time::timeout;

/// A task that is dropped while it is woken.
struct Dropped(Mutex<Vec<Guard>>);

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().clear();
    }
}

async fn two_guards() -> (Client, Guard, Waker) {
    let client = Client::connect("memory:").await.unwrap();
    let options = AcquireOptions::new().expires_after(Duration::from_millis(300));
    let first = client.lock("a").acquire_with(options).await.unwrap();
    let second = client.lock("b").acquire().await.unwrap();
    let waker = Waker::from(Arc::new(Dropped(Mutex::new(vec![second]))));
    (client, first, waker)
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_may_go_while_a_loss_is_told() {
    let (client, first, waker) = two_guards().await;
    let mut lost = pin!(first.lost());
    assert!(
        lost.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!(
        timeout(SOON, first.lost()).await.unwrap(),
        LostReason::Expired
    );
    let lock = client.lock("b");
    drop(timeout(SOON, lock.acquire()).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_may_go_while_a_close_is_told() {
    let (client, first, waker) = two_guards().await;
    let mut closing = pin!(first.closing());
    assert!(
        closing
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let left = tokio::spawn(async move { client.close(Duration::from_millis(50)).await });
    assert_eq!(timeout(SOON, left).await.unwrap().unwrap(), 1);
}

/// A task whose executor panics in `wake`.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker always panics");
    }
}

/// Wakers that panic in the local queue, in the wait for a loss, and in the wait for a close.
#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_waker_harms_nobody_else() {
    let waker = Waker::from(Arc::new(Panics));
    let mut cx = Context::from_waker(&waker);
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    let renewed = client.lock("renewed").acquire().await.unwrap();
    for same_terms in [true, false] {
        let held = lock.acquire().await.unwrap();
        let terms = AcquireOptions::new();
        let terms = if same_terms {
            terms // it gets the hold by hand-off
        } else {
            terms.expires_after(Duration::from_secs(60)) // it is called to lead the queue
        };
        let mut first = Box::pin(lock.acquire_with(terms));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let mut next = Box::pin(lock.acquire());
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        held.release().await.unwrap();
        drop(first); // it leaves the queue, and passes on what it was given
        drop(timeout(SOON, next).await.unwrap().unwrap());
    }
    // The steward tells of this loss, and must go on to renew the other hold.
    let options = AcquireOptions::new().expires_after(Duration::from_millis(100));
    let short = client.lock("b").acquire_with(options).await.unwrap();
    let mut lost = pin!(short.lost());
    assert!(lost.as_mut().poll(&mut cx).is_pending());
    assert_eq!(
        timeout(SOON, short.lost()).await.unwrap(),
        LostReason::Expired
    );
    let again = client
        .lock("c")
        .acquire_with(AcquireOptions::new().expires_after(Duration::from_millis(100)));
    let again = again.await.unwrap();
    assert_eq!(
        timeout(SOON, again.lost()).await.unwrap(),
        LostReason::Expired
    );
    // A waiter whose waker panics, and a close.
    let mut waits = pin!(async { client.lock("renewed").acquire().await });
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    let mut told = pin!(renewed.lost());
    assert!(told.as_mut().poll(&mut cx).is_pending());
    let left = client.close(Duration::from_millis(50));
    assert_eq!(timeout(SOON, left).await.unwrap(), 1);
}
