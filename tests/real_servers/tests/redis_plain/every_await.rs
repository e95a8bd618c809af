//! Every operation is cancelled at each of its await points, on a real server. No key stays behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::{RedisBuilder, RedisServer};
use tidelock::testing::Fixture;

/// Many of these tests run at the same time, and nothing may take longer than a part of it.
const LEASE: Duration = Duration::from_secs(2);

/// A server of its own for each promise.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture(server: RedisBuilder, user: &str) -> Fixture {
    let server = Arc::new(server.start().expect("a server starts"));
    let url = format!("redis://{user}127.0.0.1:{}?locks=plain", server.port());
    let check = Arc::clone(&server);
    Fixture::url(url)
        .lease_of(LEASE)
        .keeping(server)
        .checked_by(move || leftovers(&check))
}

/// The keys that are no notes with an end.
fn leftovers(server: &RedisServer) -> Option<String> {
    let mut left = server.keys().unwrap();
    left.retain(|key| {
        let ends = server.query::<i64, _>(&["PTTL", key]).unwrap() != -1;
        !(key.starts_with("tidelock:") && ends)
    });
    (!left.is_empty()).then(|| left.join(", "))
}

mod with_scripts {
    use super::{RedisServer, fixture};

    tidelock::conformance_at_every_await!(fixture(RedisServer::builder(), ""));
}

mod without_scripts {
    use super::fixture;

    tidelock::conformance_at_every_await!(fixture(crate::without_scripts(), crate::USER));
}
