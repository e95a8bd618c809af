//! Every operation is cancelled at each of its await points, on a real server. No item of a lock stays behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::MemcachedServer;
use tidelock::testing::Fixture;

/// A server of its own for each promise.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = Arc::new(MemcachedServer::start().expect("a server starts"));
    let check = Arc::clone(&server);
    Fixture::url(server.url())
        .lease_of(Duration::from_secs(2))
        .keeping(server)
        .checked_by(move || leftovers(&check))
}

/// The items of locks. Those that the store needs for a time have its own prefix.
fn leftovers(server: &MemcachedServer) -> Option<String> {
    let mut left = server.keys().unwrap();
    left.retain(|key| !key.starts_with("tidelock%3A"));
    (!left.is_empty()).then(|| left.join(", "))
}

mod lock {
    tidelock::conformance_at_every_await!(super::fixture());
}
