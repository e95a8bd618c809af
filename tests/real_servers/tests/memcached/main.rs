//! The memcached store on a real server: the conformance promises, and the faults that can break them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connecting;
mod costs;
mod every_await;
mod faults;
mod login;
mod server_run;

use std::time::Duration;

use testkit::servers::MemcachedServer;
use tidelock::testing::Fixture;

/// A separate server for each promise. memcached counts whole seconds, so the leases are long.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = MemcachedServer::start().expect("a server starts");
    Fixture::url(server.url())
        .keeping(server)
        .lease_of(Duration::from_secs(2))
}

mod promises {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(no once: super::fixture());
    tidelock::conformance!(no election: super::fixture());
    tidelock::conformance_of_barriers!(none: super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
