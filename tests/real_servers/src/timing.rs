//! Time limits of the tests.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A limit for events that the test only has to see happen.
pub const SOON: Duration = Duration::from_secs(10);

/// Milliseconds, as in the text of the rows, on a machine that runs nothing else. Beside other programs leases, pauses and
/// bounds are all longer by the same factor, so that each stays the same part of the others.
pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis) * factor()
}

/// As [`ms`], in seconds.
pub fn secs(seconds: u64) -> Duration {
    ms(seconds * 1000)
}

fn factor() -> u32 {
    let given = std::env::var("TIDELOCK_LEASE_FACTOR").ok();
    given
        .and_then(|text| text.parse().ok())
        .map_or(1, |factor: u32| factor.max(1))
}

/// Polls until the condition holds and returns how long that took. For conditions that only the server can see.
pub fn eventually(
    limit: Duration,
    what: &str,
    mut reached: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    loop {
        if reached()? {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Awaits a future with a time limit.
pub async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    tokio::time::timeout(limit, future)
        .await
        .with_context(|| format!("not within {limit:?}: {what}"))
}
