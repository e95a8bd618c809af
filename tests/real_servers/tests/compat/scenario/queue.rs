//! A fair lock, its holder, and those who wait for it in an order.

use anyhow::{Result, ensure};
use tidelock::{Client, Guard};

use super::{Known, until};

const NAME: &str = "line";

/// The client holds it, and the others wait.
pub(super) async fn leave(client: &Client, others: &[Client]) -> Result<Guard> {
    let line = client.fair_lock(NAME);
    let held = line.acquire().await?;
    for (before, other) in (0..).zip(others) {
        let waiting = other.fair_lock(NAME).acquire();
        tokio::spawn(async move { waiting.await.map(drop) });
        let waits = async || {
            let waiters = line.inspect().await?.waiters.unwrap_or(0);
            Ok((waiters > before).then_some(()))
        };
        until("it has a place in the queue", waits).await?;
    }
    Ok(held)
}

fn client_of(owner: &str) -> String {
    owner.split(':').next().unwrap_or_default().to_owned()
}

/// The queue has its order, and nobody overtakes it.
pub(super) async fn is_understood(client: &Client, known: &Known, is_shown: bool) -> Result<()> {
    let line = client.fair_lock(NAME);
    let seen = line.inspect().await?;
    ensure!(seen.is_locked(), "{seen:?}");
    ensure!(seen.waiters == Some(2), "{seen:?}");
    ensure!(
        line.try_acquire().await?.is_none(),
        "the fair lock was granted"
    );
    if is_shown {
        let queue: Vec<String> = seen.queue.iter().map(|it| client_of(it)).collect();
        ensure!(queue == known.waiters, "{queue:?}, not {:?}", known.waiters);
        return Ok(());
    }
    for next in &known.waiters {
        ensure!(line.force_release().await?, "nothing to release by force");
        let seen = line.inspect().await?;
        let holder = seen.holders.first().map(|it| client_of(&it.owner));
        ensure!(holder.as_ref() == Some(next), "{seen:?}, not {next}");
    }
    ensure!(line.force_release().await?, "nothing to release by force");
    Ok(line.acquire().await?.release().await?)
}
