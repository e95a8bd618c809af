//! Changes of a number whose answers are lost, and waits for a number.

use std::sync::Arc;
use std::time::Duration;

use tidelock::store::{
    Backend, BoxFuture, CountChange, CountChanged, CountKind, Counts, Name, OwnerId, Wait,
};
use tidelock::test_util::Plug;
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, ErrorKind, Result};

/// A change of a number is repeated for a lease, and the store must know it for as long. Otherwise it would count twice.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_repeated_late_counts_once() {
    let (lease, plug) = (Duration::from_secs(1200), Plug::new());
    let builder = Client::builder().simulated_time().lease(lease).plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    plug.lose_replies(1);
    let before = plug.requests();
    let outage = async {
        while plug.requests() == before {
            tokio::task::yield_now().await;
        }
        plug.pull();
        tokio::time::sleep(lease / 2).await;
        plug.put_back();
    };
    let (released, ()) = tokio::join!(slots.release(2), outage);
    assert_eq!(released.unwrap(), 3);
    assert_eq!(slots.available().await.unwrap(), 3);
}

/// A process that is frozen for minutes goes on when the store has forgotten the answers. A repeated change would count twice.
#[tokio::test(start_paused = true)]
async fn a_change_without_an_answer_is_not_repeated_after_a_long_freeze() {
    let plug = Plug::new();
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    let frozen = Duration::from_secs(400);
    plug.lose_replies(1);
    let mut release = Box::pin(slots.release(4));
    assert!(futures_util::poll!(release.as_mut()).is_pending());
    tokio::time::advance(frozen).await;
    let error = release.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(slots.available().await.unwrap(), 5, "it has counted once");
    plug.lose_replies(1);
    let mut acquire = Box::pin(slots.acquire(2));
    assert!(futures_util::poll!(acquire.as_mut()).is_pending());
    tokio::time::advance(frozen).await;
    let error = acquire.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    while !client.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(slots.available().await.unwrap(), 3, "it has taken once");
}

/// A waiter is refused again and again after a reply was lost. Each answer says that nothing was taken until then, so the wait
/// may last longer than the store remembers a request.
#[tokio::test(start_paused = true)]
async fn a_wait_for_counted_permits_outlasts_the_memory_of_the_store() {
    let plug = Plug::new();
    let builder = Client::builder().simulated_time().plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    plug.lose_replies(1);
    let late = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        slots.release(1).await
    };
    let (acquired, released) = tokio::join!(slots.acquire(2), late);
    acquired.unwrap();
    released.unwrap();
    assert_eq!(slots.available().await.unwrap(), 0);
}

/// Subscribes no waiter for a number, and does not say so.
#[derive(Debug)]
struct NeverArmed(Arc<dyn Backend>);

impl NeverArmed {
    fn sound(&self) -> &dyn Counts {
        self.0.extensions().counts.unwrap()
    }
}

impl Twist for NeverArmed {
    fn counts<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Counts> {
        Some(self)
    }
}

impl Counts for NeverArmed {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        self.sound().change(name, change, id, settled)
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        self.sound().count(name, kind)
    }

    fn arm<'a>(&'a self, _name: &'a Name, _kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        Box::pin(std::future::pending())
    }
}

/// The first waiter of a process opens a connection for messages. If that hangs, neither the limit of the wait nor a close
/// waits for it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_number_ends_in_time_although_its_subscription_hangs() {
    let second = Duration::from_secs(1);
    let client = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .connect_to(async |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            let inner = Arc::clone(&store.front);
            Ok(Twisted::wrap(store, NeverArmed(inner)))
        })
        .await
        .unwrap();
    let (latch, slots) = (client.latch("gate"), client.counting_semaphore("slots"));
    assert!(latch.set_count_if_new(1).await.unwrap());
    let began = tokio::time::Instant::now();
    let waits =
        async { tokio::join!(latch.wait_timeout(second), slots.acquire_timeout(1, second)) };
    let (waited, acquired) = tokio::time::timeout(second * 60, waits)
        .await
        .expect("they end at their limit");
    assert!(began.elapsed() < second * 2, "{:?}", began.elapsed());
    for error in [waited.unwrap_err(), acquired.unwrap_err()] {
        assert!(error.is_timeout(), "{error}");
    }
    let waits =
        async { tokio::join!(latch.wait(), slots.acquire(1), client.close(Duration::ZERO)) };
    let (waited, acquired, _) = tokio::time::timeout(second * 60, waits)
        .await
        .expect("they end with the client");
    for error in [waited.unwrap_err(), acquired.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}
