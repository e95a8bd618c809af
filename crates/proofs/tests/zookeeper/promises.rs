//! The conformance suite on a real server: plainly, under faults, and through threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::ZooKeeperServer;
use tidelock::testing::Fixture;

/// One for all: each promise has names of its own, and a server takes longer to start than most promises.
static SERVER: LazyLock<ZooKeeperServer> =
    LazyLock::new(|| ZooKeeperServer::start().expect("a server starts"));

/// A server in Java stops now and then for longer than a part of the usual lease.
const LEASE: Duration = Duration::from_millis(1500);

/// Leases that outlast the session are proved apart.
fn fixture() -> Fixture {
    let url = format!("{}/promises?session_timeout=10s", SERVER.url());
    Fixture::url(url).lease_of(LEASE)
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(read_write: super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(read_write: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
    tidelock::conformance!(read_write: super::fixture().blocking());
}

/// With a part on a store that does not queue: the place of a refused part is given up like all the rest.
mod of_a_set {
    use tidelock::testing::Fixture;

    tidelock::conformance!(faces: Fixture::all_of([Fixture::memory(), super::fixture()]).lease_of(super::LEASE));
}
