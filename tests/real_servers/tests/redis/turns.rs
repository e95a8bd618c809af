//! Fairness between processes.

use std::time::Duration;

use testkit::proxy::{Mode, Proxy};
use testkit::servers::RedisServer;
use tidelock::{Client, HandOff};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(6);

/// The time for which the tasks of the fast client may hand the lock to each other in a row.
const WITHIN: Duration = Duration::from_millis(100);

/// The wake and the attempt that follows it take longer than the fast client's pause between two holds. A Java service
/// or a distant client is that slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_needs_longer_gets_its_turn_too() {
    let server = RedisServer::start().unwrap();
    let far = Proxy::start(server.addr()).unwrap();
    far.set_both(Mode::Delay(Duration::from_millis(1)));
    let connect = |url: String| async move {
        let rules = HandOff::default().within(WITHIN);
        let builder = Client::builder().lease(LEASE).hand_off(rules);
        builder.connect(&url).await.unwrap()
    };
    let (near, far) = (connect(server.url()).await, connect(far.url()).await);
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let lock = near.lock("stock");
            tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let (lock, began) = (far.lock("stock"), Instant::now());
    for turn in 1..=5 {
        let guard = timeout(LEASE, lock.acquire()).await;
        let guard = guard
            .unwrap_or_else(|_| panic!("no turn {turn} within a lease"))
            .unwrap();
        println!("turn {turn} after {:?}", began.elapsed());
        guard.release().await.unwrap();
    }
    let took = began.elapsed();
    assert!(took < LEASE / 2, "five turns took {took:?}");
    for task in busy {
        task.abort();
    }
}
