//! The conformance suite on a real server: without faults, with injected faults, and from several threads.

use testkit::servers::RedisServer;
use tidelock::testing::Fixture;

/// A separate server for each promise.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(server.url()).keeping(server)
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance!(ordered election: super::fixture());
    tidelock::conformance!(read_write: super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(once with faults: super::fixture().through_chaos());
    tidelock::conformance!(read_write: super::fixture().through_chaos());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    tidelock::conformance!(super::fixture().as_fair());
    tidelock::conformance!(shown fair: super::fixture());
}

mod fair_chaos {
    /// A waiter of a queue sends more requests than one of a plain lock, and each may be faulty: in a shorter lease a
    /// busy machine does not come to all of them.
    const LEASE: std::time::Duration = std::time::Duration::from_millis(1500);

    fn fixture() -> tidelock::testing::Fixture {
        super::fixture().lease_of(LEASE).through_chaos()
    }

    tidelock::conformance!(faces: fixture().as_fair());
    tidelock::conformance!(shown fair: fixture());
}

/// A semaphore with one permit is a lock like any other, except that its owner is written in another form.
mod permits {
    tidelock::conformance!(hashed: super::fixture().as_permit());
    tidelock::conformance!(permits: super::fixture());
}

mod permits_chaos {
    tidelock::conformance!(permits faces: super::fixture().through_chaos());
}

/// A spin lock is a lock like any other, except that nothing wakes its waiters.
mod spin {
    tidelock::conformance!(super::fixture().as_spin());
    tidelock::conformance!(spin: super::fixture());
}

mod spin_chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos().as_spin());
    tidelock::conformance!(spin: super::fixture().through_chaos());
}

mod counting {
    tidelock::conformance!(counting: super::fixture());
}

mod counting_chaos {
    tidelock::conformance!(counting faces: super::fixture().through_chaos());
}

mod latch {
    tidelock::conformance!(latch: super::fixture());
}

mod latch_chaos {
    tidelock::conformance!(latch faces: super::fixture().through_chaos());
}

/// Members of a barrier hold the read side of a lock, and their state is a mark.
mod barrier {
    tidelock::conformance_of_barriers!(super::fixture());
}

mod barrier_chaos {
    /// A step has three requests, and each may be faulty several times in a row. It is repeated for no longer than a lease.
    const LEASE: std::time::Duration = std::time::Duration::from_secs(3);

    tidelock::conformance_of_barriers!(faces: super::fixture().lease_of(LEASE).through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
    tidelock::conformance!(read_write: super::fixture().blocking());
    tidelock::conformance!(shown fair: super::fixture().blocking());
    tidelock::conformance!(spin: super::fixture().blocking());
}
