//! The plain lock of Redis, one key.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "plain/wire.rs"]
mod wire;

use testkit::servers::RedisServer;
use tidelock::testing::Fixture;

/// A server of its own, for as long as the promise is being proved.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(format!("{}?locks=plain", server.url())).keeping(server)
}

mod promises {
    tidelock::conformance!(super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
