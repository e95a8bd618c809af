//! Locks in a cluster: the guarantees, failovers, slot migration, and failures of single shards.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod errors;
mod failover;
mod forms;
mod ipv6;
mod messages;
mod migration;
mod renewals;
mod secured;
mod shards;
mod single;
mod views;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::Result;
use testkit::servers::{Cluster, RedisServer};
use tidelock::testing::Fixture;

/// The cluster shared by all tests that do not damage it. It ends with the last of them.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn shared() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no start has panicked");
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Cluster::start().expect("a cluster starts"));
    *shared = Arc::downgrade(&started);
    started
}

/// Serialises the tests that move slots.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// The number of processes subscribed to a lock's channel at this node: the larger of the counts of the two message
/// forms.
fn listeners(node: &RedisServer, name: &str) -> i64 {
    let braces = if name.contains('{') {
        ("", "")
    } else {
        ("{", "}")
    };
    let channel = format!("redisson_lock__channel:{}{name}{}", braces.0, braces.1);
    let mut count = 0;
    for form in ["NUMSUB", "SHARDNUMSUB"] {
        // Redis 6.2 supports only the first form; for the second the query fails and counts as 0.
        let said = node.query(&["PUBSUB", form, &channel]);
        let (_, listeners): (String, i64) = said.unwrap_or_default();
        count = count.max(listeners);
    }
    count
}

/// Waits until one process is subscribed to a lock's channel at this node.
fn heard_at(node: &RedisServer, name: &str, limit: Duration) -> Result<()> {
    let what = format!("somebody listens for {name} at {}", node.addr());
    real_servers::eventually(limit, &what, || Ok(listeners(node, name) == 1)).map(drop)
}

mod promises {
    use super::{Fixture, shared};

    fn fixture() -> Fixture {
        let cluster = shared();
        Fixture::url(cluster.url())
            .keeping(cluster)
            .without_odd_braces()
    }

    mod plain {
        tidelock::conformance!(super::fixture());
        tidelock::conformance!(shown fair: super::fixture());
        tidelock::conformance!(once: super::fixture());
        tidelock::conformance!(election: super::fixture());
        tidelock::conformance!(ordered election: super::fixture());
        // The lock of the members, the state and the lock of the signals are in different slots.
        tidelock::conformance_of_barriers!(super::fixture());
    }

    /// The kinds of locks that Redisson has beside the lock and the fair lock.
    mod kinds {
        tidelock::conformance!(read_write: super::fixture());
        tidelock::conformance!(spin: super::fixture());
        tidelock::conformance!(permits: super::fixture());
        tidelock::conformance!(counting: super::fixture());
        tidelock::conformance!(latch: super::fixture());
    }

    mod chaos {
        /// Each attempt also waits for a replica, so a shorter lease would leave time for fewer attempts than on other
        /// stores.
        const LEASE: std::time::Duration = std::time::Duration::from_millis(1500);

        tidelock::conformance!(faces: super::fixture().lease_of(LEASE).through_chaos());
    }

    mod threads {
        tidelock::conformance!(blocking: super::fixture().blocking());
    }

    /// The keys of the queue lie in the slot of the lock.
    mod fair {
        tidelock::conformance!(super::fixture().as_fair());
    }
}
