//! What operators see of a JVM that takes locks with Redisson: with the class `tidelock.ProcessRecord`, and without.

use std::time::Duration;

use testkit::java::RedissonVersion;
use tidelock::{AwaitedLock, Client, Process};

use crate::topologies::until;
use crate::world::World;

/// The records of all processes, and when each of them ends.
const RECORDS: &str = "tidelock:marks:{tidelock:processes}";
const ENDS: &str = "tidelock:mark_ends:{tidelock:processes}";

with_every_redisson!(
    waiters_of_java_are_a_lower_bound_until_its_process_tells,
    the_queue_of_a_fair_lock_of_java_is_counted,
);

async fn awaited(client: &Client, name: &str) -> Option<AwaitedLock> {
    let all = client.awaited().await.unwrap();
    all.into_iter().find(|lock| lock.snapshot.name == name)
}

/// Two threads of a JVM wait for a lock of Rust. From the store it is one process, which may have any number of waiters.
/// A JVM that writes the record is known with its program and the right number.
fn waiters_of_java_are_a_lower_bound_until_its_process_tells(version: RedissonVersion) {
    let world = World::new(version);
    let viewer = world.run(Client::connect(&world.server.url())).unwrap();
    let held = ["untold", "told {1}"].map(|name| world.acquire(&world.client.lock(name)));
    let mut waits = Vec::new();
    for worker in ["a", "b"] {
        waits.push(world.java.lock(worker, "untold").begin_lock().unwrap());
    }
    let seen = |name: &str| world.run(awaited(&viewer, name));
    until(|| seen("untold").is_some());
    let lock = seen("untold").unwrap();
    assert_eq!((lock.waiters, lock.is_lower_bound), (1, true), "{lock:?}");
    assert!(
        lock.snapshot.holders[0]
            .owner
            .starts_with(world.client.id())
    );

    world.run(viewer.watch_processes()).unwrap();
    let gone = "gone";
    let _: i64 = world
        .server
        .query(&["HSET", RECORDS, gone, "process1"])
        .unwrap();
    let _: i64 = world.server.query(&["ZADD", ENDS, "1", gone]).unwrap();
    world.java.tell("shop 1%").unwrap();
    for worker in ["c", "d"] {
        waits.push(world.java.lock(worker, "told {1}").begin_lock().unwrap());
    }
    until(|| seen("told {1}").is_some_and(|lock| lock.waiters == 2));
    let lock = seen("told {1}").unwrap();
    assert!(!lock.is_lower_bound, "{lock:?}");
    assert_eq!(lock.processes[0].client, world.java.client_id());
    let told = || {
        world.run(viewer.watch_processes()).unwrap();
        let mut all = world.run(viewer.processes()).unwrap().into_iter();
        all.find(|one| one.client == world.java.client_id())
    };
    // Somebody watches, so it tells each second.
    let lives = |jvm: &Process| jvm.beat == Duration::from_secs(1) && !jvm.is_gone();
    until(|| told().as_ref().is_some_and(lives));
    let jvm = told().unwrap();
    assert_eq!(jvm.info.program, "shop 1%");
    assert_eq!((jvm.info.pid, jvm.waiting), (world.java.pid(), 2));
    // In a fleet of Java alone, nobody else removes what dead processes left.
    let left: Vec<String> = world.server.query(&["HKEYS", RECORDS]).unwrap();
    assert!(!left.contains(&gone.to_owned()), "{left:?}");
    let left: Option<f64> = world.server.query(&["ZSCORE", ENDS, gone]).unwrap();
    assert_eq!(left, None);
    drop(held);
}

/// Redisson's fair lock has its queue in the store, so the number is exact without a record.
fn the_queue_of_a_fair_lock_of_java_is_counted(version: RedissonVersion) {
    let world = World::new(version);
    let held = world.acquire(&world.client.fair_lock("queue"));
    let java = ["a", "b"].map(|worker| world.java.fair_lock(worker, "queue"));
    let waits = java.map(|lock| lock.begin_lock().unwrap());
    until(|| {
        let seen = world.run(awaited(&world.client, "queue"));
        seen.is_some_and(|lock| lock.snapshot.queue.len() == 2 && lock.waiters == 2)
    });
    drop((held, waits));
}
