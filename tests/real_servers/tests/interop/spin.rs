//! Java's `RLock` of `getSpinLock` and tidelock's spin lock: the same lock, and no messages.

use std::time::Duration;

use testkit::java::{RedissonVersion, monotonic_now_ns};

use crate::load::hammer;
use crate::world::{WAKE_BOUND, World, between};

with_every_redisson!(
    spin_locks_exclude_each_other_in_both_directions,
    spin_locks_send_no_message_and_hear_none,
    a_spin_lock_of_rust_wakes_those_of_java_who_sleep,
    two_java_and_two_rust_processes_that_spin_never_overlap,
);

const NAME: &str = "seat";

fn spin_locks_exclude_each_other_in_both_directions(version: RedissonVersion) {
    if !version.has_spin_lock() {
        return;
    }
    let world = World::new(version);
    let rust = world.client.spin_lock(NAME);
    let java = world.java.spin_lock("a", NAME);
    for _ in 0..3 {
        java.lock().unwrap();
        assert!(!world.is_free_for_rust(&rust));
        assert!(!world.is_free_for_rust(&world.client.lock(NAME)));
        let waiter = world.begin_acquire(&rust);
        let unlocked = java.unlock().unwrap().started_at_ns;
        let (guard, got) = world.run(waiter).unwrap();
        let took = between(unlocked, got);
        assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
        assert!(!java.try_lock().unwrap().value);
        assert!(!world.java.lock("a", NAME).try_lock().unwrap().value);
        let waiter = java.begin_lock_when_free().unwrap();
        let released = monotonic_now_ns();
        world.run(guard.release()).unwrap();
        let took = between(released, waiter.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");
    }
    assert!(world.is_free_for_rust(&rust));
}

/// How often the server has executed a command, also inside scripts.
fn calls(world: &World, command: &str) -> u64 {
    let stats: String = world.server.query(&["INFO", "commandstats"]).unwrap();
    let line = format!("cmdstat_{command}:calls=");
    let of_command = stats.lines().find_map(|text| text.strip_prefix(&line));
    of_command.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Nothing is published or subscribed, also while both wait for each other.
fn spin_locks_send_no_message_and_hear_none(version: RedissonVersion) {
    if !version.has_spin_lock() {
        return;
    }
    let world = World::new(version);
    let rust = world.client.spin_lock(NAME);
    let java = world.java.spin_lock("a", NAME);
    // The requests that ask for the lock and are refused.
    let asks = |world: &World| calls(world, "evalsha");
    for _ in 0..2 {
        java.lock().unwrap();
        let before = asks(&world);
        let waiter = world.begin_acquire(&rust);
        crate::topologies::until(|| asks(&world) > before + 2);
        java.unlock().unwrap();
        let (guard, _) = world.run(waiter).unwrap();
        let before = calls(&world, "eval") + asks(&world);
        let waiter = java.begin_lock_when_free().unwrap();
        crate::topologies::until(|| calls(&world, "eval") + asks(&world) > before + 2);
        world.run(guard.release()).unwrap();
        waiter.wait().unwrap();
    }
    for command in ["publish", "spublish", "subscribe", "ssubscribe"] {
        assert_eq!(calls(&world, command), 0, "{command}");
    }
}

/// Redisson's own spin lock leaves them asleep until the lease ends.
fn a_spin_lock_of_rust_wakes_those_of_java_who_sleep(version: RedissonVersion) {
    let world = World::new(version);
    let rust = world.client.spin_lock(NAME);
    for java in [world.java.lock("b", NAME), world.java.fair_lock("c", NAME)] {
        let guard = world.acquire(&rust);
        let mut observer = world.observer();
        let waiter = java.begin_lock_when_free().unwrap();
        observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
        let released = monotonic_now_ns();
        world.run(guard.release()).unwrap();
        let took = between(released, waiter.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "{took:?}");
    }
}

/// 1,200 acquisitions.
fn two_java_and_two_rust_processes_that_spin_never_overlap(version: RedissonVersion) {
    if !version.has_spin_lock() {
        return;
    }
    let done = hammer(version, "spin", 150);
    assert_eq!(done.holds, 1_200);
    assert!(done.longest < Duration::from_secs(15), "{done:?}");
}
