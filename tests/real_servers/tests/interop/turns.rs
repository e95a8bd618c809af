//! Java's turns at a lock that tasks in a Rust process hand over among each other.

use std::time::Duration;

use testkit::java::{RedissonVersion, monotonic_now_ns};
use tidelock::{Client, HandOff};
use tokio::time::sleep;

use crate::world::{World, between};

/// The limit for consecutive holds by the tasks of one process.
const WITHIN: Duration = Duration::from_millis(100);

const TURNS: u32 = 20;

const LEASE: Duration = Duration::from_secs(30);

with_each_redisson!(
    /// A JVM takes longer from a message to its attempt than a Rust task does. The fairness delay gives it that time.
    a_java_waiter_has_its_turn_after_the_tasks_of_a_process
);

fn a_java_waiter_has_its_turn_after_the_tasks_of_a_process(version: RedissonVersion) {
    let world = World::with_lease(version, LEASE);
    let rules = HandOff::default().within(WITHIN);
    let client = Client::builder().hand_off(rules);
    let client = world.run(client.connect(&world.server.url())).unwrap();
    for _ in 0..8 {
        let lock = client.lock("stock");
        world.spawn(async move {
            while let Ok(guard) = lock.acquire().await {
                sleep(Duration::from_millis(1)).await;
                drop(guard.release().await);
            }
        });
    }
    let theirs = world.java.lock("a", "stock");
    let began = monotonic_now_ns();
    let mut waits: Vec<Duration> = (0..TURNS)
        .map(|_| {
            let asked = monotonic_now_ns();
            let done = theirs.begin_lock_when_free().unwrap().wait().unwrap();
            between(asked, done.done_at_ns)
        })
        .collect();
    let took = between(began, monotonic_now_ns());
    world.run(client.close(Duration::ZERO));
    waits.sort_unstable();
    println!("{TURNS} turns in {took:?}: {waits:?}");
    // A leader term or two per turn, if the JVM has a processor to itself. On a busy machine it must still get its
    // turns.
    assert!(took < LEASE, "{took:?}");
}
