//! Java's `RSemaphore` and tidelock's counting semaphore of one name: together they never have too many permits, they wake
//! each other, and the keys and messages of both are the same.

use std::time::Duration;

use testkit::java::{RedissonVersion, monotonic_now_ns};
use tidelock::{CountingSemaphore, ErrorKind};
use tokio::task::JoinHandle;

use crate::load::count;
use crate::topologies::until;
use crate::world::{Servers, WAKE_BOUND, World, between, patient};

with_every_redisson!(
    t51_counted_permits_of_both_languages_are_never_too_many,
    counted_permits_wake_each_other_in_both_directions,
    a_counting_semaphore_of_rust_is_that_of_redisson,
    a_lock_of_java_refuses_the_name_of_a_counting_semaphore,
);

const NAME: &str = "slots";
const CHANNEL: &str = "redisson_sc:{slots}";
const TOTAL: u32 = 3;

/// The processes of either language that listen to the semaphore.
fn listeners(world: &World) -> i64 {
    let (_, count): (String, i64) = world.server.query(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap();
    count
}

fn key<S: Servers>(world: &World<S>) -> Option<String> {
    world.server.node_of(NAME).query(&["GET", NAME]).unwrap()
}

/// 600 acquisitions.
fn t51_counted_permits_of_both_languages_are_never_too_many(version: RedissonVersion) {
    hammer(&World::new(version), 100);
}

/// Three threads of Java and three tasks of Rust take one or two permits, `rounds` times each.
pub(crate) fn hammer<S: Servers>(world: &World<S>, rounds: u32) {
    let semaphore = world.client.counting_semaphore(NAME);
    assert!(world.run(semaphore.set_permits_if_new(TOTAL)).unwrap());
    let theirs = world.java.counting_semaphore("h", NAME);
    let theirs = theirs.begin_hammer(3, rounds, "inside").unwrap();
    let ours: Vec<_> = (0..3)
        .map(|task| {
            let (semaphore, url) = (semaphore.clone(), world.server.node_of("inside").url());
            world.begin(take_turns(semaphore, url, task, rounds))
        })
        .collect();
    let mut most = 0;
    for ours in ours {
        let (inside, longest) = world.run(ours).unwrap();
        assert!(longest < WAKE_BOUND * 2, "{longest:?}");
        most = most.max(inside);
    }
    let report = theirs.value().unwrap();
    println!("{report:?}, {most} inside for Rust");
    assert_eq!(report.acquisitions, u64::from(rounds) * 3);
    count(report.acquisitions * 2);
    assert!(most.max(report.most_inside) <= u64::from(TOTAL));
    assert_eq!(key(world).as_deref(), Some("3"));
    // Each handle leaves at most the answers to its last changes: otherwise steady use would fill the server.
    let mut keys = world.server.node_of(NAME).keys().unwrap();
    keys.retain(|key| key.starts_with("tidelock:semaphore:"));
    assert!(keys.len() < 20, "{} answers are left", keys.len());
}

/// Returns the most permits that were out, and the longest wait.
async fn take_turns(
    semaphore: CountingSemaphore,
    url: String,
    task: u32,
    rounds: u32,
) -> (u64, Duration) {
    let mut server = patient(&url).await;
    let (mut most, mut longest) = (0, Duration::ZERO);
    for round in 0..rounds {
        let permits = (round + task) % 2 + 1;
        let asked = monotonic_now_ns();
        semaphore.acquire(permits).await.unwrap();
        longest = longest.max(between(asked, monotonic_now_ns()));
        let mut inside = async |by: i64| -> u64 {
            let mut command = redis::cmd("INCRBY");
            command.arg("inside").arg(by);
            command.query_async(&mut server).await.unwrap()
        };
        most = most.max(inside(permits.into()).await);
        inside(-i64::from(permits)).await;
        semaphore.release(permits).await.unwrap();
    }
    (most, longest)
}

/// Takes permits, and returns when it got them.
fn begin_acquire(world: &World, semaphore: &CountingSemaphore, permits: u32) -> JoinHandle<u64> {
    let semaphore = semaphore.clone();
    world.begin(async move {
        semaphore.acquire(permits).await.unwrap();
        monotonic_now_ns()
    })
}

fn counted_permits_wake_each_other_in_both_directions(version: RedissonVersion) {
    let world = World::new(version);
    let rust = world.client.counting_semaphore(NAME);
    let java = world.java.counting_semaphore("a", NAME);
    assert!(java.set_if_new(0).unwrap().value);
    for _ in 0..3 {
        let theirs = world.java.counting_semaphore("w", NAME);
        let theirs = theirs.begin_acquire(2).unwrap();
        until(|| listeners(&world) >= 1);
        let released = monotonic_now_ns();
        world.run(rust.release(2)).unwrap();
        let took = between(released, theirs.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");

        let ours = begin_acquire(&world, &rust, 2);
        until(|| world.run(rust.inspect()).unwrap().waiters >= Some(1));
        let released = monotonic_now_ns();
        java.release(2).unwrap();
        let took = between(released, world.run(ours).unwrap());
        assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
    }
    assert_eq!(key(&world).as_deref(), Some("0"));
    // A permit that one language has taken can be given back by the other.
    world.run(rust.release(1)).unwrap();
    assert!(java.try_acquire(1).unwrap().value);
    assert!(
        !java
            .try_acquire_for(1, Duration::from_millis(50))
            .unwrap()
            .value
    );
    world.run(rust.release(1)).unwrap();
    assert_eq!(java.available().unwrap().value, 1);
}

/// Each change of Rust leaves the same keys as that of Java and publishes the same message.
fn a_counting_semaphore_of_rust_is_that_of_redisson(version: RedissonVersion) {
    let world = World::new(version);
    let rust = world.client.counting_semaphore(NAME);
    let java = world.java.counting_semaphore("a", NAME);
    let mut observer = world.observer();
    let mut effects = |change: &mut dyn FnMut()| {
        change();
        let seen = observer.look(&[]).unwrap();
        let mut keys = seen.keys;
        keys.retain(|name, _| !name.starts_with("tidelock:"));
        (keys, seen.messages)
    };
    let theirs = [
        effects(&mut || assert!(java.set_if_new(3).unwrap().value)),
        effects(&mut || assert!(!java.set_if_new(5).unwrap().value)),
        effects(&mut || assert!(java.try_acquire(2).unwrap().value)),
        effects(&mut || assert!(!java.try_acquire(2).unwrap().value)),
        effects(&mut || assert!(java.release(2).is_ok())),
        effects(&mut || assert_eq!(java.drain().unwrap().value, 3)),
        effects(&mut || assert_eq!(java.drain().unwrap().value, 0)),
    ];
    let _: i64 = world.server.query(&["DEL", NAME]).unwrap();
    let ours = [
        effects(&mut || assert!(world.run(rust.set_permits_if_new(3)).unwrap())),
        effects(&mut || assert!(!world.run(rust.set_permits_if_new(5)).unwrap())),
        effects(&mut || assert!(world.run(rust.try_acquire(2)).unwrap())),
        effects(&mut || assert!(!world.run(rust.try_acquire(2)).unwrap())),
        effects(&mut || assert_eq!(world.run(rust.release(2)).unwrap(), 3)),
        effects(&mut || assert_eq!(world.run(rust.drain()).unwrap(), 3)),
        effects(&mut || assert_eq!(world.run(rust.drain()).unwrap(), 0)),
    ];
    assert_eq!(ours, theirs);
    if version.adds_permits() {
        // Redisson before 3.16.2 publishes nothing here.
        java.add(2).unwrap();
    } else {
        world.run(rust.add_permits(2)).unwrap();
    }
    let added: Option<String> = key(&world);
    assert_eq!(world.run(rust.add_permits(-3)).unwrap(), -1);
    assert_eq!(
        (added.as_deref(), java.available().unwrap().value),
        (Some("2"), -1)
    );
}

fn a_lock_of_java_refuses_the_name_of_a_counting_semaphore(version: RedissonVersion) {
    let world = World::new(version);
    let semaphore = world.client.counting_semaphore(NAME);
    assert!(world.run(semaphore.set_permits_if_new(1)).unwrap());
    assert!(world.java.lock("a", NAME).try_lock().is_err());
    assert_eq!(world.run(semaphore.available()).unwrap(), 1);
    world.java.lock("a", "stock").lock().unwrap();
    let stock = world.client.counting_semaphore("stock");
    let error = world.run(stock.try_acquire(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("a hash"), "{error}");
    world.java.lock("a", "stock").unlock().unwrap();
}
