//! Java's `RPermitExpirableSemaphore` and tidelock's semaphore of one name: together they never have too many permits,
//! they wake each other, and the keys of both are the same.

use std::time::Duration;

use testkit::java::{JavaPeer, PeerOptions, RedissonVersion, monotonic_now_ns};
use tidelock::{ErrorKind, LostReason, Permits, Semaphore};

use crate::load::count;
use crate::topologies::until;
use crate::world::{Servers, WAKE_BOUND, World, between, patient};

with_every_redisson!(
    t51_permits_of_both_languages_are_never_too_many,
    t51_permits_of_the_dead_come_back_once,
    permits_wake_each_other_in_both_directions,
    numbers_of_permits_are_shared,
    a_permit_has_the_keys_of_redisson,
    a_permit_is_released_by_its_id,
    a_lock_of_java_refuses_the_name_of_a_semaphore,
);

const NAME: &str = "render";
const OUT: &str = "{render}:timeout";

fn semaphore<S: Servers>(world: &World<S>, total: u32) -> Semaphore {
    let semaphore = world.client.semaphore(NAME);
    world.run(semaphore.set_permits(total)).unwrap();
    semaphore
}

fn acquire(world: &World, semaphore: &Semaphore, count: u16) -> Permits {
    world.run(semaphore.permits(count).acquire()).unwrap()
}

fn available<S: Servers>(world: &World<S>) -> i64 {
    world.server.node_of(NAME).query(&["GET", NAME]).unwrap()
}

fn out<S: Servers>(world: &World<S>) -> i64 {
    world.server.node_of(OUT).query(&["ZCARD", OUT]).unwrap()
}

/// 600 acquisitions.
fn t51_permits_of_both_languages_are_never_too_many(version: RedissonVersion) {
    hammer(&World::new(version), 100);
}

/// Three threads of Java take a permit, and three tasks of Rust one or two, `rounds` times each.
pub(crate) fn hammer<S: Servers>(world: &World<S>, rounds: u32) {
    const TOTAL: u32 = 3;
    let semaphore = semaphore(world, TOTAL);
    let theirs = world.java.permits("h", NAME);
    let theirs = theirs.begin_hammer(3, rounds, "inside").unwrap();
    let url = world.server.node_of("inside").url();
    let ours: Vec<_> = (0..3)
        .map(|task| {
            let (semaphore, url) = (semaphore.clone(), url.clone());
            world.begin(async move {
                let mut server = patient(&url).await;
                let (mut most, mut longest) = (0, Duration::ZERO);
                for round in 0..rounds {
                    let count = u16::try_from((round + task) % 2 + 1).unwrap();
                    let asked = monotonic_now_ns();
                    let permits = semaphore.permits(count).acquire().await.unwrap();
                    longest = longest.max(between(asked, monotonic_now_ns()));
                    let mut inside = async |by: i64| -> u64 {
                        let mut command = redis::cmd("INCRBY");
                        command.arg("inside").arg(by);
                        command.query_async(&mut server).await.unwrap()
                    };
                    most = most.max(inside(count.into()).await);
                    inside(-i64::from(count)).await;
                    permits.release().await.unwrap();
                }
                (most, longest)
            })
        })
        .collect();
    let mut most = 0;
    for ours in ours {
        let (inside, longest) = world.run(ours).unwrap();
        println!("Rust waited for {longest:?} at most");
        assert!(longest < WAKE_BOUND * 2, "{longest:?}");
        most = most.max(inside);
    }
    let report = theirs.value().unwrap();
    println!("{report:?}, {most} inside for Rust");
    assert_eq!(report.acquisitions, u64::from(rounds) * 3);
    count(report.acquisitions * 2);
    assert!(most.max(report.most_inside) <= u64::from(TOTAL));
    assert_eq!((available(world), out(world)), (i64::from(TOTAL), 0));
}

/// A process of each language dies with a permit. The other language takes it when the lease is over, once.
fn t51_permits_of_the_dead_come_back_once(version: RedissonVersion) {
    let lease = Duration::from_secs(8);
    let world = World::with_lease(version, lease);
    let semaphore = semaphore(&world, 1);
    let options = PeerOptions::new(version, world.server.url());
    let mortal = JavaPeer::start_with(&options).unwrap();
    let taken = mortal
        .permits("m", NAME)
        .try_acquire(WAKE_BOUND, Some(lease));
    assert!(taken.unwrap().value.is_some());
    drop(mortal);
    let permit = acquire(&world, &semaphore, 1);
    assert_eq!((available(&world), out(&world)), (0, 1));
    let (runtime, other) = crate::world::rust(&world.server.url(), lease);
    world.run(permit.release()).unwrap();
    let dying = other.semaphore(NAME);
    let held = runtime.block_on(
        dying
            .permits(1)
            .acquire_with(tidelock::AcquireOptions::new().expires_after(lease)),
    );
    let held = held.unwrap();
    let id = world.java.permits("a", NAME).try_acquire(lease * 3, None);
    let id = id.unwrap().value.expect("the lease is over");
    assert!(!held.is_held());
    let late = runtime.block_on(held.release()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Lost);
    until(|| world.run(other.close(Duration::ZERO)) == 0);
    assert_eq!((available(&world), out(&world)), (0, 1));
    assert!(world.java.permits("a", NAME).release(&id).unwrap().value);
    assert_eq!((available(&world), out(&world)), (1, 0));
}

fn permits_wake_each_other_in_both_directions(version: RedissonVersion) {
    let world = World::new(version);
    let semaphore = semaphore(&world, 1);
    let java = world.java.permits("a", NAME);
    for _ in 0..3 {
        let permit = acquire(&world, &semaphore, 1);
        let mut observer = world.observer();
        let waiter = java.begin_acquire_when_free().unwrap();
        observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
        let released = monotonic_now_ns();
        world.run(permit.release()).unwrap();
        let took = between(released, waiter.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");

        let id = java.acquire().unwrap().value;
        let waiting = semaphore.acquire();
        let waiter = world.begin(async move {
            let permit = waiting.await.unwrap();
            (permit, monotonic_now_ns())
        });
        until(|| world.run(semaphore.inspect()).unwrap().waiters >= Some(1));
        let released = java.release(&id).unwrap();
        assert!(released.value);
        let (permit, got) = world.run(waiter).unwrap();
        let took = between(released.started_at_ns, got);
        assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
        world.run(permit.release()).unwrap();
    }
    assert_eq!((available(&world), out(&world)), (1, 0));
}

fn numbers_of_permits_are_shared(version: RedissonVersion) {
    let world = World::new(version);
    let (rust, java) = (world.client.semaphore(NAME), world.java.permits("a", NAME));
    assert!(java.set_if_new(2).unwrap().value);
    assert!(!world.run(rust.set_permits_if_new(5)).unwrap());
    let two = acquire(&world, &rust, 2);
    assert_eq!(java.available().unwrap().value, 0);
    let waiting = rust.acquire();
    let waiter = world.begin(async move { waiting.await.unwrap() });
    until(|| world.run(rust.inspect()).unwrap().waiters >= Some(1));
    // Redisson before 3.16.2 wakes nobody here, and the waiter finds the permit when it asks again.
    java.add(1).unwrap();
    world.run(rust.add_permits(1)).unwrap();
    let one = world.run(waiter).unwrap();
    let count = world.run(rust.inspect()).unwrap().permits.unwrap();
    assert_eq!((count.available, count.total), (1, 4));
    assert_eq!(java.available().unwrap().value, 1);
    world.run(two.release()).unwrap();
    world.run(one.release()).unwrap();
    assert_eq!(java.available().unwrap().value, 4);
}

/// Except for the random ids, the keys of a permit are the same, byte by byte, whichever language holds it.
fn a_permit_has_the_keys_of_redisson(version: RedissonVersion) {
    let world = World::new(version);
    let semaphore = semaphore(&world, 2);
    let lease = Duration::from_secs(30);
    let java = world.java.permits("a", NAME);
    let id = java.try_acquire(WAKE_BOUND, Some(lease)).unwrap().value;
    let theirs = keys(&world, version.has_short_permits());
    assert!(java.release(&id.unwrap()).unwrap().value);
    assert_eq!(out(&world), 0);
    let permit = acquire(&world, &semaphore, 1);
    let ours = keys(&world, true);
    assert_eq!(ours, theirs);
    world.run(permit.release()).unwrap();
    assert_eq!((available(&world), out(&world)), (2, 0));
}

/// The keys with their types, values and times to live. `short`: an id is 16 bytes. Ends of leases within a few seconds
/// of the lease of 30 s are equal.
fn keys(world: &World, short: bool) -> Vec<String> {
    let mut keys = Vec::new();
    for key in world.server.keys().unwrap() {
        if key.starts_with("tidelock:") {
            continue;
        }
        let kind: String = world.server.query(&["TYPE", &key]).unwrap();
        let ttl: i64 = world.server.query(&["PTTL", &key]).unwrap();
        let value = if kind == "string" {
            world.server.query(&["GET", &key]).unwrap()
        } else {
            let members: Vec<(Vec<u8>, f64)> = world
                .server
                .query(&["ZRANGE", &key, "0", "-1", "WITHSCORES"])
                .unwrap();
            let (seconds, _): (f64, u64) = world.server.query(&["TIME"]).unwrap();
            let member = |(id, ends): &(Vec<u8>, f64)| {
                let left = ends / 1000.0 - seconds;
                assert_eq!(id.len(), if short { 16 } else { 32 });
                assert!(
                    (20.0..32.0).contains(&left) && ends.fract() == 0.0,
                    "{left}"
                );
                "id for 30 s"
            };
            members.iter().map(member).collect::<Vec<_>>().join(", ")
        };
        keys.push(format!("{key} {kind} {value} {ttl}"));
    }
    keys.sort_unstable();
    keys
}

/// Java gives back and extends a permit of Rust by its id, if both write ids in the same form. Rust is told.
fn a_permit_is_released_by_its_id(version: RedissonVersion) {
    let lease = Duration::from_secs(12);
    let world = World::with_lease(version, lease);
    let semaphore = semaphore(&world, 3);
    let two = acquire(&world, &semaphore, 2);
    let java = world.java.permits("a", NAME);
    let knows = version.has_short_permits();
    assert_eq!(java.extend(&two.ids()[0], lease * 9).unwrap().value, knows);
    assert_eq!(java.release(&two.ids()[1]).unwrap().value, knows);
    let seen = world.run(semaphore.inspect()).unwrap();
    assert_eq!(seen.holders[0].holds, if knows { 1 } else { 2 });
    if knows {
        assert_eq!(world.run(two.lost()), LostReason::Taken);
        assert_eq!(
            world.run(two.release()).unwrap_err().kind(),
            ErrorKind::Lost
        );
    } else {
        world.run(two.release()).unwrap();
    }
    // The client gives back the rest of a lost hold in the background.
    until(|| (available(&world), out(&world)) == (3, 0));
}

fn a_lock_of_java_refuses_the_name_of_a_semaphore(version: RedissonVersion) {
    let world = World::new(version);
    let semaphore = semaphore(&world, 1);
    let permit = acquire(&world, &semaphore, 1);
    assert!(world.java.lock("a", NAME).try_lock().is_err());
    assert!(permit.is_held());
    world.run(permit.release()).unwrap();
    world.java.lock("a", "stock").lock().unwrap();
    let error = world.run(world.client.semaphore("stock").try_acquire());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("a hash"), "{error}");
    world.java.lock("a", "stock").unlock().unwrap();
}
