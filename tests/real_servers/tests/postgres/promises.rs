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
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
