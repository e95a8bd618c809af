//! The conformance suite on a real server: plainly, under faults, and through threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::ZooKeeperServer;
use tidelock::testing::Fixture;

/// One for all: each promise has names of its own, and a server takes longer to start than most promises.
static SERVER: LazyLock<ZooKeeperServer> =
    LazyLock::new(|| ZooKeeperServer::start().expect("a server starts"));

/// Leases that outlast the session are proved apart.
fn fixture() -> Fixture {
    let url = format!("{}/promises?session_timeout=10s", SERVER.url());
    // A server in Java stops now and then for longer than a part of the usual lease.
    Fixture::url(url).lease_of(Duration::from_millis(1500))
}

mod plain {
    tidelock::conformance!(super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
