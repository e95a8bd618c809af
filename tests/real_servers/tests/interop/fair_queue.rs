//! Java's `RFairLock` and tidelock's fair lock in one queue.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use testkit::java::{HammerPlan, JavaPeer, RedissonVersion, WordFile, monotonic_now_ns};
use testkit::process::Spawned;
use testkit::servers::Cluster;

use crate::topologies::until;
use crate::world::{LEASE, WAKE_BOUND, World, between, rust};

with_every_redisson!(
    t73_java_and_rust_wait_in_one_queue_in_their_order,
    t73_a_fair_queue_of_both_never_overlaps,
    t73_a_java_holder_counts_once_after_a_hand_over,
    t73_a_java_try_does_not_overtake_a_rust_waiter,
    t73_a_java_waiter_behind_a_killed_rust_waiter_has_its_turn,
    t73_in_a_cluster_a_fair_queue_of_both_hands_over,
);

const NAME: &str = "turns";
const SOON: Duration = Duration::from_secs(20);

fn queue(world: &World) -> Vec<String> {
    let key = "redisson_lock_queue:{turns}";
    world.server.query(&["LRANGE", key, "0", "-1"]).unwrap()
}

/// Rust, Java, Java, Rust, Rust, Java: each gets the lock in the order in which it came.
fn t73_java_and_rust_wait_in_one_queue_in_their_order(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.fair_lock(NAME);
    let guard = world.acquire(&lock);
    let order = [None, Some("a"), Some("b"), None, None, Some("c")];
    let (mut rust, mut java) = (Vec::new(), Vec::new());
    for (place, worker) in order.into_iter().enumerate() {
        match worker {
            None => {
                let waiting = lock.acquire();
                rust.push((
                    place,
                    world.begin(async move {
                        let guard = waiting.await.unwrap();
                        let got = monotonic_now_ns();
                        guard.release().await.unwrap();
                        got
                    }),
                ));
            }
            Some(worker) => {
                let theirs = world.java.fair_lock(worker, NAME);
                java.push((place, theirs.begin_lock_when_free().unwrap()));
            }
        }
        until(|| queue(&world).len() == place + 1);
    }
    let owners = queue(&world);
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let mut had: Vec<(usize, u64)> = Vec::new();
    had.extend(
        rust.into_iter()
            .map(|(place, got)| (place, world.run(got).unwrap())),
    );
    had.extend(
        java.into_iter()
            .map(|(place, got)| (place, got.wait().unwrap().done_at_ns)),
    );
    had.sort_unstable();
    let times: Vec<u64> = had.iter().map(|(_, at)| *at).collect();
    assert!(times.is_sorted(), "{had:?} of {owners:?}");
    let took = between(released, times[5]);
    println!("six turns in {took:?}");
    assert!(took < WAKE_BOUND, "{took:?}");
    assert!(queue(&world).is_empty());
}

/// 510 acquisitions: three threads of Java and three tasks of Rust.
fn t73_a_fair_queue_of_both_never_overlaps(version: RedissonVersion) {
    const ROUNDS: u32 = 85;
    let world = World::new(version);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let inside = Arc::new(WordFile::create(&path).unwrap());
    let plan = HammerPlan {
        rounds: ROUNDS,
        threads: 3,
        word_file: path,
        hold: Duration::from_millis(1),
    };
    let theirs = world.java.fair_lock("h", NAME).begin_hammer(&plan).unwrap();
    let ours: Vec<_> = (1..=3)
        .map(|me| {
            let (lock, inside) = (world.client.fair_lock(NAME), Arc::clone(&inside));
            world.begin(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..ROUNDS {
                    let asked = monotonic_now_ns();
                    let guard = lock.acquire().await.unwrap();
                    longest = longest.max(between(asked, monotonic_now_ns()));
                    let (alone, counter) = inside.enter(me).unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert!(
                        alone && inside.leave(me, counter).unwrap(),
                        "two are inside"
                    );
                    guard.release().await.unwrap();
                }
                longest
            })
        })
        .collect();
    for ours in ours {
        let longest = world.run(ours).unwrap();
        println!("longest wait of Rust: {longest:?}");
        assert!(longest < LEASE / 2, "{longest:?}");
    }
    let report = theirs.value().unwrap();
    println!("{report:?}");
    assert_eq!(
        (report.acquisitions, report.overlaps),
        (u64::from(ROUNDS) * 3, 0)
    );
    let longest = Duration::from_nanos(report.wait_max_ns);
    assert!(longest < LEASE / 2, "{report:?}");
    assert!(queue(&world).is_empty());
}

/// A waiter of Redisson asks again when it is told, and would count to 2 if it had been granted the lock.
fn t73_a_java_holder_counts_once_after_a_hand_over(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.fair_lock(NAME);
    for _ in 0..5 {
        let guard = world.acquire(&lock);
        let theirs = world.java.fair_lock("a", NAME);
        let waiting = theirs.begin_lock().unwrap();
        until(|| queue(&world).len() == 1);
        world.run(guard.release()).unwrap();
        waiting.wait().unwrap();
        assert_eq!(theirs.hold_count().unwrap().value, 1);
        theirs.unlock().unwrap();
        assert!(world.is_free_for_rust(&lock));
    }
}

fn t73_a_java_try_does_not_overtake_a_rust_waiter(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.fair_lock(NAME);
    let theirs = world.java.fair_lock("a", NAME);
    theirs.lock().unwrap();
    let waiting = world.begin_acquire(&lock);
    until(|| queue(&world).len() == 1);
    let unlocked = theirs.unlock().unwrap().started_at_ns;
    assert!(!world.java.fair_lock("b", NAME).try_lock().unwrap().value);
    let (guard, got) = world.run(waiting).unwrap();
    let took = between(unlocked, got);
    println!("Java to Rust: {took:?}");
    assert!(took < WAKE_BOUND, "{took:?}");
    world.run(guard.release()).unwrap();
}

/// Redisson grants the lock only to the head, and the process that was killed still counts as alive.
fn t73_a_java_waiter_behind_a_killed_rust_waiter_has_its_turn(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.fair_lock(NAME);
    let guard = world.acquire(&lock);
    let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
    command.arg(world.server.url()).arg("30000");
    let mut peer = Spawned::start(command).unwrap();
    peer.wait_line("ready client=", SOON).unwrap();
    peer.write_line(&format!("hammer {NAME} 1 fair")).unwrap();
    until(|| queue(&world).len() == 1);
    let waiting = world
        .java
        .fair_lock("a", NAME)
        .begin_lock_when_free()
        .unwrap();
    until(|| queue(&world).len() == 2);
    peer.kill().unwrap();
    let channels = ["PUBSUB", "CHANNELS", "redisson_lock__channel:*"];
    until(|| {
        world
            .server
            .query::<Vec<String>, _>(&channels)
            .unwrap()
            .len()
            == 1
    });
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let took = between(released, waiting.wait().unwrap().done_at_ns);
    println!("behind a killed waiter: {took:?}");
    assert!(took < WAKE_BOUND, "{took:?}");
}

/// Redisson publishes in the form that its version chooses, to the waiter right behind it; tidelock to the process of its
/// own waiters.
fn t73_in_a_cluster_a_fair_queue_of_both_hands_over(version: RedissonVersion) {
    let cluster = Cluster::start().unwrap();
    let node = cluster.node_of(NAME).unwrap();
    let java = JavaPeer::start(version, cluster.url()).unwrap();
    let (runtime, client) = rust(&cluster.url(), Duration::from_secs(30));
    let (lock, theirs) = (client.fair_lock(NAME), java.fair_lock("a", NAME));
    let key = "redisson_lock_queue:{turns}";
    let queued = || -> Vec<String> { node.query(&["LRANGE", key, "0", "-1"]).unwrap() };
    // The first waiter hears Redisson, the second one the turn of its process.
    let mut fastest = [WAKE_BOUND; 2];
    for _ in 0..3 {
        theirs.lock().unwrap();
        let waiting = [lock.acquire(), lock.acquire()].map(|waiting| {
            let place = queued().len() + 1;
            let waiting = runtime.spawn(async move {
                let guard = waiting.await.unwrap();
                (guard, monotonic_now_ns())
            });
            until(|| queued().len() == place);
            waiting
        });
        let first = format!("redisson_lock__channel:{{turns}}:{}", queued()[0]);
        until(|| {
            let (_, heard): (String, i64) = node.query(&["PUBSUB", "NUMSUB", &first]).unwrap();
            heard == 1
        });
        let last = java.fair_lock("b", NAME).begin_lock_when_free().unwrap();
        until(|| queued().len() == 3);
        let mut before = theirs.unlock().unwrap().started_at_ns;
        for (waiting, fastest) in waiting.into_iter().zip(&mut fastest) {
            let (guard, got) = runtime.block_on(waiting).unwrap();
            println!("to Rust: {:?}", between(before, got));
            assert!(between(before, got) < WAKE_BOUND);
            *fastest = between(before, got).min(*fastest);
            before = monotonic_now_ns();
            runtime.block_on(guard.release()).unwrap();
        }
        let took = between(before, last.wait().unwrap().done_at_ns);
        println!("to Java: {took:?}");
        assert!(took < WAKE_BOUND, "{took:?}");
        until(|| queued().is_empty());
    }
    // Half a beat.
    let heard = fastest.iter().all(|it| *it < Duration::from_secs(1));
    assert!(heard, "{fastest:?}: the beats found it");
}
