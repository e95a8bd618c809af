//! Java's `RFairLock` and `RSpinLock` on a name of ours. They use the same hash, so holds never overlap. But a fair
//! lock notifies only the head of its own queue of a release, and a spin lock sends no message.

use std::time::Duration;

use testkit::java::{
    HammerPlan, JavaLock, JavaPeer, Pending, RedissonVersion, WordFile, monotonic_now_ns,
};
use testkit::servers::Cluster;

use crate::topologies::{until, wait};
use crate::world::{LEASE, World, between, rust};

/// Far less than the lease of 30 s, which is how long a waiter without a message would sleep; far more than the
/// measured times.
const SOON: Duration = Duration::from_secs(5);

/// The time for which the other side holds a lock.
const HELD: Duration = Duration::from_millis(100);

with_every_redisson!(
    t73_a_release_wakes_a_fair_waiter,
    t73_a_forced_release_wakes_a_fair_waiter,
    t73_fair_waiters_are_woken_in_their_order,
    t73_a_fair_waiter_of_a_long_hold_is_woken,
    t73_a_waiter_soon_has_what_a_fair_lock_gave_back,
    t73_a_waiter_soon_has_what_a_spin_lock_gave_back,
    t73_a_waiter_has_its_turn_beside_a_fair_queue,
    t73_in_a_cluster_both_sides_wake_the_other,
);

fn t73_a_release_wakes_a_fair_waiter(version: RedissonVersion) {
    let world = World::new(version);
    warm_up(&world);
    for round in 0..3 {
        let name = format!("fair {round}");
        let guard = world.acquire(&world.client.lock(&name));
        let waiting = wait_in_queue(&world, "a", &name);
        let released = monotonic_now_ns();
        world.run(guard.release()).unwrap();
        let took = between(released, waiting.wait().unwrap().done_at_ns);
        println!("Rust to a fair waiter: {took:?}");
        assert!(took < SOON, "{took:?}");
    }
}

fn t73_a_forced_release_wakes_a_fair_waiter(version: RedissonVersion) {
    let world = World::new(version);
    warm_up(&world);
    let lock = world.client.lock("fair");
    let guard = world.acquire(&lock);
    let waiting = wait_in_queue(&world, "a", "fair");
    let forced = monotonic_now_ns();
    assert!(world.run(lock.force_release()).unwrap());
    let took = between(forced, waiting.wait().unwrap().done_at_ns);
    assert!(took < SOON, "{took:?}");
    world.run(guard.release()).unwrap_err();
}

fn t73_fair_waiters_are_woken_in_their_order(version: RedissonVersion) {
    let world = World::new(version);
    warm_up(&world);
    let guard = world.acquire(&world.client.lock("fair"));
    let waiting = ["a", "b", "c"].map(|worker| wait_in_queue(&world, worker, "fair"));
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let had: Vec<u64> = waiting
        .into_iter()
        .map(|waiting| waiting.wait().unwrap().done_at_ns)
        .collect();
    assert!(had.is_sorted(), "{had:?}");
    let took = between(released, had[2]);
    assert!(took < SOON, "{took:?}");
}

/// The hold lasts longer than the lease that the waiter knows of. Before 3.32 a waiter without a message then waits
/// without limit.
fn t73_a_fair_waiter_of_a_long_hold_is_woken(version: RedissonVersion) {
    let lease = Duration::from_secs(12);
    let world = World::with_lease(version, lease);
    warm_up(&world);
    let guard = world.acquire(&world.client.lock("fair"));
    let waiting = wait_in_queue(&world, "a", "fair");
    std::thread::sleep(lease + lease / 4);
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let took = between(released, waiting.wait().unwrap().done_at_ns);
    assert!(took < lease / 3, "{took:?}");
}

/// Redisson's queue is empty, so its unlock publishes nothing at all.
fn t73_a_waiter_soon_has_what_a_fair_lock_gave_back(version: RedissonVersion) {
    let world = World::new(version);
    given_back(&world, &world.java.fair_lock("a", "fair"));
}

fn t73_a_waiter_soon_has_what_a_spin_lock_gave_back(version: RedissonVersion) {
    if !version.has_spin_lock() {
        return;
    }
    let world = World::new(version);
    given_back(&world, &world.java.spin_lock("a", "fair"));
}

fn given_back(world: &World, theirs: &JavaLock) {
    for held in [20, 400, 1500].map(Duration::from_millis) {
        theirs.lock().unwrap();
        let waiting = world.begin_acquire(&world.client.lock("fair"));
        std::thread::sleep(held);
        let unlocked = theirs.unlock().unwrap().started_at_ns;
        let (guard, got) = world.run(waiting).unwrap();
        let took = between(unlocked, got);
        println!("Java to Rust after {held:?}: {took:?}");
        assert!(took < SOON, "{took:?}");
        world.run(guard.release()).unwrap();
    }
}

/// 200 hand-overs in each direction, at varying moments between two polls. Prints how long they take.
#[test]
#[ignore = "a minute; cargo xtask compatibility"]
fn t73_two_hundred_hand_overs_to_and_from_a_fair_lock() {
    let world = World::new(RedissonVersion::Newest);
    warm_up(&world);
    let theirs = world.java.fair_lock("a", "fair");
    let lock = world.client.lock("fair");
    let (mut to_java, mut to_rust) = (Vec::new(), Vec::new());
    for round in 0..200_u64 {
        let guard = world.acquire(&lock);
        let waiting = wait_in_queue(&world, "a", "fair");
        let released = monotonic_now_ns();
        world.run(guard.release()).unwrap();
        to_java.push(between(released, waiting.wait().unwrap().done_at_ns));

        theirs.lock().unwrap();
        let waiting = world.begin_acquire(&lock);
        std::thread::sleep(Duration::from_millis(30 + round * 7 % 250));
        let unlocked = theirs.unlock().unwrap().started_at_ns;
        let (guard, got) = world.run(waiting).unwrap();
        to_rust.push(between(unlocked, got));
        world.run(guard.release()).unwrap();
    }
    for (what, mut took) in [("to Java", to_java), ("to Rust", to_rust)] {
        took.sort_unstable();
        let [middle, most, longest] = [50, 99, 100].map(|part| took[(took.len() - 1) * part / 100]);
        println!("{what}: p50 {middle:?}, p99 {most:?}, longest {longest:?}");
        assert!(longest < SOON, "{what}: {longest:?}");
    }
}

/// Java's threads are in a queue without tidelock; each release notifies only the next of them.
fn t73_a_waiter_has_its_turn_beside_a_fair_queue(version: RedissonVersion) {
    let world = World::new(version);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let inside = WordFile::create(&path).unwrap();
    let plan = HammerPlan {
        rounds: 40,
        threads: 3,
        word_file: path,
        hold: Duration::from_millis(20),
    };
    let theirs = world
        .java
        .fair_lock("h", "fair")
        .begin_hammer(&plan)
        .unwrap();
    until(|| queued(&world, "fair") > 0);
    let lock = world.client.lock("fair");
    let mut longest = Duration::ZERO;
    let (mut turns, begun) = (0, monotonic_now_ns());
    while turns < 5 {
        let asked = monotonic_now_ns();
        let guard = world.acquire(&lock);
        longest = longest.max(between(asked, monotonic_now_ns()));
        let (alone, counter) = inside.enter(7).unwrap();
        assert!(alone && inside.leave(7, counter).unwrap(), "two are inside");
        world.run(guard.release()).unwrap();
        turns += 1;
    }
    println!(
        "{turns} turns in {:?}, longest {longest:?}",
        between(begun, monotonic_now_ns())
    );
    // Many turns of the others may come first; a waiter that is not woken sleeps for a lease.
    assert!(longest < LEASE / 2, "{longest:?}");
    let report = theirs.value().unwrap();
    println!("{report:?}");
    assert_eq!(report.overlaps, 0);
    assert!(
        Duration::from_nanos(report.wait_max_ns) < LEASE / 2,
        "{report:?}"
    );
}

fn t73_in_a_cluster_both_sides_wake_the_other(version: RedissonVersion) {
    let cluster = Cluster::start().unwrap();
    let url = cluster.url();
    let java = JavaPeer::start(version, &url).unwrap();
    let (runtime, client) = rust(&url, Duration::from_secs(30));
    for round in 0..3 {
        let name = format!("fair {round}");
        let theirs = java.fair_lock("a", &name);
        let guard = runtime.block_on(client.lock(&name).acquire()).unwrap();
        let channel = channel(&java, "a", &name);
        let waiting = theirs.begin_lock_when_free().unwrap();
        until(|| listeners(&cluster, &channel) > 0);
        let released = monotonic_now_ns();
        runtime.block_on(guard.release()).unwrap();
        let took = between(released, waiting.wait().unwrap().done_at_ns);
        println!("Rust to a fair waiter: {took:?}");
        assert!(took < SOON, "{took:?}");

        theirs.lock().unwrap();
        let waiting = runtime.spawn(wait(&client, &name));
        std::thread::sleep(HELD);
        let unlocked = theirs.unlock().unwrap().started_at_ns;
        let took = between(unlocked, runtime.block_on(waiting).unwrap());
        println!("Java to Rust: {took:?}");
        assert!(took < SOON, "{took:?}");
    }
}

/// Starts a thread that waits for the fair lock, and returns when it sleeps: after its first attempt, its subscription
/// and its second attempt.
fn wait_in_queue(world: &World, worker: &str, name: &str) -> Pending<()> {
    let channel = channel(&world.java, worker, name);
    let asked = questions(world);
    let theirs = world.java.fair_lock(worker, name);
    let waiting = theirs.begin_lock_when_free().unwrap();
    until(|| {
        let numsub = ["PUBSUB", "NUMSUB", &channel];
        let (_, count): (String, i64) = world.server.query(&numsub).unwrap();
        count == 1 && questions(world) >= asked + 2
    });
    waiting
}

/// The number of scripts that the server has run.
fn questions(world: &World) -> u64 {
    let info: String = world.server.query(&["INFO", "commandstats"]).unwrap();
    let lines = info.lines();
    let calls = lines.filter_map(|line| line.strip_prefix("cmdstat_eval"));
    calls
        .filter_map(|line| line.split_once("calls=")?.1.split_once(','))
        .filter_map(|(calls, _)| calls.parse::<u64>().ok())
        .sum()
}

/// Loads the scripts of fair locks into the server, so that each attempt is one call.
fn warm_up(world: &World) {
    let warm = world.java.fair_lock("a", "warm");
    warm.lock().unwrap();
    warm.unlock().unwrap();
}

/// The number of subscribers to a channel, at any node and in any form: Redisson versions differ in both.
fn listeners(cluster: &Cluster, channel: &str) -> i64 {
    let forms = ["NUMSUB", "SHARDNUMSUB"];
    let nodes = cluster.nodes().iter();
    let asked = nodes.flat_map(|node| forms.map(|form| node.query(&["PUBSUB", form, channel])));
    // Redis 6.2 supports one form only; the other query fails.
    let answers = asked.filter_map(Result::ok);
    answers.map(|(_, count): (String, i64)| count).sum()
}

/// The number of threads in Redisson's queue.
fn queued(world: &World, name: &str) -> u64 {
    let key = format!("redisson_lock_queue:{{{name}}}");
    world.server.query(&["LLEN", &key]).unwrap()
}

/// The channel on which this thread is notified that the fair lock may be free.
fn channel(java: &JavaPeer, worker: &str, name: &str) -> String {
    let owner = java.owner(worker).unwrap();
    format!("redisson_lock__channel:{{{name}}}:{owner}")
}
