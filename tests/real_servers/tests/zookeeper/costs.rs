//! The cost of a lock: requests, waiting, and hand-over.

use std::time::{Duration, Instant};

use real_servers::waiting::{A_MINUTE, A_WHILE};
use testkit::process::{Spawned, cpu_time};
use testkit::proxy::Mode;
use testkit::servers::ZooKeeperServer;
use tidelock::once::{Once, Slot};
use tidelock::{AcquireOptions, Client};

use crate::world::{SOON, World, ms, soon, until_waiters, waits};

/// The number of requests, including heartbeats, of the one session whose client has a lease of a minute.
fn requests(server: &ZooKeeperServer) -> u64 {
    let text = server.say("cons").unwrap();
    let mine = text.lines().find(|line| line.contains("to=80000")).unwrap();
    let count = mine.split("recved=").nth(1).unwrap();
    count.split(',').next().unwrap().parse().unwrap()
}

/// The number of requests that an operation of a client with a lease of a minute costs most often. So an occasional heartbeat does not count.
pub(crate) async fn cost(server: &ZooKeeperServer, mut what: impl AsyncFnMut()) -> u64 {
    const TIMES: usize = 30;
    let mut costs = Vec::new();
    for _ in 0..TIMES {
        let before = requests(server);
        what().await;
        costs.push(requests(server) - before);
    }
    println!("requests: {costs:?}");
    costs.sort_unstable();
    costs[TIMES / 2]
}

/// An acquire reads the queue (2 requests, 1 round trip), then creates its node, reads the queue again and checks for a
/// lock delay (3 requests, 1 round trip). A release costs one request. A refused attempt costs only the read, and a
/// re-entry costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_costs_two_trips_and_a_release_one() {
    let server = ZooKeeperServer::start_with_lasting_containers().unwrap();
    let client = Client::builder()
        .lease(Duration::from_secs(60))
        .response_timeout(Duration::from_secs(20))
        .publish_process_info(false)
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
    // A wait reads the queue, creates a node, reads the queue again, and watches the node before its own. Leaving costs
    // one request, and removing the watch costs one.
    let wait = cost(&server, async || {
        let waited = AcquireOptions::new().wait(ms(1000));
        let refused = lock.acquire_with(waited).await;
        assert!(refused.unwrap_err().is_timeout());
    });
    let wait = wait.await;
    assert!((7..=9).contains(&wait), "{wait}");
}

/// The time from the release in one session until a waiter in another session has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_waiter() {
    let session = ms(9000);
    let world = World::alike(session).await;
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
    // A waiter that nobody wakes looks again only after seconds.
    assert!(times[30] <= session / 10, "{times:?}");
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

/// A hundred waiters of one name, in an otherwise idle process: each watches one node, and all of them sleep.
async fn a_hundred_waiters_for(window: Duration) {
    let world = World::new(Duration::from_secs(30)).await;
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
    // The hundred waiters may send at most a hundred requests in six seconds.
    assert!(sent * 6 < 100 * window.as_secs(), "{sent} requests");
    held.release().await.unwrap();
    // The release wakes one waiter, not a hundred.
    peer.wait_line("acquired till", SOON).unwrap();
    until_waiters(&world.near, "till", 99).await;
}

/// One reply after the other, 300 marks would take two leases here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_many_slots_takes_few_round_trips() {
    const SLOTS: u32 = 300;
    let lease = ms(6000);
    let world = World::new(lease).await;
    for slot in 0..SLOTS {
        let job = world.near.once("report").slot(Slot::id(slot.to_string()));
        let ran = job.run(async |_| Ok::<_, std::io::Error>(())).await;
        assert!(matches!(ran, Ok(Once::Ran(()))), "{ran:?}");
    }
    world.proxy.set_both(Mode::Delay(ms(20)));
    let report = world.far.once("report");
    let newest = tokio::time::timeout(lease, report.history(SLOTS)).await;
    let newest = newest.unwrap().unwrap();
    assert_eq!(newest.len(), SLOTS as usize);
    assert_eq!(newest[0].slot, (SLOTS - 1).to_string());
}
