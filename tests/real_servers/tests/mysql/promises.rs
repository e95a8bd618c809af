//! The conformance suite on a real server: without faults, with injected faults, and from several threads.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::servers::MariaDb;
use tidelock::testing::Fixture;

/// All promises share one server, because a new one takes seconds to initialize. They use distinct lock names.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start().expect("a server starts"));

/// Uses the server in `TIDELOCK_MYSQL_URL` if that is set, because Debian has no MySQL package to start here. Otherwise
/// uses MariaDB. Twice the usual lease: on a busy machine a few transactions in a row take longer than the usual one.
fn fixture() -> Fixture {
    let url = std::env::var("TIDELOCK_MYSQL_URL").unwrap_or_else(|_| SERVER.url());
    Fixture::url(url).lease_of(Duration::from_millis(1800))
}

mod plain {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance!(ordered election: super::fixture());
    tidelock::conformance_at_every_await!(super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
    tidelock::conformance!(once with faults: super::fixture().through_chaos());
}

/// Members of a barrier hold the read side of a lock, and their state is a mark.
mod barrier {
    tidelock::conformance_of_barriers!(super::fixture());
    tidelock::conformance_at_every_await!(barrier: super::fixture());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    tidelock::conformance!(shown fair: super::fixture());
}

mod fair_locks {
    tidelock::conformance!(blocking: super::fixture().as_fair());
    tidelock::conformance!(cancel: super::fixture().as_fair());
}

mod fair_chaos {
    tidelock::conformance!(shown fair: super::fixture().through_chaos());
}

/// Each side of a read-write lock is a lock like any other.
mod sides {
    tidelock::conformance!(read_write: super::fixture());
    tidelock::conformance!(upgrade: super::fixture());
    tidelock::conformance!(cancel: super::fixture().as_writer());
}

mod sides_chaos {
    tidelock::conformance!(read_write: super::fixture().through_chaos());
    tidelock::conformance!(upgrade: super::fixture().through_chaos());
}

mod sides_threads {
    tidelock::conformance!(read_write: super::fixture().blocking());
}
