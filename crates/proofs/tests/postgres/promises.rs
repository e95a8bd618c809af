//! The conformance suite on a real server: plainly, under faults, and through threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::PostgresServer;
use tidelock::testing::Fixture;

/// One for all: each promise has names of its own.
static SERVER: LazyLock<PostgresServer> =
    LazyLock::new(|| PostgresServer::start().expect("a server starts"));

/// Twice the usual lease: a statement is planned anew each time, and thousands that were given up are still run.
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
