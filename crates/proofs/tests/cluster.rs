//! Locks in a cluster: the promises, the failovers, the slots that move, and the shards that fail alone.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

#[allow(
    dead_code,
    reason = "shared with the fault rows, which need more of it"
)]
#[path = "faults/common.rs"]
mod common;

use std::sync::{Arc, Mutex, Weak};

use testkit::servers::Cluster;
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

mod promises {
    use super::{Fixture, shared};

    fn fixture() -> Fixture {
        let cluster = shared();
        Fixture::url(cluster.url())
            .keeping(cluster)
            .without_odd_braces()
    }

    tidelock::conformance!(fixture());
}
