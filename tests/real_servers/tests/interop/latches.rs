//! Java's `RCountDownLatch` and tidelock's latch of one name: each counts down the other's, and wakes its waiters.

use std::time::Duration;

use testkit::java::{RedissonVersion, monotonic_now_ns};
use tidelock::{ErrorKind, Latch};
use tokio::task::JoinHandle;

use crate::load::count;
use crate::topologies::until;
use crate::world::{Servers, WAKE_BOUND, World, between};

with_every_redisson!(
    t52_counts_of_both_languages_open_a_latch_once,
    the_last_count_of_either_language_wakes_both,
    a_deleted_latch_wakes_both_languages,
    a_latch_of_rust_is_that_of_redisson,
    a_lock_of_java_refuses_the_name_of_a_latch,
);

const NAME: &str = "imported";
const CHANNEL: &str = "redisson_countdownlatch__channel__{imported}";

/// The processes of either language that listen to the latch.
fn listeners<S: Servers>(world: &World<S>) -> i64 {
    let node = world.server.node_of(NAME);
    let count = |form| {
        let said = node.query(&["PUBSUB", form, CHANNEL]);
        // Redis 6.2 supports only the first form.
        let (_, count): (String, i64) = said.unwrap_or_default();
        count
    };
    count("NUMSUB") + count("SHARDNUMSUB")
}

fn key<S: Servers>(world: &World<S>) -> Option<String> {
    world.server.node_of(NAME).query(&["GET", NAME]).unwrap()
}

/// Waits for the latch, and returns when it opened.
fn begin_wait<S: Servers>(world: &World<S>, latch: &Latch) -> JoinHandle<u64> {
    let latch = latch.clone();
    world.begin(async move {
        latch.wait().await.unwrap();
        monotonic_now_ns()
    })
}

/// 600 counts: three threads of Java and three tasks of Rust. Waiters of both languages go on after the last, and the
/// count has not gone below zero.
fn t52_counts_of_both_languages_open_a_latch_once(version: RedissonVersion) {
    hammer(&World::new(version), 100);
}

/// Counts down `rounds` times in each of three threads of Java and three tasks of Rust.
pub(crate) fn hammer<S: Servers>(world: &World<S>, rounds: u32) {
    let (rust, java) = (world.client.latch(NAME), world.java.latch("h", NAME));
    // One more than the hammers count, so that nobody may go on before the last.
    assert!(world.run(rust.set_count_if_new(rounds * 6 + 1)).unwrap());
    let theirs_waits = world.java.latch("w", NAME).begin_wait().unwrap();
    let ours_waits = begin_wait(world, &rust);
    // In a cluster a process may listen in both forms.
    until(|| listeners(world) >= 2);
    let theirs = java.begin_hammer(3, rounds).unwrap();
    let ours: Vec<_> = (0..3)
        .map(|_| {
            let latch = rust.clone();
            world.begin(async move {
                let mut last = u64::MAX;
                for _ in 0..rounds {
                    let left = latch.count_down().await.unwrap();
                    assert!(left < last && left > 0, "{left} after {last}");
                    last = left;
                }
            })
        })
        .collect();
    for ours in ours {
        world.run(ours).unwrap();
    }
    theirs.value().unwrap();
    assert_eq!(key(world).as_deref(), Some("1"));
    count(u64::from(rounds) * 6);
    assert_eq!(java.count().unwrap().value, 1);
    assert!(!ours_waits.is_finished());
    let counted = monotonic_now_ns();
    assert_eq!(world.run(rust.count_down()).unwrap(), 0);
    let took = between(counted, theirs_waits.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");
    let took = between(counted, world.run(ours_waits).unwrap());
    assert!(took < WAKE_BOUND, "Rust to Rust: {took:?}");
    // More counts leave nothing behind, in either language.
    java.count_down().unwrap();
    assert_eq!(world.run(rust.count_down()).unwrap(), 0);
    assert_eq!(key(world), None);
}

fn the_last_count_of_either_language_wakes_both(version: RedissonVersion) {
    let world = World::new(version);
    let (rust, java) = (world.client.latch(NAME), world.java.latch("a", NAME));
    for by_java in [true, false, true] {
        assert!(java.set_if_new(1).unwrap().value);
        assert!(!world.run(rust.set_count_if_new(5)).unwrap());
        assert!(!java.wait_for(Duration::from_millis(50)).unwrap().value);
        let theirs = world.java.latch("w", NAME).begin_wait().unwrap();
        let ours = begin_wait(&world, &rust);
        until(|| listeners(&world) == 2);
        let counted = monotonic_now_ns();
        if by_java {
            java.count_down().unwrap();
        } else {
            assert_eq!(world.run(rust.count_down()).unwrap(), 0);
        }
        let took = between(counted, theirs.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "Java waited for {took:?}");
        let took = between(counted, world.run(ours).unwrap());
        assert!(took < WAKE_BOUND, "Rust waited for {took:?}");
        assert_eq!(key(&world), None);
    }
}

/// Redisson's own `delete` leaves its waiters asleep. That of tidelock wakes them; both wake tidelock's.
fn a_deleted_latch_wakes_both_languages(version: RedissonVersion) {
    let world = World::new(version);
    let (rust, java) = (world.client.latch(NAME), world.java.latch("a", NAME));
    assert!(java.set_if_new(3).unwrap().value);
    let theirs = world.java.latch("w", NAME).begin_wait().unwrap();
    let ours = begin_wait(&world, &rust);
    until(|| listeners(&world) == 2);
    let deleted = monotonic_now_ns();
    assert!(world.run(rust.delete()).unwrap());
    let took = between(deleted, theirs.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "Java waited for {took:?}");
    let took = between(deleted, world.run(ours).unwrap());
    assert!(took < WAKE_BOUND, "Rust waited for {took:?}");
    assert!(world.run(rust.set_count_if_new(3)).unwrap());
    let ours = begin_wait(&world, &rust);
    until(|| listeners(&world) >= 1);
    let deleted = monotonic_now_ns();
    assert!(java.delete().unwrap().value);
    let took = between(deleted, world.run(ours).unwrap());
    assert!(took < WAKE_BOUND, "Rust waited for {took:?}");
}

/// Each change of Rust leaves the same keys as that of Java and publishes the same message.
fn a_latch_of_rust_is_that_of_redisson(version: RedissonVersion) {
    let world = World::new(version);
    let (rust, java) = (world.client.latch(NAME), world.java.latch("a", NAME));
    let mut observer = world.observer();
    let mut effects = |change: &mut dyn FnMut()| {
        change();
        let seen = observer.look(&["script"]).unwrap();
        let mut keys = seen.keys;
        keys.retain(|name, _| !name.starts_with("tidelock:"));
        (keys, seen.messages)
    };
    let theirs = [
        effects(&mut || assert!(java.set_if_new(2).unwrap().value)),
        effects(&mut || assert!(!java.set_if_new(3).unwrap().value)),
        effects(&mut || assert!(java.count_down().is_ok())),
        effects(&mut || assert!(java.count_down().is_ok())),
        effects(&mut || assert!(java.count_down().is_ok())),
    ];
    let ours = [
        effects(&mut || assert!(world.run(rust.set_count_if_new(2)).unwrap())),
        effects(&mut || assert!(!world.run(rust.set_count_if_new(3)).unwrap())),
        effects(&mut || assert_eq!(world.run(rust.count_down()).unwrap(), 1)),
        effects(&mut || assert_eq!(world.run(rust.count_down()).unwrap(), 0)),
        effects(&mut || assert_eq!(world.run(rust.count_down()).unwrap(), 0)),
    ];
    assert_eq!(ours, theirs);
}

fn a_lock_of_java_refuses_the_name_of_a_latch(version: RedissonVersion) {
    let world = World::new(version);
    let latch = world.client.latch(NAME);
    assert!(world.run(latch.set_count_if_new(1)).unwrap());
    assert!(world.java.lock("a", NAME).try_lock().is_err());
    assert_eq!(world.run(latch.count()).unwrap(), 1);
    world.java.lock("a", "stock").lock().unwrap();
    let error = world.run(world.client.latch("stock").count_down());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("a hash"), "{error}");
    world.java.lock("a", "stock").unlock().unwrap();
}
