//! Every operation is cancelled at each of its await points, on a file. No row stays behind.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tidelock::testing::Fixture;

/// Many of these tests run at the same time, and each transaction waits for the disk.
const LEASE: Duration = Duration::from_secs(2);

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let fixture = Fixture::url(super::url(&file)).lease_of(LEASE);
    fixture.keeping(folder).checked_by(move || leftovers(&file))
}

/// The rows of holders and waiters, in the tables that there are.
fn leftovers(file: &Path) -> Option<String> {
    let raw = Connection::open(file).unwrap();
    raw.busy_timeout(Duration::from_secs(10)).unwrap();
    let count = |sql: &str| -> i64 { raw.query_row(sql, [], |row| row.get(0)).unwrap() };
    let mut left = Vec::new();
    for table in ["locks", "waiters", "sides", "permits"] {
        let there = format!("SELECT count(*) FROM sqlite_master WHERE name = '{table}'");
        if count(&there) == 1 {
            left.push((table, count(&format!("SELECT count(*) FROM {table}"))));
        }
    }
    left.retain(|(_, rows)| *rows > 0);
    (!left.is_empty()).then(|| format!("{left:?}"))
}

mod lock {
    tidelock::conformance_at_every_await!(super::fixture());
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
    tidelock::conformance_at_every_await!(barrier: super::fixture());
}
