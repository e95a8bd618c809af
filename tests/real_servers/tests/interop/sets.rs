//! Java's sets of locks and ours exclude each other: several locks as one, and a majority of servers.

use std::time::Duration;

use testkit::java::{JavaPeer, RedissonVersion};
use testkit::servers::{Independents, RedisServer};

use crate::load::{Load, hammer_on};
use crate::world::rust;

with_each_redisson!(
    with_sets_of_both_nobody_overlaps,
    with_majorities_of_both_nobody_overlaps,
    a_part_of_a_set_is_a_lock_like_any_other,
);

fn with_sets_of_both_nobody_overlaps(version: RedissonVersion) {
    let server = RedisServer::start().unwrap();
    let load = Load {
        version,
        kind: "multi",
        rounds: 120,
        rest: Duration::ZERO,
    };
    assert_eq!(hammer_on(&server.url(), load).holds, 960);
}

fn with_majorities_of_both_nobody_overlaps(version: RedissonVersion) {
    let servers = Independents::start(3).unwrap();
    let load = Load {
        version,
        kind: "majority",
        rounds: 120,
        rest: Duration::ZERO,
    };
    assert_eq!(hammer_on(&servers.urls().join(" "), load).holds, 960);
}

/// A plain lock of the other language cannot take a name that a set holds.
fn a_part_of_a_set_is_a_lock_like_any_other(version: RedissonVersion) {
    let server = RedisServer::start().unwrap();
    let java = JavaPeer::start(version, server.url()).unwrap();
    let (runtime, client) = rust(&server.url(), std::time::Duration::from_secs(30));
    let theirs = java.multi_lock("a", "one+two");
    theirs.lock().unwrap();
    assert!(
        runtime
            .block_on(client.lock("two").try_acquire())
            .unwrap()
            .is_none()
    );
    theirs.unlock().unwrap();
    let set = client
        .multi_lock(["two", "three"].map(|name| client.lock(name)))
        .unwrap();
    let guard = runtime.block_on(set.acquire()).unwrap();
    assert!(!java.lock("b", "two").try_lock().unwrap().value);
    assert!(!theirs.try_lock().unwrap().value);
    runtime.block_on(guard.release()).unwrap();
    assert!(theirs.try_lock().unwrap().value);
    theirs.unlock().unwrap();
}
