//! Leases end for the other side when they should, and each side reads the other's time to live.

use std::time::Duration;

use testkit::java::{JavaLock, RedissonVersion, monotonic_now_ns};
use tidelock::{AcquireOptions, ErrorKind, Lock};

use crate::world::{WAKE_BOUND, World, between};

const SHORT: Duration = Duration::from_secs(1);
/// What a reading may be late on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

with_each_redisson!(
    rust_takes_over_when_a_java_lease_ends,
    java_takes_over_when_a_rust_lease_ends,
    each_side_reads_the_other_ones_time_to_live,
);

fn rust_takes_over_when_a_java_lease_ends(version: RedissonVersion) {
    let world = World::new(version);
    let java = world.java.lock("a", "ends");
    let taken = java.lock_for(SHORT).unwrap();
    let (guard, got) = world
        .run(world.begin_acquire(&world.client.lock("ends")))
        .unwrap();
    assert!(between(taken.started_at_ns, got) >= SHORT);
    let took = between(taken.done_at_ns, got);
    assert!(took < SHORT + WAKE_BOUND, "{took:?}");
    assert!(java.unlock().unwrap_err().is_not_held());
    assert!(guard.is_held(), "a late unlock touched the next holder");
    assert_eq!(java.hold_count().unwrap().value, 0);
    world.run(guard.release()).unwrap();
}

fn java_takes_over_when_a_rust_lease_ends(version: RedissonVersion) {
    let world = World::new(version);
    let java = world.java.lock("a", "ends");
    let before = monotonic_now_ns();
    let guard = world.acquire_with(
        &world.client.lock("ends"),
        AcquireOptions::new().expires_after(SHORT),
    );
    let taken = monotonic_now_ns();
    let got = java.lock().unwrap().done_at_ns;
    assert!(!guard.is_held(), "not told before it was taken");
    assert!(between(before, got) >= SHORT);
    let took = between(taken, got);
    assert!(took < SHORT + WAKE_BOUND, "{took:?}");
    let late = world.run(guard.release()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Lost);
    assert!(
        java.is_held().unwrap().value,
        "a late release touched the next holder"
    );
    java.unlock().unwrap();
}

fn each_side_reads_the_other_ones_time_to_live(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("ttl");
    let java = world.java.lock("a", "ttl");
    let (ten, twenty, thirty) = (10, 20, 30);

    java.lock().unwrap();
    sees(&world, &lock, Some(thirty));
    java.lock_for(Duration::from_secs(ten)).unwrap();
    sees(&world, &lock, Some(ten));
    java.unlock().unwrap();
    sees(&world, &lock, Some(ten));
    java.unlock().unwrap();
    sees(&world, &lock, None);

    let guard = world.acquire(&lock);
    is_seen(&java, thirty);
    let inner = guard.reenter();
    is_seen(&java, thirty);
    drop(inner);
    world.run(guard.release()).unwrap();
    assert_eq!(java.ttl_ms().unwrap().value, -2);

    let options = AcquireOptions::new().lease(Duration::from_secs(ten));
    let guard = world.acquire_with(&lock, options);
    is_seen(&java, ten);
    world
        .run(guard.extend(Duration::from_secs(twenty)))
        .unwrap();
    is_seen(&java, twenty);
    world.run(guard.extend(Duration::from_secs(ten))).unwrap();
    is_seen(&java, twenty);
    world.run(guard.release()).unwrap();

    let options = AcquireOptions::new().expires_after(Duration::from_secs(ten));
    let guard = world.acquire_with(&lock, options);
    is_seen(&java, ten);
    world.run(guard.release()).unwrap();
    assert_eq!(java.ttl_ms().unwrap().value, -2);
}

/// Rust sees about as much left.
fn sees(world: &World, lock: &Lock, seconds: Option<u64>) {
    let left = world.run(lock.inspect()).unwrap().expires_in;
    match seconds.map(Duration::from_secs) {
        None => assert_eq!(left, None),
        Some(lease) => assert!(
            left.is_some_and(|left| about(left, lease)),
            "{left:?} of {lease:?}"
        ),
    }
}

/// Java sees about as much left.
fn is_seen(java: &JavaLock, seconds: u64) {
    let left = java.ttl_ms().unwrap().value;
    let lease = Duration::from_secs(seconds);
    let about = u64::try_from(left).is_ok_and(|left| about(Duration::from_millis(left), lease));
    assert!(about, "{left} ms of {lease:?}");
}

fn about(left: Duration, lease: Duration) -> bool {
    left <= lease && left > lease.saturating_sub(SLACK)
}
