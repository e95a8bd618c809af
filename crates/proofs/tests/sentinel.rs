//! Locks on a primary that sentinels watch: the promises, the failovers, and what is said when it cannot be found.

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
#[path = "sentinel/errors.rs"]
mod errors;
#[path = "sentinel/failover.rs"]
mod failover;
#[path = "sentinel/ipv6.rs"]
mod ipv6;

use std::sync::{Arc, Mutex, Weak};

use testkit::servers::Sentinels;
use tidelock::testing::Fixture;

/// The sentinels all tests share that break nothing; gone with the last of them.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn shared() -> Arc<Sentinels> {
    static SHARED: Mutex<Weak<Sentinels>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no start has panicked");
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Sentinels::start().expect("sentinels start"));
    *shared = Arc::downgrade(&started);
    started
}

mod promises {
    use super::{Fixture, shared};

    fn fixture() -> Fixture {
        let sentinels = shared();
        Fixture::url(sentinels.url()).keeping(sentinels)
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
