//! Ten thousand acquisitions of one kind of lock by both languages: on one server, under sentinels and in a cluster, for
//! majorities on three servers, with each generation of Redisson. `cargo xtask compatibility` runs them for its page, one at a time: a waiter that waits for long
//! means a lost wake-up, and not a busy machine.

use std::time::Duration;

use testkit::java::RedissonVersion;
use testkit::servers::{Cluster, Independents, RedisServer, Sentinels};

use crate::load::{Load, hammer_on};
use crate::world::{Servers, World};
use crate::{counting, latches, permits};

/// Of each of the four threads of Java and the four tasks of Rust: 10,000 acquisitions.
const ROUNDS: u32 = 1_250;
/// Of each of the three threads of Java and the three tasks of Rust: 10,200 acquisitions.
const ROUNDS_OF_THREE: u32 = 1_700;

fn take_turns<S: Servers>(kind: &'static str, version: RedissonVersion, servers: S) {
    match kind {
        "permits" => permits::hammer(&World::on(version, servers), ROUNDS_OF_THREE),
        "counted" => counting::hammer(&World::on(version, servers), ROUNDS_OF_THREE),
        "latch" => latches::hammer(&World::on(version, servers), ROUNDS_OF_THREE),
        _ => hammer_locks(kind, version, &servers.url()),
    }
}

fn hammer_locks(kind: &'static str, version: RedissonVersion, url: &str) {
    let load = Load {
        version,
        kind,
        rounds: ROUNDS,
        rest: Duration::ZERO,
    };
    let done = hammer_on(url, load);
    assert_eq!(done.holds, u64::from(ROUNDS) * 8);
}

fn on_one_server(kind: &'static str, version: RedissonVersion) {
    take_turns(kind, version, RedisServer::start().unwrap());
}

fn behind_sentinels(kind: &'static str, version: RedissonVersion) {
    take_turns(kind, version, Sentinels::start().unwrap());
}

fn in_a_cluster(kind: &'static str, version: RedissonVersion) {
    take_turns(kind, version, Cluster::start().unwrap());
}

fn on_three_servers(kind: &'static str, version: RedissonVersion) {
    let servers = Independents::start(3).unwrap();
    hammer_locks(kind, version, &servers.urls().join(" "));
}

/// Tests of some kinds on one topology: a kind of lock, and the name of its test.
macro_rules! loads {
    ($on:ident $version:ident: $($kind:literal $test:ident,)+) => {$(
        #[test]
        #[ignore = "10,000 acquisitions; cargo xtask compatibility"]
        fn $test() { super::$on($kind, testkit::java::RedissonVersion::$version); }
    )+};
}

/// The kinds that every version has, on one server and behind sentinels.
macro_rules! old_kinds {
    ($version:ident) => {
        loads! { on_one_server $version:
            "plain" locks_never_overlap,
            "fair" fair_locks_never_overlap,
            "sides" readers_and_writers_never_meet,
            "permits" permits_are_never_too_many,
            "counted" counted_permits_are_never_too_many,
            "latch" a_latch_opens_once,
            "multi" sets_of_locks_never_overlap,
        }
        loads! { on_three_servers $version: "majority" majorities_never_overlap, }
        loads! { behind_sentinels $version:
            "plain" behind_sentinels_locks_never_overlap,
            "fair" behind_sentinels_fair_locks_never_overlap,
            "sides" behind_sentinels_readers_and_writers_never_meet,
            "permits" behind_sentinels_permits_are_never_too_many,
            "counted" behind_sentinels_counted_permits_are_never_too_many,
            "latch" behind_sentinels_a_latch_opens_once,
            "multi" behind_sentinels_sets_of_locks_never_overlap,
        }
    };
}

macro_rules! old_kinds_in_a_cluster {
    ($version:ident) => {
        loads! { in_a_cluster $version:
            "plain" in_a_cluster_locks_never_overlap,
            "fair" in_a_cluster_fair_locks_never_overlap,
            "sides" in_a_cluster_readers_and_writers_never_meet,
            "permits" in_a_cluster_permits_are_never_too_many,
            "counted" in_a_cluster_counted_permits_are_never_too_many,
            "latch" in_a_cluster_a_latch_opens_once,
            "multi" in_a_cluster_sets_of_locks_never_overlap,
        }
    };
}

macro_rules! fenced_locks {
    ($version:ident) => {
        loads! { on_one_server $version: "fenced" tokens_of_fenced_locks_grow, }
        loads! { behind_sentinels $version: "fenced" behind_sentinels_tokens_of_fenced_locks_grow, }
    };
}

macro_rules! fenced_locks_in_a_cluster {
    ($version:ident) => {
        loads! { in_a_cluster $version: "fenced" in_a_cluster_tokens_of_fenced_locks_grow, }
    };
}

macro_rules! spin_locks {
    ($version:ident) => {
        loads! { on_one_server $version: "spin" spin_locks_never_overlap, }
        loads! { behind_sentinels $version: "spin" behind_sentinels_spin_locks_never_overlap, }
    };
}

macro_rules! spin_locks_in_a_cluster {
    ($version:ident) => {
        loads! { in_a_cluster $version: "spin" in_a_cluster_spin_locks_never_overlap, }
    };
}

mod newest {
    old_kinds! { Newest }
    old_kinds_in_a_cluster! { Newest }
    fenced_locks! { Newest }
    fenced_locks_in_a_cluster! { Newest }
    spin_locks! { Newest }
    spin_locks_in_a_cluster! { Newest }
    loads! { on_one_server Newest: "non_reentrant" non_reentrant_locks_never_overlap, }
    loads! { behind_sentinels Newest:
        "non_reentrant" behind_sentinels_non_reentrant_locks_never_overlap,
    }
    loads! { in_a_cluster Newest:
        "non_reentrant" in_a_cluster_non_reentrant_locks_never_overlap,
    }
}

mod redisson_3_52_0 {
    old_kinds! { V3_52_0 }
    old_kinds_in_a_cluster! { V3_52_0 }
    fenced_locks! { V3_52_0 }
    fenced_locks_in_a_cluster! { V3_52_0 }
    spin_locks! { V3_52_0 }
    spin_locks_in_a_cluster! { V3_52_0 }
}

/// In a cluster, 3.29.0 takes the place of 3.27.2. Before it, each JVM finds out by itself, and not reliably, whether the cluster
/// has sharded messages. Two JVMs of one test sent and heard different forms, so a fair waiter in Java missed the message of
/// another JVM, and such a waiter sleeps for five minutes.
mod redisson_3_29_0 {
    old_kinds_in_a_cluster! { V3_29_0 }
    fenced_locks_in_a_cluster! { V3_29_0 }
    spin_locks_in_a_cluster! { V3_29_0 }
}

mod redisson_3_27_2 {
    old_kinds! { V3_27_2 }
    fenced_locks! { V3_27_2 }
    spin_locks! { V3_27_2 }
}

mod redisson_3_15_6 {
    old_kinds! { V3_15_6 }
    old_kinds_in_a_cluster! { V3_15_6 }
    spin_locks! { V3_15_6 }
    spin_locks_in_a_cluster! { V3_15_6 }
}

mod redisson_3_12_5 {
    old_kinds! { V3_12_5 }
    old_kinds_in_a_cluster! { V3_12_5 }
}
