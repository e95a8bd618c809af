//! What a version leaves in a store, and what another version must find there.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidelock::once::{Once, OnceJob, Slot};
use tidelock::{Client, Guard};

/// The lease of a recorded hold, a little shorter than the longest lease that tidelock allows. The hold must not expire
/// before a test reads the recording.
const LONG: Duration = Duration::from_secs(300 * 24 * 3600);
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps the locks held while the store is read.
pub(crate) struct Left {
    pub(crate) token: u64,
    /// The machine, as the client names it.
    pub(crate) host: String,
    _held: Vec<Guard>,
    _client: Client,
}

async fn connected(url: &str) -> Result<Client> {
    let builder = Client::builder().lease(LONG).program("recorder");
    Ok(builder.os_user("somebody").connect(url).await?)
}

fn report(client: &Client) -> OnceJob {
    client.once("report").slot(Slot::id("Monday")).keep(LONG)
}

/// A lock that is held, one side of a read-write lock, a fenced lock that was held and is free, a slot that was run.
pub(crate) async fn fill(url: &str, read_write: bool) -> Result<Left> {
    let client = connected(url).await?;
    let mut held = vec![client.lock("held").acquire().await?];
    if read_write {
        held.push(client.read_write_lock("book").read().acquire().await?);
    }
    let counted = client.lock("counted").fenced();
    let mut token = 0;
    for _ in 0..3 {
        let guard = counted.acquire().await?;
        token = guard.token().get();
        guard.release().await?;
    }
    let ran = report(&client)
        .run(|_| async { Ok::<_, Infallible>(()) })
        .await?;
    ensure!(ran == Once::Ran(()), "{ran:?}");
    let host = published_host(&client).await?;
    Ok(Left {
        token,
        host,
        _held: held,
        _client: client,
    })
}

/// A client publishes who it is in the background.
async fn published_host(client: &Client) -> Result<String> {
    let begun = Instant::now();
    loop {
        let seen = client.lock("held").inspect().await?;
        let holder = seen.holders.first().context("nobody holds it")?;
        if let Some(known) = &holder.client {
            return Ok(known.host.clone());
        }
        ensure!(begun.elapsed() < PATIENCE, "it does not say who holds it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Everything that [`fill`] left has the meaning that it had.
pub(crate) async fn is_understood(url: &str, token: u64, read_write: bool) -> Result<()> {
    let client = connected(url).await?;
    let held = client.lock("held");
    ensure!(
        held.try_acquire().await?.is_none(),
        "the held lock was granted"
    );
    ensure!(
        held.inspect().await?.is_locked(),
        "the held lock is shown as free"
    );
    let names = client.list("*").limit(10).await?;
    ensure!(names.contains(&"held".to_owned()), "{names:?}");
    if read_write {
        is_read(&client).await?;
    }
    let counted = client.lock("counted").fenced().acquire().await?;
    let next = counted.token().get();
    ensure!(next > token, "the token {next} after {token}");
    counted.release().await?;
    let again = report(&client)
        .run(|_| async { Ok::<_, Infallible>(()) })
        .await?;
    ensure!(
        matches!(again, Once::Done(_)),
        "the slot was run again: {again:?}"
    );
    ensure!(held.force_release().await?, "nothing to release by force");
    held.acquire().await?.release().await?;
    Ok(())
}

async fn is_read(client: &Client) -> Result<()> {
    let book = client.read_write_lock("book");
    ensure!(
        book.write().try_acquire().await?.is_none(),
        "a writer beside a reader"
    );
    let reader = book.read().try_acquire().await?;
    Ok(reader.context("no second reader")?.release().await?)
}
