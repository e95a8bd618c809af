//! A cluster in which neither side sets the form of its messages: each generation of Redisson chooses a form by itself,
//! and both sides wake each other.

use std::time::Duration;

use testkit::java::RedissonVersion;
use testkit::servers::Cluster;

use crate::load::{Load, hammer_on};
use crate::world::LEASE;

/// For this long after it connects, and after each change of the cluster, a client publishes every release in both
/// forms. After that it counts the subscribers.
const SETTLED: Duration = Duration::from_secs(31);

with_each_redisson!(
    /// The two forms are separate: 3.15.6 publishes and hears only plain messages, the newest version only sharded
    /// ones.
    t71_in_a_cluster_each_generation_takes_turns_with_the_defaults,
);

fn t71_in_a_cluster_each_generation_takes_turns_with_the_defaults(version: RedissonVersion) {
    // A lost wake-up costs the rest of a lease, two thirds or more; a busy machine costs less than half of one.
    take_turns(version, 75, LEASE / 2);
}

/// Two JVMs and two Rust processes, with two threads or tasks each, take `rounds` turns. A waiter that is not woken
/// sleeps until a lease ends.
fn take_turns(version: RedissonVersion, rounds: u32, longest: Duration) {
    let cluster = Cluster::start().unwrap();
    let load = Load {
        version,
        kind: "plain",
        rounds,
        rest: SETTLED,
    };
    let done = hammer_on(&cluster.url(), load);
    assert_eq!(done.holds, u64::from(rounds) * 8);
    println!("{version:?}: {done:?}");
    assert!(done.longest < longest, "{done:?}");
}

mod full {
    use std::sync::{Mutex, PoisonError};

    use super::{Duration, RedissonVersion};

    /// One test at a time, because they measure how long a waiter waits.
    static ALONE: Mutex<()> = Mutex::new(());

    fn take_turns(version: RedissonVersion) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        super::take_turns(version, 300, Duration::from_secs(1));
    }

    macro_rules! each {
        ($($test:ident: $version:ident),+ $(,)?) => {
            $(
                #[test]
                #[ignore = "2,400 acquisitions with each of six versions; cargo xtask compatibility"]
                fn $test() { take_turns(RedissonVersion::$version); }
            )+
        };
    }

    each!(
        t71_in_a_cluster_newest_takes_turns: Newest,
        t71_in_a_cluster_3_52_0_takes_turns: V3_52_0,
        t71_in_a_cluster_3_29_0_takes_turns: V3_29_0,
        t71_in_a_cluster_3_27_2_takes_turns: V3_27_2,
        t71_in_a_cluster_3_22_0_takes_turns: V3_22_0,
        t71_in_a_cluster_3_15_6_takes_turns: V3_15_6,
    );
}
