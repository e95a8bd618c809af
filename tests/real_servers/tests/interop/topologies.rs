//! Java and Rust on one lock of a store with more than one server.

use std::time::Duration;

use testkit::java::{JavaPeer, RedissonVersion, monotonic_now_ns};
use testkit::servers::{Cluster, Sentinels};
use tidelock::Client;

use crate::load::{Load, hammer_on};
use crate::world::{WAKE_BOUND, between, rust};

/// Each round uses a new name, so that each waiter has to subscribe.
const ROUNDS: u32 = 5;

with_each_redisson!(
    behind_sentinels_each_wakes_the_other,
    behind_sentinels_nobody_overlaps,
    in_a_cluster_each_wakes_the_other,
    in_a_cluster_nobody_overlaps,
    behind_sentinels_readers_and_writers_never_meet,
    in_a_cluster_readers_and_writers_never_meet,
);

fn behind_sentinels_each_wakes_the_other(version: RedissonVersion) {
    let sentinels = Sentinels::start().unwrap();
    let channels = |name: &str| {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let primary = sentinels.primary().unwrap();
        let (_, count): (String, i64) = primary.query(&["PUBSUB", "NUMSUB", &channel]).unwrap();
        count
    };
    wake_each_other(version, &sentinels.url(), channels);
}

/// `subscribed` returns the number of subscribers of a lock.
fn wake_each_other(version: RedissonVersion, url: &str, subscribed: impl Fn(&str) -> i64) {
    let java = JavaPeer::start(version, url).unwrap();
    let (runtime, client) = rust(url, Duration::from_secs(30));
    for round in 0..ROUNDS {
        let name = format!("to java {round}");
        let guard = runtime.block_on(client.lock(&name).acquire()).unwrap();
        let waiter = java.lock("a", &name).begin_lock_when_free().unwrap();
        until(|| subscribed(&name) == 1);
        let released = monotonic_now_ns();
        runtime.block_on(guard.release()).unwrap();
        let took = between(released, waiter.wait().unwrap().done_at_ns);
        println!("Rust to Java: {took:?}");
        assert!(took < WAKE_BOUND, "{took:?}");

        let name = format!("to rust {round}");
        let theirs = java.lock("a", &name);
        theirs.lock().unwrap();
        let waiting = wait(&client, &name);
        let waiter = runtime.spawn(waiting);
        until(|| subscribed(&name) == 1);
        let unlocked = theirs.unlock().unwrap().started_at_ns;
        let took = between(unlocked, runtime.block_on(waiter).unwrap());
        println!("Java to Rust: {took:?}");
        assert!(took < WAKE_BOUND, "{took:?}");
    }
}

/// Waits for the lock, returns the time at which it got it, and releases it.
pub(crate) fn wait(client: &Client, name: &str) -> impl Future<Output = u64> + Send + 'static {
    let waiting = client.lock(name).acquire();
    async move {
        let guard = waiting.await.unwrap();
        let got = monotonic_now_ns();
        guard.release().await.unwrap();
        got
    }
}

/// A bounded wait for a condition that only the server can see.
pub(crate) fn until(mut reached: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(std::time::Instant::now() < end, "nobody waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn behind_sentinels_nobody_overlaps(version: RedissonVersion) {
    let sentinels = Sentinels::start().unwrap();
    let load = Load {
        version,
        kind: "plain",
        rounds: 150,
        rest: Duration::ZERO,
    };
    assert_eq!(hammer_on(&sentinels.url(), load).holds, 1_200);
}

/// Each side uses the form that this version of Redisson chooses: the old one supports no sharded messages, the new one
/// uses them.
fn in_a_cluster_each_wakes_the_other(version: RedissonVersion) {
    let cluster = Cluster::start().unwrap();
    let channels = |name: &str| {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let node = cluster.node_of(name).unwrap();
        let listeners = |form| {
            let said = node.query(&["PUBSUB", form, &channel]);
            // Redis 6.2 supports only the first form.
            let (_, count): (String, i64) = said.unwrap_or_default();
            count
        };
        listeners("NUMSUB").max(listeners("SHARDNUMSUB"))
    };
    wake_each_other(version, &cluster.url(), channels);
}

fn in_a_cluster_nobody_overlaps(version: RedissonVersion) {
    let cluster = Cluster::start().unwrap();
    let load = Load {
        version,
        kind: "plain",
        rounds: 150,
        rest: Duration::ZERO,
    };
    assert_eq!(hammer_on(&cluster.url(), load).holds, 1_200);
}

fn behind_sentinels_readers_and_writers_never_meet(version: RedissonVersion) {
    let sentinels = Sentinels::start().unwrap();
    never_meet(version, &sentinels.url());
}

fn in_a_cluster_readers_and_writers_never_meet(version: RedissonVersion) {
    let cluster = Cluster::start().unwrap();
    never_meet(version, &cluster.url());
}

fn never_meet(version: RedissonVersion, url: &str) {
    let load = Load {
        version,
        kind: "sides",
        rounds: 80,
        rest: Duration::ZERO,
    };
    assert_eq!(hammer_on(url, load).holds, 640);
}
