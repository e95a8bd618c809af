//! The conformance suite on a real server: plainly, under faults, and through threads.

use std::sync::LazyLock;

use testkit::servers::MariaDb;
use tidelock::testing::Fixture;

/// One for all promises, which use names of their own: a new one takes seconds to be made.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start().expect("a server starts"));

/// On the server that `TIDELOCK_MYSQL_URL` names, if it is set: Debian has no MySQL to start here.
fn fixture() -> Fixture {
    match std::env::var("TIDELOCK_MYSQL_URL") {
        Ok(url) => Fixture::url(url),
        Err(_) => Fixture::url(SERVER.url()),
    }
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
