//! The conformance suite on a real server: plainly, under faults, and through threads.

use testkit::servers::RedisServer;
use tidelock::testing::Fixture;

/// A server of its own, for as long as the promise is being proved.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(server.url()).keeping(server)
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
