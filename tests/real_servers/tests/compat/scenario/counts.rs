//! Permits, a latch and a counting semaphore.

use anyhow::{Context, Result, ensure};
use tidelock::{Client, Permits};

const SEATS: &str = "seats";
const GATE: &str = "gate";
const CUPS: &str = "cups";

/// Two of five permits are out, a latch has been counted down from three, and one of four is taken.
pub(super) async fn leave(client: &Client) -> Result<Permits> {
    let seats = client.semaphore(SEATS);
    seats.set_permits_if_new(5).await?;
    let permits = seats.permits(2).acquire().await?;
    let gate = client.latch(GATE);
    gate.set_count_if_new(3).await?;
    gate.count_down().await?;
    let cups = client.counting_semaphore(CUPS);
    cups.set_permits_if_new(4).await?;
    cups.acquire(1).await?;
    Ok(permits)
}

pub(super) async fn are_understood(client: &Client) -> Result<()> {
    let seats = client.semaphore(SEATS);
    let seen = seats.inspect().await?;
    let count = seen.permits.context("no semaphore")?;
    ensure!((count.available, count.total) == (3, 5), "{seen:?}");
    ensure!(
        seats.permits(4).try_acquire().await?.is_none(),
        "more permits than there are"
    );
    let rest = seats.permits(3).try_acquire().await?;
    rest.context("the rest of the permits")?.release().await?;
    // Gives back the permits that are out.
    ensure!(seats.force_release().await?, "no permit was out");
    let all = seats.permits(5).try_acquire().await?;
    all.context("all permits")?.release().await?;
    let gate = client.latch(GATE);
    let left = gate.count().await?;
    ensure!(left == 2, "the latch is at {left}");
    let left = gate.count_down().await?;
    ensure!(left == 1, "the latch is at {left} after that");
    let cups = client.counting_semaphore(CUPS);
    let left = cups.available().await?;
    ensure!(left == 3, "{left} are left");
    ensure!(cups.try_acquire(3).await?, "they cannot be taken");
    Ok(())
}
