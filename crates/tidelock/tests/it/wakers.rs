//! Executors that run or drop a task inside `wake`, together with everything the task owns. No internal lock may be
//! held at that time, otherwise it deadlocks.

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
    let mut lost = pin!(first.lost());
    assert!(
        lost.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let left = tokio::spawn(async move { client.close(Duration::from_millis(50)).await });
    assert_eq!(timeout(SOON, left).await.unwrap().unwrap(), 1);
}
