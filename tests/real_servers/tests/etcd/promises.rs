//! The conformance suite on a real server: directly, under faults, and with the blocking API.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::EtcdServer;
use tidelock::testing::Fixture;

/// One server for all tests of this process. The tests use different names, and a start takes longer than most of them.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn server() -> Arc<EtcdServer> {
    static SERVER: std::sync::OnceLock<Arc<EtcdServer>> = std::sync::OnceLock::new();
    Arc::clone(SERVER.get_or_init(|| Arc::new(EtcdServer::start().expect("a server starts"))))
}

/// With the default election timeout the shortest lease is two seconds. This server has a shorter timeout, so each
/// lease is exactly as long as requested. We use three seconds because the server may stall for a second on a shared
/// machine.
fn fixture() -> Fixture {
    let server = server();
    Fixture::url(format!("{}/promises", server.url()))
        .lease_of(Duration::from_secs(3))
        .keeping(server)
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance!(ordered election: super::fixture());
    tidelock::conformance!(fair: super::fixture());
    tidelock::conformance!(read_write: super::fixture());
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

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
    tidelock::conformance!(read_write: super::fixture().blocking());
}
