//! Ten thousand acquisitions of one kind of lock by both languages: on one server, under sentinels and in a cluster, with each
//! generation of Redisson. `cargo xtask compatibility` runs them for its page, one at a time: a waiter that waits for long
//! means a lost wake-up, and not a busy machine.

use std::time::Duration;

use testkit::java::RedissonVersion;
use testkit::servers::{Cluster, RedisServer, Sentinels};

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
        _ => {
            let load = Load {
                version,
                kind,
                rounds: ROUNDS,
                rest: Duration::ZERO,
            };
            let done = hammer_on(&servers.url(), load);
            assert_eq!(done.holds, u64::from(ROUNDS) * 8);
        }
    }
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

/// The tests of each version: a kind of lock, and the name of its test on each topology.
macro_rules! loads {
    ($($module:ident $version:ident: $($kind:literal $one:ident $sentinels:ident $cluster:ident,)+;)+) => {$(
        mod $module {
            use testkit::java::RedissonVersion::$version;
            $(
                #[test]
                #[ignore = "10,000 acquisitions; cargo xtask compatibility"]
                fn $one() { super::on_one_server($kind, $version); }

                #[test]
                #[ignore = "10,000 acquisitions; cargo xtask compatibility"]
                fn $sentinels() { super::behind_sentinels($kind, $version); }

                #[test]
                #[ignore = "10,000 acquisitions; cargo xtask compatibility"]
                fn $cluster() { super::in_a_cluster($kind, $version); }
            )+
        }
    )+};
}

/// The kinds that every version has.
macro_rules! with_old_kinds {
    ($($module:ident $version:ident: $($kind:literal $one:ident $sentinels:ident $cluster:ident,)*;)+) => {
        loads! {$(
            $module $version:
            "plain" locks_never_overlap
                behind_sentinels_locks_never_overlap
                in_a_cluster_locks_never_overlap,
            "fair" fair_locks_never_overlap
                behind_sentinels_fair_locks_never_overlap
                in_a_cluster_fair_locks_never_overlap,
            "sides" readers_and_writers_never_meet
                behind_sentinels_readers_and_writers_never_meet
                in_a_cluster_readers_and_writers_never_meet,
            "permits" permits_are_never_too_many
                behind_sentinels_permits_are_never_too_many
                in_a_cluster_permits_are_never_too_many,
            "counted" counted_permits_are_never_too_many
                behind_sentinels_counted_permits_are_never_too_many
                in_a_cluster_counted_permits_are_never_too_many,
            "latch" a_latch_opens_once
                behind_sentinels_a_latch_opens_once
                in_a_cluster_a_latch_opens_once,
            $($kind $one $sentinels $cluster,)*;
        )+}
    };
}

with_old_kinds! {
    newest Newest:
        "fenced" tokens_of_fenced_locks_grow
            behind_sentinels_tokens_of_fenced_locks_grow
            in_a_cluster_tokens_of_fenced_locks_grow,
        "spin" spin_locks_never_overlap
            behind_sentinels_spin_locks_never_overlap
            in_a_cluster_spin_locks_never_overlap,
        "non_reentrant" non_reentrant_locks_never_overlap
            behind_sentinels_non_reentrant_locks_never_overlap
            in_a_cluster_non_reentrant_locks_never_overlap,;
    redisson_3_52_0 V3_52_0:
        "fenced" tokens_of_fenced_locks_grow
            behind_sentinels_tokens_of_fenced_locks_grow
            in_a_cluster_tokens_of_fenced_locks_grow,
        "spin" spin_locks_never_overlap
            behind_sentinels_spin_locks_never_overlap
            in_a_cluster_spin_locks_never_overlap,;
    redisson_3_27_2 V3_27_2:
        "fenced" tokens_of_fenced_locks_grow
            behind_sentinels_tokens_of_fenced_locks_grow
            in_a_cluster_tokens_of_fenced_locks_grow,
        "spin" spin_locks_never_overlap
            behind_sentinels_spin_locks_never_overlap
            in_a_cluster_spin_locks_never_overlap,;
    redisson_3_15_6 V3_15_6:
        "spin" spin_locks_never_overlap
            behind_sentinels_spin_locks_never_overlap
            in_a_cluster_spin_locks_never_overlap,;
    redisson_3_12_5 V3_12_5: ;
}
