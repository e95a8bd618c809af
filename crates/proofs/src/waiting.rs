//! What it costs to wait, measured the same way on each store.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::process::{Spawned, cpu_time};
use tidelock::Client;

/// Longer than a turn takes that does not hang.
const SOON: Duration = Duration::from_secs(20);

/// From a release in one client to the lock in the hands of a task of the other, which has waited that long before: so many
/// turns, the shortest first.
///
/// # Errors
/// Those of the locks, and one for a waiter that is not served.
pub async fn hand_overs(
    one: &Client,
    other: &Client,
    turns: u64,
    waited: impl Fn(u64) -> Duration,
) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for turn in 0..turns {
        let held = one.lock("turns").acquire().await?;
        let lock = other.lock("turns");
        let next = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            let got = Instant::now();
            guard.release().await.map(|()| got)
        });
        tokio::time::sleep(waited(turn)).await;
        let released = Instant::now();
        held.release().await?;
        let got = tokio::time::timeout(SOON, next).await;
        let got = got.context("a waiter was not served")???;
        took.push(got.saturating_duration_since(released));
    }
    took.sort_unstable();
    Ok(took)
}

/// The time on a core of a process in which a hundred tasks wait for one name, for so long.
///
/// # Errors
/// When the process is gone.
pub async fn crowd(peer: &mut Spawned, name: &str, window: Duration) -> Result<Duration> {
    for _ in 0..100 {
        peer.write_line(&format!("acquire {name}"))?;
    }
    // All have asked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_time(peer.pid())?;
    tokio::time::sleep(window).await;
    Ok(cpu_time(peer.pid())?.saturating_sub(before))
}
