//! What a lock costs: requests, waiting, and handing over.

use std::time::{Duration, Instant};

use proofs::waiting::{A_MINUTE, A_WHILE};
use testkit::process::{Spawned, cpu_time};
use testkit::servers::ZooKeeperServer;
use tidelock::{AcquireOptions, Client};

use crate::world::{SOON, World, ms, soon, until_waiters, waits};

/// Requests of the only session whose client waits this long for an answer, signs of life among them.
fn requests(server: &ZooKeeperServer) -> u64 {
    let text = server.say("cons").unwrap();
    let mine = text.lines().find(|line| line.contains("to=80000")).unwrap();
    let count = mine.split("recved=").nth(1).unwrap();
    count.split(',').next().unwrap().parse().unwrap()
}

/// How many requests something costs. Done often, so that a sign of life now and then does not count.
async fn cost(server: &ZooKeeperServer, mut what: impl AsyncFnMut()) -> u64 {
    const TIMES: u64 = 30;
    let before = requests(server);
    for _ in 0..TIMES {
        what().await;
    }
    (requests(server) - before + TIMES / 2) / TIMES
}

/// A look (2 requests, 1 trip), a node and with it the list and whether a delay is running (3 and 1); a release is one. A refused try costs the look, a
/// re-entry nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_costs_two_trips_and_a_release_one() {
    let server = ZooKeeperServer::start().unwrap();
    let client = Client::builder()
        .lease(ms(60_000))
        .response_timeout(ms(20_000))
        .connect(&server.url())
        .await
        .unwrap();
    let lock = client.lock("till");
    lock.acquire().await.unwrap().release().await.unwrap();
    let pair = cost(&server, async || {
        lock.acquire().await.unwrap().release().await.unwrap();
    });
    assert_eq!(pair.await, 6);
    let held = lock.acquire().await.unwrap();
    let refused = cost(&server, async || {
        assert!(lock.try_acquire().await.unwrap().is_none());
    });
    assert_eq!(refused.await, 2);
    let reentry = cost(&server, async || drop(held.reenter()));
    assert_eq!(reentry.await, 0);
    let seen = cost(&server, async || drop(lock.inspect().await.unwrap()));
    assert_eq!(seen.await, 4);
    // A wait: a look, a node with its list, a watch on the one before; leaving is one, and one for its watch.
    let wait = cost(&server, async || {
        let waited = AcquireOptions::new().wait(ms(60));
        let refused = lock.acquire_with(waited).await;
        assert!(refused.unwrap_err().is_timeout());
    });
    let wait = wait.await;
    assert!((7..=9).contains(&wait), "{wait}");
}

/// From the release in one session to the lock in the hands of a waiter in another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_milliseconds() {
    let world = World::new(ms(9000)).await;
    let mut times = Vec::new();
    for turn in 0..60 {
        let (one, other) = match turn % 2 {
            0 => (&world.near, &world.far),
            _ => (&world.far, &world.near),
        };
        let held = one.lock("till").acquire().await.unwrap();
        let waiter = waits(other, "till");
        until_waiters(one, "till", 1).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let (guard, taken) = soon("the hand-over", waiter).await.unwrap();
        times.push(taken - released);
        guard.release().await.unwrap();
    }
    times.sort_unstable();
    println!("hand-over: median {:?}, slowest {:?}", times[30], times[59]);
    // By polling it would be that, with nobody else on the machine.
    assert!(times[30] <= ms(50), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_cost_next_to_nothing() {
    a_hundred_waiters_for(A_WHILE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() {
    a_hundred_waiters_for(A_MINUTE).await;
}

/// A hundred waiters of one name, in a process that does nothing else: each watches one node, and all of them sleep.
async fn a_hundred_waiters_for(window: Duration) {
    let world = World::new(ms(30_000)).await;
    let held = world.near.lock("till").acquire().await.unwrap();
    let mut peer: Spawned = world.peer();
    for _ in 0..100 {
        peer.write_line("acquire till").unwrap();
    }
    until_waiters(&world.near, "till", 100).await;
    soon("a watch for each", async {
        while world.server.number("zk_watch_count").unwrap() != 100 {
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    let packets = || world.server.number("zk_packets_received").unwrap();
    let (busy, sent) = (cpu_time(peer.pid()).unwrap(), packets());
    tokio::time::sleep(window).await;
    let busy = cpu_time(peer.pid()).unwrap().saturating_sub(busy);
    let sent = packets() - sent;
    println!("100 waiters for {window:?}: {busy:?} of a core, {sent} requests by all clients");
    assert!(busy <= window.mul_f64(0.02), "{busy:?}");
    // A hundred in six seconds.
    assert!(sent * 6 < 100 * window.as_secs(), "{sent} requests");
    held.release().await.unwrap();
    // One is woken, not a hundred.
    peer.wait_line("acquired till", SOON).unwrap();
    until_waiters(&world.near, "till", 99).await;
}
