//! What a version leaves in a store, and what another version must find there.

mod counts;
mod election;
mod queue;

use std::any::Any;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidelock::once::{Begun, MarkState, Once, OnceJob, Slot};
use tidelock::{Client, Guard};

/// The lease of a recorded hold, a little shorter than the longest lease that tidelock allows. The hold must not expire
/// before a test reads the recording.
const LONG: Duration = Duration::from_secs(300 * 24 * 3600);
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which kinds of locks a recording of this store contains.
#[derive(Debug, Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a table of abilities, not a state"
)]
pub(crate) struct Has {
    /// Fair locks.
    pub(crate) fair: bool,
    /// It shows who waits for a fair lock. Otherwise each waiter is shown when it has its turn.
    pub(crate) shows_queue: bool,
    /// The store keeps each waiter in a queue, for every kind of lock.
    pub(crate) queues: bool,
    pub(crate) read_write: bool,
    /// Permits, latches and counting semaphores.
    pub(crate) counts: bool,
}

impl Has {
    /// Plain and fenced locks, and marks.
    pub(crate) const LEAST: Self = Self {
        fair: false,
        shows_queue: false,
        queues: false,
        read_write: false,
        counts: false,
    };

    pub(crate) const ALL_SIDES: Self = Self {
        fair: true,
        shows_queue: true,
        read_write: true,
        ..Self::LEAST
    };
}

/// What differs in each recording, and must be found again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The greatest token of the lock that was taken three times.
    pub(crate) token: u64,
    /// The token of the leader.
    pub(crate) term: u64,
    /// The clients that wait for the fair lock in this order. The first of them is also the candidate.
    pub(crate) waiters: Vec<String>,
}

/// Keeps everything as it is while the store is read.
pub(crate) struct Left {
    pub(crate) known: Known,
    /// The machine, as the client names it.
    pub(crate) host: String,
    _kept: Vec<Box<dyn Any + Send>>,
    _clients: Vec<Client>,
}

async fn connected(url: &str) -> Result<Client> {
    let builder = Client::builder().lease(LONG).program("recorder");
    Ok(builder.os_user("somebody").connect(url).await?)
}

/// A client that only waits. It tells nothing of itself, so that the contents are known as soon as it waits.
async fn quiet(url: &str) -> Result<Client> {
    let builder = Client::builder().lease(LONG).publish_process_info(false);
    Ok(builder.connect(url).await?)
}

fn report(client: &Client, day: &str) -> OnceJob {
    client.once("report").slot(Slot::id(day)).keep(LONG)
}

fn backup(client: &Client) -> OnceJob {
    client.once("backup").slot(Slot::id("Monday")).keep(LONG)
}

/// A lock that is held, one side of a read-write lock, a fenced lock that was held and is free, slots that were run with
/// and without success, one that runs, a leader and a candidate, a queue, and what counts.
pub(crate) async fn fill(url: &str, has: Has) -> Result<Left> {
    let client = connected(url).await?;
    if has.queues {
        published(&client).await?;
    }
    let mut kept: Vec<Box<dyn Any + Send>> = Vec::new();
    let held: Guard = client.lock("held").acquire().await?;
    kept.push(Box::new(held));
    if has.read_write {
        let reader = client.read_write_lock("book").read().acquire().await?;
        kept.push(Box::new(reader));
    }
    let mut known = Known::default();
    let counted = client.lock("counted").fenced();
    for _ in 0..3 {
        let guard = counted.acquire().await?;
        known.token = guard.token().get();
        guard.release().await?;
    }
    kept.push(run(&client).await?);
    if has.counts {
        kept.push(Box::new(counts::leave(&client).await?));
    }
    let others = [quiet(url).await?, quiet(url).await?];
    known.waiters = others.iter().map(|it| it.id().to_owned()).collect();
    let leader = election::lead(&client).await?;
    known.term = leader.term();
    kept.push(Box::new(leader));
    if has.fair {
        kept.push(Box::new(queue::leave(&client, &others).await?));
    }
    election::stand(&client, &others[0], has.queues).await?;
    let host = published_host(&client).await?;
    let [second, third] = others;
    Ok(Left {
        known,
        host,
        _kept: kept,
        _clients: vec![client, second, third],
    })
}

/// A slot that was run, one that failed, and one that runs.
async fn run(client: &Client) -> Result<Box<dyn Any + Send>> {
    let ran = report(client, "Monday")
        .run(|_| async { Ok::<_, Infallible>(()) })
        .await?;
    ensure!(ran == Once::Ran(()), "{ran:?}");
    let failed = report(client, "Tuesday")
        .run(|_| async { Err::<(), _>("no paper") })
        .await?;
    ensure!(failed == Once::Failed("no paper"), "{failed:?}");
    match backup(client).begin().await? {
        Begun::Attempt(attempt) => Ok(Box::new(attempt)),
        _ => anyhow::bail!("somebody else makes the backup"),
    }
}

/// A client publishes who it is in the background, and ZooKeeper keeps that in the node of each hold, as it was when the
/// node was made.
async fn published(client: &Client) -> Result<()> {
    let probe = client.lock("probe");
    let told = until("it says who it is", async || {
        let held = probe.acquire().await?;
        let seen = probe.inspect().await?;
        held.release().await?;
        Ok(seen.holders.into_iter().find_map(|it| it.client))
    });
    told.await.map(drop)
}

async fn published_host(client: &Client) -> Result<String> {
    let held = client.lock("held");
    let told = until("it says who holds the lock", async || {
        let seen = held.inspect().await?;
        let holder = seen.holders.first().context("nobody holds it")?;
        Ok(holder.client.as_ref().map(|known| known.host.clone()))
    });
    told.await
}

/// Asks until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Everything that [`fill`] left has the meaning that it had.
pub(crate) async fn is_understood(url: &str, known: &Known, has: Has) -> Result<()> {
    let client = connected(url).await?;
    // First, because those who wait do not count as alive for long.
    if has.fair {
        queue::is_understood(&client, known, has.shows_queue).await?;
    }
    election::is_understood(&client, known).await?;
    let held = client.lock("held");
    ensure!(
        held.try_acquire().await?.is_none(),
        "the held lock was granted"
    );
    ensure!(
        held.inspect().await?.is_locked(),
        "the held lock is shown as free"
    );
    let names = client.list("*").limit(100).await?;
    ensure!(names.contains(&"held".to_owned()), "{names:?}");
    if has.read_write {
        is_read(&client).await?;
    }
    let counted = client.lock("counted").fenced().acquire().await?;
    let (next, last) = (counted.token().get(), known.token);
    ensure!(next > last, "the token {next} after {last}");
    counted.release().await?;
    was_run(&client).await?;
    if has.counts {
        counts::are_understood(&client).await?;
    }
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

async fn was_run(client: &Client) -> Result<()> {
    let monday = report(client, "Monday");
    let again = monday.run(|_| async { Ok::<_, Infallible>(()) }).await?;
    ensure!(
        matches!(again, Once::Done(_)),
        "the slot was run again: {again:?}"
    );
    let marks = monday.history(10).await?;
    let tuesday = marks.iter().find(|mark| mark.slot == "Tuesday");
    let tuesday = tuesday.with_context(|| format!("{marks:?}"))?;
    let said = tuesday.error.as_deref();
    ensure!(
        tuesday.state == MarkState::Failed && said == Some("no paper") && tuesday.attempt == 1,
        "{tuesday:?}"
    );
    let runs = backup(client)
        .run(|_| async { Ok::<_, Infallible>(()) })
        .await?;
    ensure!(
        matches!(runs, Once::Running(Some(_))),
        "the slot that runs was run: {runs:?}"
    );
    Ok(())
}
