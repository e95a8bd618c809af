//! Turns of Java beside tasks in Rust that hand a lock on within their process.

use std::time::Duration;

use testkit::java::{RedissonVersion, monotonic_now_ns};
use tidelock::{Client, HandOff};
use tokio::time::sleep;

use crate::world::{World, between};

/// How long a lock stays with the tasks of one process in a row.
const WITHIN: Duration = Duration::from_millis(100);

const TURNS: u32 = 20;

const LEASE: Duration = Duration::from_secs(30);

with_each_redisson!(
    /// A JVM needs longer from a message to its question than a neighbour in Rust, and is given it.
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
    // A tenure or two each, where the JVM has a processor. It is not left out in any case.
    assert!(took < LEASE, "{took:?}");
}
