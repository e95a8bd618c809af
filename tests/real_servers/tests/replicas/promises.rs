//! Elections and jobs of the suite, on a primary with two replicas.

use std::sync::LazyLock;

use testkit::servers::Replicated;
use tidelock::testing::Fixture;

/// All promises share the servers and use distinct names.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
static SERVERS: LazyLock<Replicated> =
    LazyLock::new(|| Replicated::start(2).expect("servers start"));

fn fixture() -> Fixture {
    Fixture::url(SERVERS.url())
}

tidelock::conformance!(once: fixture());
tidelock::conformance!(election: fixture());
tidelock::conformance!(ordered election: fixture());
