//! The conformance suite on a real server: without faults, with injected faults, and from several threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::ZooKeeperServer;
use tidelock::testing::Fixture;

/// All promises share one server and use distinct names, because a server takes longer to start than most promises take
/// to run.
static SERVER: LazyLock<ZooKeeperServer> =
    LazyLock::new(|| ZooKeeperServer::start().expect("a server starts"));

/// Garbage collection sometimes pauses the Java server for longer than a fraction of the usual lease.
const LEASE: Duration = Duration::from_millis(1500);

/// Other tests cover leases that outlast the session.
fn fixture() -> Fixture {
    let url = format!("{}/promises?session_timeout=10s", SERVER.url());
    Fixture::url(url).lease_of(LEASE)
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance!(ordered election: super::fixture());
    tidelock::conformance!(fair: super::fixture());
    tidelock::conformance!(read_write: super::fixture());
    tidelock::conformance!(positions: super::fixture());
    tidelock::conformance_at_every_await!(super::fixture());
}

/// A semaphore with one permit is a lock like any other, except that its owner is written in another form.
mod permits {
    tidelock::conformance!(hashed: super::fixture().as_permit());
    tidelock::conformance!(permits: super::fixture());
}

mod permits_chaos {
    tidelock::conformance!(permits faces: super::fixture().through_chaos());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(once with faults: super::fixture().through_chaos());
    tidelock::conformance!(read_write: super::fixture().through_chaos());
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
    tidelock::conformance!(read_write: super::fixture().blocking());
}

/// Another part of the set is on a store without a queue: the queue node of a refused part is removed with all the
/// others.
mod of_a_set {
    use tidelock::testing::Fixture;

    tidelock::conformance!(faces: Fixture::all_of([Fixture::memory(), super::fixture()]).lease_of(super::LEASE));
}
