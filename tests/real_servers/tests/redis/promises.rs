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
    tidelock::conformance!(read_write: super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(read_write: super::fixture().through_chaos());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    tidelock::conformance!(super::fixture().as_fair());
    tidelock::conformance!(shown fair: super::fixture());
}

mod fair_chaos {
    tidelock::conformance!(faces: super::fixture().as_fair().through_chaos());
    tidelock::conformance!(shown fair: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
    tidelock::conformance!(read_write: super::fixture().blocking());
    tidelock::conformance!(shown fair: super::fixture().blocking());
}
