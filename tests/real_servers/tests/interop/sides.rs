//! Java's `RReadWriteLock` and tidelock's read-write lock of one name: they exclude and wake each other, and the keys of
//! both are the same.

use std::time::{Duration, Instant};

use testkit::java::{JavaLock, JavaPeer, PeerOptions, RedissonVersion, monotonic_now_ns};
use testkit::proxy::{Proxy, Then, When};
use tidelock::{Lock, LostReason, ReadWriteLock};

use crate::load::hammer;
use crate::world::{WAKE_BOUND, World, between};

with_every_redisson!(
    sides_exclude_each_other_in_both_directions,
    sides_wake_each_other_in_both_directions,
    a_reader_joins_a_java_writer_that_goes_on_reading,
    a_side_has_the_keys_of_redisson,
    a_reader_of_java_that_died_keeps_no_writer_out,
    readers_and_writers_of_both_languages_never_meet,
    a_downgrade_lets_java_readers_in_and_no_java_writer,
    a_java_waiter_about_to_sleep_hears_that_its_lock_is_free,
);

const NAME: &str = "prices";

fn sides(world: &World) -> ReadWriteLock {
    world.client.read_write_lock(NAME)
}

fn java_sides(world: &World, worker: &str) -> [JavaLock; 2] {
    [
        world.java.read_lock(worker, NAME),
        world.java.write_lock(worker, NAME),
    ]
}

fn sides_exclude_each_other_in_both_directions(version: RedissonVersion) {
    let world = World::new(version);
    let [read, write] = [sides(&world).read(), sides(&world).write()];
    let [java_read, java_write] = java_sides(&world, "a");
    for (held, may_read) in [(&java_read, true), (&java_write, false)] {
        held.lock().unwrap();
        assert_eq!(world.is_free_for_rust(&read), may_read);
        assert!(!world.is_free_for_rust(&write));
        held.unlock().unwrap();
    }
    for (held, may_read) in [(&read, true), (&write, false)] {
        let guard = world.acquire(held);
        assert_eq!(java_read.try_lock().unwrap().value, may_read);
        if may_read {
            java_read.unlock().unwrap();
        }
        assert!(!java_write.try_lock().unwrap().value);
        assert!(guard.is_held());
        world.run(guard.release()).unwrap();
    }
    assert_nothing_is_left(&world);
}

fn sides_wake_each_other_in_both_directions(version: RedissonVersion) {
    let world = World::new(version);
    let rust = [sides(&world).read(), sides(&world).write()];
    let java = java_sides(&world, "a");
    drop(world.acquire(&rust[0]));
    // The holder, and the waiter of the other language: a reader waits for a writer, a writer for both.
    for (holds, waits) in [(0, 1), (1, 0), (1, 1)] {
        rust_wakes_java(&world, &rust[holds], &java[waits]);
        java_wakes_rust(&world, &java[holds], &rust[waits]);
    }
    assert_nothing_is_left(&world);
}

fn rust_wakes_java(world: &World, held: &Lock, waits: &JavaLock) {
    let guard = world.acquire(held);
    let mut observer = world.observer();
    let waiter = waits.begin_lock_when_free().unwrap();
    observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let took = between(released, waiter.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");
}

fn java_wakes_rust(world: &World, held: &JavaLock, waits: &Lock) {
    held.lock().unwrap();
    let waiter = world.begin_acquire(waits);
    until_queued(world);
    let unlocked = held.unlock().unwrap().started_at_ns;
    let (guard, got) = world.run(waiter).unwrap();
    let took = between(unlocked, got);
    assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
    world.run(guard.release()).unwrap();
}

/// Redisson publishes nothing when the write hold ends and the read hold of the same thread stays.
fn a_reader_joins_a_java_writer_that_goes_on_reading(version: RedissonVersion) {
    let world = World::new(version);
    let [java_read, java_write] = java_sides(&world, "a");
    java_write.lock().unwrap();
    java_read.lock().unwrap();
    let waiter = world.begin_acquire(&sides(&world).read());
    until_queued(&world);
    assert!(!world.is_free_for_rust(&sides(&world).read()));
    let unlocked = java_write.unlock().unwrap().started_at_ns;
    let (guard, got) = world.run(waiter).unwrap();
    let took = between(unlocked, got);
    assert!(took < WAKE_BOUND, "{took:?}");
    assert!(!world.is_free_for_rust(&sides(&world).write()));
    world.run(guard.release()).unwrap();
    assert!(java_read.is_held().unwrap().value);
    java_read.unlock().unwrap();
    assert_nothing_is_left(&world);
}

fn until_queued(world: &World) {
    let end = Instant::now() + WAKE_BOUND;
    while world.run(sides(world).read().inspect()).unwrap().waiters != Some(1) {
        assert!(Instant::now() < end, "it does not wait");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// With the owner masked, the keys of a hold are the same, byte by byte, whichever language holds it.
fn a_side_has_the_keys_of_redisson(version: RedissonVersion) {
    let world = World::new(version);
    let java_owner = world.java.owner("a").unwrap();
    for (rust, java) in [
        (sides(&world).read(), world.java.read_lock("a", NAME)),
        (sides(&world).write(), world.java.write_lock("a", NAME)),
    ] {
        java.lock().unwrap();
        let theirs = keys(&world, &java_owner);
        java.unlock().unwrap();
        assert_nothing_is_left(&world);
        let guard = world.acquire(&rust);
        let ours = keys(&world, &guard.owner_id());
        assert_eq!(ours, theirs);
        world.run(guard.release()).unwrap();
        assert_nothing_is_left(&world);
    }
}

/// The keys, except tidelock's own and latches that Redisson deletes later.
fn keys(world: &World, owner: &str) -> Vec<String> {
    let of_others = ["tidelock:", "redisson_unlock_latch:"];
    let mut keys = Vec::new();
    for key in world.server.keys().unwrap() {
        if of_others.iter().any(|prefix| key.starts_with(prefix)) {
            continue;
        }
        let kind: String = world.server.query(&["TYPE", &key]).unwrap();
        let content = if kind == "hash" {
            let mut fields: Vec<(String, String)> = world.server.query(&["HGETALL", &key]).unwrap();
            fields.sort();
            format!("{fields:?}")
        } else {
            world.server.query::<String, _>(&["GET", &key]).unwrap()
        };
        let left: u64 = world.server.query(&["PTTL", &key]).unwrap();
        let shown = format!("{key} = {content}, {} s", left.div_ceil(5000) * 5);
        keys.push(shown.replace(owner, "<owner>"));
    }
    keys.sort();
    keys
}

/// The field of a dead reader stays in the hash while others renew the key. Only the key of its hold tells that its
/// lease is over.
fn a_reader_of_java_that_died_keeps_no_writer_out(version: RedissonVersion) {
    // The same for all: a renewal of Redisson shortens the holds of the others to its own lease.
    let lease = Duration::from_secs(9);
    let world = World::with_lease(version, lease);
    let alive = world.acquire(&sides(&world).read());
    let options = PeerOptions::new(version, world.server.url()).watchdog(lease);
    let dying = JavaPeer::start_with(&options).unwrap();
    dying.read_lock("a", NAME).lock().unwrap();
    drop(dying); // it leaves its locks, as a killed process does
    let holds = || {
        let keys = world.server.keys().unwrap().into_iter();
        keys.filter(|key| key.contains("rwlock_timeout")).count()
    };
    let end = Instant::now() + lease + WAKE_BOUND;
    while holds() > 1 {
        assert!(Instant::now() < end, "its lease does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let writer = world.begin_acquire(&sides(&world).write());
    until_queued(&world);
    assert!(alive.is_held());
    let released = monotonic_now_ns();
    world.run(alive.release()).unwrap();
    let (guard, got) = world.run(writer).unwrap();
    // The key of the hash has two thirds of a lease left, or more.
    let took = between(released, got);
    assert!(took < lease / 2, "{took:?}");
    world.run(guard.release()).unwrap();
    assert_nothing_is_left(&world);
}

fn readers_and_writers_of_both_languages_never_meet(version: RedissonVersion) {
    let done = hammer(version, "sides", 150);
    assert_eq!(done.holds, 1_200);
}

/// A writer of tidelock becomes a reader: Java's waiting reader is woken and enters, and Java's writer waits until all have
/// released.
fn a_downgrade_lets_java_readers_in_and_no_java_writer(version: RedissonVersion) {
    let world = World::new(version);
    let prices = sides(&world);
    let [java_read, java_write] = java_sides(&world, "a");
    drop(world.acquire(&prices.read())); // loads the scripts, so that each request below is one call
    let writer = world.acquire(&prices.write());
    let mut observer = world.observer();
    let waiter = java_read.begin_lock_when_free().unwrap();
    observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
    let begun = monotonic_now_ns();
    let reader = world.run(prices.downgrade(writer)).unwrap();
    let took = between(begun, waiter.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "{took:?}");
    assert!(!java_write.try_lock().unwrap().value);
    assert!(java_read.try_lock().unwrap().value);
    world.run(reader.release()).unwrap();
    assert!(java_read.is_held().unwrap().value);
    assert!(!world.is_free_for_rust(&prices.write()));
    java_read.unlock().unwrap();
    assert!(java_write.try_lock().unwrap().value);
    java_write.unlock().unwrap();
    assert_nothing_is_left(&world);
}

/// Java takes the write lock of a name that tidelock holds as a lock, and releases it without a message. When tidelock
/// releases, it removes what is left and tells Java's waiters, also one whose last attempt has been refused and that does
/// not sleep yet.
fn a_java_waiter_about_to_sleep_hears_that_its_lock_is_free(version: RedissonVersion) {
    let world = World::new(version);
    let proxy = Proxy::start(world.server.addr()).unwrap();
    let delayed = JavaPeer::start(version, proxy.url()).unwrap();
    let warm = delayed.write_lock("b", "warm");
    warm.lock().unwrap(); // loads the script, so that each attempt below is one request
    warm.unlock().unwrap();
    let guard = world.acquire(&world.client.lock(NAME));
    let java = world.java.write_lock("a", NAME);
    java.lock().unwrap();
    let script = match proxy.count("EVALSHA") {
        0 => "EVAL",
        _ => "EVALSHA",
    };
    let second = When::command(script, ":write").skip(1);
    let refused = proxy.on(second, Then::HoldReply);
    let message = proxy.on(When::push("redisson_rwlock"), Then::Hold);
    let waiter = delayed.write_lock("b", NAME);
    let waiter = waiter.begin_lock_when_free().unwrap();
    let soon = |what| tokio::time::timeout(WAKE_BOUND, what);
    world.run(async { soon(refused.fired()).await }).unwrap();
    java.unlock().unwrap();
    let lost = world.run(guard.release()).unwrap_err();
    assert_eq!(lost.lost_reason(), Some(LostReason::WrongType), "{lost}");
    world.run(async { soon(message.fired()).await }).unwrap();
    message.release();
    std::thread::sleep(Duration::from_millis(300)); // Redisson has no event for a message that it has taken in
    let answered = monotonic_now_ns();
    refused.release();
    let took = between(answered, waiter.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "{took:?}");
    assert_nothing_is_left(&world);
}

/// No keys of the lock are left.
fn assert_nothing_is_left(world: &World) {
    let end = Instant::now() + WAKE_BOUND;
    loop {
        let keys = keys(world, "nobody");
        if keys.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{keys:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
