//! The conformance suite on a real server: plainly, under faults, and through threads.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::EtcdServer;
use tidelock::testing::Fixture;

/// One server for all promises of this process: they use names of their own, and a start takes longer than most of them.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn server() -> Arc<EtcdServer> {
    static SERVER: std::sync::OnceLock<Arc<EtcdServer>> = std::sync::OnceLock::new();
    Arc::clone(SERVER.get_or_init(|| Arc::new(EtcdServer::start().expect("a server starts"))))
}

/// Two seconds are the shortest lease of a server that was not told to elect faster. This one was, so no lease is longer
/// than was asked for. Three, because the server stands still for a second now and then where many share a machine.
fn fixture() -> Fixture {
    let server = server();
    Fixture::url(format!("{}/promises", server.url()))
        .lease_of(Duration::from_secs(3))
        .keeping(server)
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
