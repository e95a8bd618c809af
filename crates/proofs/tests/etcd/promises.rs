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

/// One second is the shortest lease of this server, and etcd counts whole seconds.
fn fixture() -> Fixture {
    let server = server();
    Fixture::url(format!("{}/promises", server.url()))
        .lease_of(Duration::from_secs(1))
        .keeping(server)
}

mod plain {
    tidelock::conformance!(super::fixture());
}
