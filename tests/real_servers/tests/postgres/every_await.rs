//! Every operation is cancelled at each of its await points, on a real server. No row stays behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::PostgresServer;
use tidelock::testing::Fixture;

/// The time between two beats of a process.
const BEAT: Duration = Duration::from_secs(2);
/// The row of a semaphore stays, and is nobody's.
const HELD: &str = "SELECT count(*) FROM tidelock_locks \
    WHERE owner IS NOT NULL AND owner <> ':semaphore' AND expires > clock_timestamp()";

/// A server of its own for each promise.
fn fixture() -> Fixture {
    let server = Arc::new(super::server());
    let fixture = Fixture::url(server.url()).lease_of(BEAT);
    let check = Arc::clone(&server);
    fixture
        .keeping(server)
        .checked_by(move || leftovers(&check))
}

/// The rows of holders and waiters, in the tables that there are.
fn leftovers(server: &PostgresServer) -> Option<String> {
    let query = |statement: &str| server.query(statement).unwrap();
    let mut left = Vec::new();
    for table in ["sides", "waiters", "permits"] {
        let there = format!("SELECT to_regclass('tidelock_locks_{table}') IS NOT NULL");
        if query(&there) == "t" {
            let rows = query(&format!("SELECT count(*) FROM tidelock_locks_{table}"));
            left.push((table, rows));
        }
    }
    left.push(("held", query(HELD)));
    left.retain(|(_, rows)| rows != "0");
    (!left.is_empty()).then(|| format!("{left:?}"))
}

mod fair {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_fair());
}

mod writer {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_writer());
}

mod permit {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_permit());
}

mod kinds {
    tidelock::conformance_at_every_await!(read_write: super::fixture());
    tidelock::conformance_at_every_await!(upgrade: super::fixture());
    tidelock::conformance_at_every_await!(permits: super::fixture());
}
