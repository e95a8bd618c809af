//! A release on one side wakes a waiter on the other at once, not when the lease ends.

use testkit::java::{RedissonVersion, monotonic_now_ns};

use crate::world::{WAKE_BOUND, World, between};

/// Each round uses a new name, so that each waiter has to subscribe.
const ROUNDS: u32 = 5;

with_each_redisson!(
    a_rust_release_wakes_a_java_waiter,
    a_java_unlock_wakes_a_rust_waiter,
    a_forced_release_wakes_the_other_side,
);

fn a_rust_release_wakes_a_java_waiter(version: RedissonVersion) {
    let world = World::new(version);
    for round in 0..ROUNDS {
        let name = format!("to java {round}");
        let guard = world.acquire(&world.client.lock(&name));
        let mut observer = world.observer();
        let waiter = world.java.lock("a", &name).begin_lock_when_free().unwrap();
        observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
        let released = monotonic_now_ns();
        world.run(guard.release()).unwrap();
        let took = between(released, waiter.wait().unwrap().done_at_ns);
        println!("Rust to Java: {took:?}");
        assert!(took < WAKE_BOUND, "{took:?}");
    }
}

fn a_java_unlock_wakes_a_rust_waiter(version: RedissonVersion) {
    let world = World::new(version);
    // This loads the scripts into the server, so that each attempt below is one call.
    drop(world.acquire(&world.client.lock("warm")));
    for round in 0..ROUNDS {
        let name = format!("to rust {round}");
        let theirs = world.java.lock("a", &name);
        theirs.lock().unwrap();
        let mut observer = world.observer();
        let waiter = world.begin_acquire(&world.client.lock(&name));
        observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
        let unlocked = theirs.unlock().unwrap().started_at_ns;
        let (guard, got) = world.run(waiter).unwrap();
        let took = between(unlocked, got);
        println!("Java to Rust: {took:?}");
        assert!(took < WAKE_BOUND, "{took:?}");
        world.run(guard.release()).unwrap();
    }
}

fn a_forced_release_wakes_the_other_side(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("forced");
    let (a, b) = (
        world.java.lock("a", "forced"),
        world.java.lock("b", "forced"),
    );

    a.lock().unwrap();
    let mut observer = world.observer();
    let waiter = b.begin_lock().unwrap();
    observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
    let forced = monotonic_now_ns();
    assert!(world.run(lock.force_release()).unwrap());
    let took = between(forced, waiter.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");

    let mut observer = world.observer();
    let waiter = world.begin_acquire(&lock);
    observer.look(&["SUBSCRIBE", "script"]).unwrap();
    let forced = a.force_unlock().unwrap();
    assert!(forced.value);
    let (guard, got) = world.run(waiter).unwrap();
    let took = between(forced.started_at_ns, got);
    assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
    world.run(guard.release()).unwrap();
}
