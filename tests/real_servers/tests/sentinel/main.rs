//! Locks on a primary that sentinels watch: the promises, the failovers, and the error messages when no primary is
//! found.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod barrier;
mod errors;
mod failover;
mod ipv6;

use std::sync::{Arc, Mutex, Weak};

use testkit::servers::Sentinels;
use tidelock::testing::Fixture;

/// The sentinels shared by all tests that inject no faults. They are dropped with the last test.
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
        tidelock::conformance!(shown fair: super::fixture());
        tidelock::conformance!(once: super::fixture());
        tidelock::conformance!(election: super::fixture());
        tidelock::conformance!(ordered election: super::fixture());
    }

    /// Each write of the state is acknowledged by a replica.
    mod barrier {
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
        /// Each attempt also waits for a replica. With a longer lease there is time for as many attempts as on a single
        /// server.
        const LEASE: std::time::Duration = std::time::Duration::from_millis(1500);

        tidelock::conformance!(faces: super::fixture().lease_of(LEASE).through_chaos());
    }

    mod threads {
        tidelock::conformance!(blocking: super::fixture().blocking());
    }
}
