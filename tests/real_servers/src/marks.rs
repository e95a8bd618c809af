//! One use of all requests of elections and of jobs that run once: for users with few rights.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidelock::Client;
use tidelock::once::{Once, Slot};

/// Longer than any step.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Runs a slot, is told that it has been run, and reads its mark.
pub async fn runs_once(client: &Client, name: &str) -> Result<()> {
    let job = client.once(name).slot(Slot::id("Monday"));
    let ran = job.run(|_| async { Ok::<_, Infallible>(()) }).await?;
    ensure!(ran == Once::Ran(()), "{ran:?}");
    let again = job.run(|_| async { Ok::<_, Infallible>(()) }).await?;
    ensure!(matches!(again, Once::Done(_)), "{again:?}");
    let marks = job.history(10).await?;
    ensure!(marks.len() == 1, "{marks:?}");
    Ok(())
}

/// Leads, is shown with its term, and resigns.
pub async fn leads(client: &Client, name: &str) -> Result<()> {
    let election = client.election(name).identity("web-1");
    let leadership = election.campaign().await?;
    let begun = Instant::now();
    loop {
        let leader = election.leader().await?.context("nobody leads")?;
        if leader.term == Some(leadership.term()) {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "without its term: {leader:?}");
        tokio::time::sleep(PAUSE).await;
    }
    leadership.resign().await?;
    ensure!(election.leader().await?.is_none());
    // Its mark is removed in the background.
    while !election.candidates().await?.is_empty() {
        ensure!(begun.elapsed() < PATIENCE, "it is still a candidate");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
