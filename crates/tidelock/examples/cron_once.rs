//! Every machine of a fleet starts the nightly job; one of them runs it.
//!
//! A lock excludes only runs that overlap. The clocks of machines differ, so a short job may end on one machine before
//! another machine starts it. If the first machine then released the lock, the second one would run the job again.
//! This program therefore keeps the lock for `SPREAD` after its start, and its lease is twice as long: if the process
//! dies after the job, the store keeps the lock for at least two thirds of the lease.
//!
//! The job still runs twice if a machine starts it more than `SPREAD` later, or if the store loses its data. It does
//! not run to its end if the process dies in the middle. Where a second run costs money, let the job insert a row with
//! the date as a unique key, in the same transaction as its result.

use std::time::Duration;

use tidelock::{Client, Result};
use tokio::time::{Instant, sleep_until};

/// Longer than the clocks of the machines differ, and longer than a start takes.
pub(crate) const SPREAD: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("memory:");
    let client = Client::builder().lease(SPREAD * 2).connect(url).await?;
    if !once(&client, async { println!("the report is written") }).await? {
        println!("another machine runs the job, or has just run it");
    }
    Ok(())
}

/// Runs the job, unless another machine has started it within the last `SPREAD`. False: it did.
pub(crate) async fn once(client: &Client, job: impl Future<Output = ()>) -> Result<bool> {
    let Some(guard) = client.lock("nightly-report").try_acquire().await? else {
        return Ok(false);
    };
    let started = Instant::now();
    guard.while_held(job).await?;
    sleep_until(started + SPREAD).await;
    guard.release().await?;
    Ok(true)
}
