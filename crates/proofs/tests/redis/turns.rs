//! Whose turn it is between processes.

use std::time::Duration;

use testkit::proxy::{Mode, Proxy};
use testkit::servers::RedisServer;
use tidelock::{Client, HandOff};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(6);

/// How long the tasks of the quick client hand the lock on to each other in a row.
const WITHIN: Duration = Duration::from_millis(100);

/// A message, and the question it leads to, need longer than the quick client's pause between two of its turns: as those of a
/// Java service do, or of one that is far away.
#[tokio::test(flavor = "multi_thread")]
async fn who_needs_longer_to_come_gets_its_turn_too() {
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
