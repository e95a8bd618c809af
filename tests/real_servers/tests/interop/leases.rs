//! A lease ends for the other side when it should, and each side reads the other's time to live.

use std::time::Duration;

use testkit::java::{JavaLock, RedissonVersion, monotonic_now_ns};
use tidelock::{AcquireOptions, ErrorKind, Lock};

use crate::world::{WAKE_BOUND, World, between};

const SHORT: Duration = Duration::from_secs(1);
/// The server counts whole milliseconds, on another clock.
const ROUNDED: Duration = Duration::from_millis(20);

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
    // So long that a busy machine can delay either side: no lease ends, and no watchdog renews one meanwhile.
    let [short, middle, long] = [100, 200, 600].map(Duration::from_secs);
    let world = World::with_lease(version, long);
    let lock = world.client.lock("ttl");
    let java = world.java.lock("a", "ttl");

    let taken = monotonic_now_ns();
    java.lock().unwrap();
    sees(&world, &lock, long, taken);
    let taken = monotonic_now_ns();
    java.lock_for(short).unwrap();
    sees(&world, &lock, short, taken);
    java.unlock().unwrap();
    sees(&world, &lock, short, taken);
    java.unlock().unwrap();
    assert_eq!(world.run(lock.inspect()).unwrap().expires_in, None);

    let taken = monotonic_now_ns();
    let guard = world.acquire(&lock);
    is_seen(&java, long, taken);
    let inner = guard.reenter();
    is_seen(&java, long, taken);
    drop(inner);
    world.run(guard.release()).unwrap();
    assert_eq!(java.ttl_ms().unwrap().value, -2);

    let options = AcquireOptions::new().lease(short);
    let taken = monotonic_now_ns();
    let guard = world.acquire_with(&lock, options);
    is_seen(&java, short, taken);
    let extended = monotonic_now_ns();
    world.run(guard.extend(middle)).unwrap();
    is_seen(&java, middle, extended);
    world.run(guard.extend(short)).unwrap();
    is_seen(&java, middle, extended);
    world.run(guard.release()).unwrap();

    let options = AcquireOptions::new().expires_after(short);
    let taken = monotonic_now_ns();
    let guard = world.acquire_with(&lock, options);
    is_seen(&java, short, taken);
    world.run(guard.release()).unwrap();
    assert_eq!(java.ttl_ms().unwrap().value, -2);
}

/// Checks the rest of the lease as Rust shows it. The lease began at `taken` or later.
fn sees(world: &World, lock: &Lock, lease: Duration, taken: u64) {
    let left = world.run(lock.inspect()).unwrap().expires_in.unwrap();
    is_rest(left, lease, taken);
}

/// The same, as Java shows it.
fn is_seen(java: &JavaLock, lease: Duration, taken: u64) {
    let left = u64::try_from(java.ttl_ms().unwrap().value).unwrap();
    is_rest(Duration::from_millis(left), lease, taken);
}

/// The rest is at most the lease, and at least the lease minus the time since `taken`, however long the read took.
fn is_rest(left: Duration, lease: Duration, taken: u64) {
    let passed = between(taken, monotonic_now_ns());
    assert!(
        left <= lease && left + passed + ROUNDED >= lease,
        "{left:?} of {lease:?} after {passed:?}"
    );
}
