//! Every operation is cancelled at each of its await points, on a real server. No lock, no subscription and no key
//! stays behind.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use testkit::servers::RedisServer;
use tidelock::testing::Fixture;

use crate::channels;

/// Many of these tests run at the same time, and nothing may take longer than a part of it.
const LEASE: Duration = Duration::from_secs(2);

/// A server of its own for each promise. The number of permits of a semaphore stays if `counts`.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture(counts: bool) -> Fixture {
    let server = Arc::new(RedisServer::start().expect("a server starts"));
    let url = server.url();
    let check = Arc::clone(&server);
    Fixture::url(url)
        .lease_of(LEASE)
        .keeping(server)
        .checked_by(move || leftovers(&check, counts).expect("the server answers"))
}

fn leftovers(server: &RedisServer, counts: bool) -> Result<Option<String>> {
    let mut left = channels(server)?;
    for key in server.keys()? {
        let expires = server.query::<i64, _>(&["PTTL", &key])? != -1;
        let is_number = server.query::<String, _>(&["TYPE", &key])? == "string";
        if !(key.starts_with("tidelock:") && expires || counts && is_number) {
            left.push(key);
        }
    }
    Ok((!left.is_empty()).then(|| left.join(", ")))
}

mod lock {
    tidelock::conformance_at_every_await!(super::fixture(false));
}

mod writer {
    tidelock::conformance_at_every_await!(super::fixture(false).as_writer());
}

mod fair {
    tidelock::conformance_at_every_await!(super::fixture(false).as_fair());
}

mod spin {
    tidelock::conformance_at_every_await!(kind: super::fixture(false).as_spin());
}

mod permit {
    tidelock::conformance_at_every_await!(kind: super::fixture(true).as_permit());
}

mod kinds {
    tidelock::conformance_at_every_await!(read_write: super::fixture(false));
    tidelock::conformance_at_every_await!(permits: super::fixture(true));
    tidelock::conformance_at_every_await!(counting: super::fixture(true));
    tidelock::conformance_at_every_await!(latch: super::fixture(false));
    tidelock::conformance_at_every_await!(barrier: super::fixture(false));
}
