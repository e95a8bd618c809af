//! Every operation is cancelled at each of its await points, on a real server. No row stays behind.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::servers::MariaDb;
use tidelock::testing::Fixture;

/// The time between two beats of a process.
const BEAT: Duration = Duration::from_secs(2);

static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start().expect("a server starts"));

fn query(statement: &str) -> String {
    SERVER.query(statement).unwrap()
}

/// A database of its own for each promise: a new server takes seconds to initialize.
fn fixture() -> Fixture {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    let database = format!("left{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    query(&format!(
        "CREATE DATABASE {database}; GRANT ALL ON {database}.* TO tide@'127.0.0.1'"
    ));
    let url = SERVER.url();
    let server = url.strip_suffix("/locks").unwrap();
    Fixture::url(format!("{server}/{database}"))
        .lease_of(BEAT)
        .checked_by(move || leftovers(&database))
}

/// The rows of holders and waiters, in the tables that there are.
fn leftovers(database: &str) -> Option<String> {
    let there = "SELECT table_name FROM information_schema.tables WHERE table_schema = ";
    let tables = query(&format!("{there}'{database}'"));
    let mut left = Vec::new();
    for (table, which) in [
        ("tidelock_sides", "TRUE"),
        ("tidelock_waiters", "TRUE"),
        (
            "tidelock_locks",
            "expires > UNIX_TIMESTAMP(NOW(6)) * 1000000",
        ),
    ] {
        if tables.lines().any(|name| name == table) {
            let rows = query(&format!(
                "SELECT COUNT(*) FROM {database}.{table} WHERE {which}"
            ));
            left.push((table, rows));
        }
    }
    left.retain(|(_, rows)| rows != "0");
    (!left.is_empty()).then(|| format!("{left:?}"))
}

mod fair {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_fair());
}

mod writer {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_writer());
}

mod kinds {
    tidelock::conformance_at_every_await!(read_write: super::fixture());
    tidelock::conformance_at_every_await!(upgrade: super::fixture());
}
