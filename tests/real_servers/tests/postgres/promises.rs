//! The conformance suite on a real server: without faults, with injected faults, and from several threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::PostgresServer;
use tidelock::testing::Fixture;

/// All promises share one server. They use distinct lock names.
static SERVER: LazyLock<PostgresServer> =
    LazyLock::new(|| PostgresServer::start().expect("a server starts"));

/// Twice the usual lease: the server plans each statement again, and still runs thousands of statements that clients
/// have abandoned.
fn fixture() -> Fixture {
    Fixture::url(SERVER.url()).lease_of(Duration::from_millis(1800))
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance!(ordered election: super::fixture());
    tidelock::conformance_at_every_await!(super::fixture());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    tidelock::conformance!(shown fair: super::fixture());
}

/// Each waiter of a fair lock has a row, which it removes. Thousands of them that leave at random moments keep a busy
/// machine from anything else, so that promise of the suite is left out.
mod fair_locks {
    tidelock::conformance!(blocking: super::fixture().as_fair());
    tidelock::conformance!(cancel: super::fixture().as_fair());
}

mod fair_chaos {
    tidelock::conformance!(shown fair: super::fixture().through_chaos());
}

/// Each side of a read-write lock is a lock like any other.
mod sides {
    tidelock::conformance!(cancel: super::fixture().as_writer());
    tidelock::conformance!(read_write: super::fixture());
    tidelock::conformance!(upgrade: super::fixture());
}

mod sides_chaos {
    tidelock::conformance!(read_write: super::fixture().through_chaos());
    tidelock::conformance!(upgrade: super::fixture().through_chaos());
}

mod sides_threads {
    tidelock::conformance!(read_write: super::fixture().blocking());
}

/// A semaphore with one permit is a lock like any other, except that its owner is written in another form.
mod permits {
    tidelock::conformance!(hashed blocking: super::fixture().as_permit());
    tidelock::conformance!(cancel: super::fixture().as_permit());
    tidelock::conformance!(permits: super::fixture());
}

mod permits_chaos {
    tidelock::conformance!(permits faces: super::fixture().through_chaos());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(once with faults: super::fixture().through_chaos());
}

/// Members of a barrier hold the read side of a lock, and their state is a mark.
mod barrier {
    tidelock::conformance_of_barriers!(super::fixture());
    tidelock::conformance_at_every_await!(barrier: super::fixture());
}

mod barrier_chaos {
    /// A step has three requests, and each may be faulty several times in a row. It is repeated for no longer than a lease.
    const LEASE: std::time::Duration = std::time::Duration::from_secs(3);

    tidelock::conformance_of_barriers!(faces: super::fixture().lease_of(LEASE).through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
