//! Locks in a cluster: the promises, the failovers, the slots that move, and the shards that fail alone.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

#[path = "sentinel/callers.rs"]
mod callers;
#[allow(
    dead_code,
    reason = "shared with the fault rows, which need more of it"
)]
#[path = "faults/common.rs"]
mod common;
#[path = "cluster/errors.rs"]
mod errors;
#[path = "cluster/failover.rs"]
mod failover;
#[path = "cluster/forms.rs"]
mod forms;
#[path = "cluster/ipv6.rs"]
mod ipv6;
#[path = "cluster/messages.rs"]
mod messages;
#[path = "cluster/migration.rs"]
mod migration;
#[path = "cluster/secured.rs"]
mod secured;
#[path = "cluster/shards.rs"]
mod shards;
#[path = "cluster/single.rs"]
mod single;
#[path = "cluster/views.rs"]
mod views;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::Result;
use testkit::servers::{Cluster, RedisServer};
use tidelock::testing::Fixture;

/// The cluster all tests share that break nothing; gone with the last of them.
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

/// Those that move slots do so one after the other.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// How many processes listen for a lock at this node: those of the form that most listen to.
fn listeners(node: &RedisServer, name: &str) -> i64 {
    let braces = if name.contains('{') {
        ("", "")
    } else {
        ("{", "}")
    };
    let channel = format!("redisson_lock__channel:{}{name}{}", braces.0, braces.1);
    let mut count = 0;
    for form in ["NUMSUB", "SHARDNUMSUB"] {
        // Redis 6.2 knows only the first.
        let said = node.query(&["PUBSUB", form, &channel]);
        let (_, listeners): (String, i64) = said.unwrap_or_default();
        count = count.max(listeners);
    }
    count
}

/// Waits until somebody listens for a lock at this node.
fn heard_at(node: &RedisServer, name: &str, limit: Duration) -> Result<()> {
    let what = format!("somebody listens for {name} at {}", node.addr());
    common::eventually(limit, &what, || Ok(listeners(node, name) == 1)).map(drop)
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
    }

    mod chaos {
        /// Each try waits for a replica as well: there must be time for as many as elsewhere.
        const LEASE: std::time::Duration = std::time::Duration::from_millis(1500);

        tidelock::conformance!(faces: super::fixture().lease_of(LEASE).through_chaos());
    }

    mod threads {
        tidelock::conformance!(blocking: super::fixture().blocking());
    }
}
