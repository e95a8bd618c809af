//! What it costs to wait, measured the same way on each store.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::{Spawned, cpu_time};
use tidelock::{Client, Guard};

/// For how long waiters are watched, where that is done for every change.
pub const A_WHILE: Duration = Duration::from_secs(6);

/// For how long they are watched by what is too long for every change.
pub const A_MINUTE: Duration = Duration::from_secs(60);

/// The part of a core that a hundred waiters may take: a fiftieth. Unoptimised, as they are in most runs, they need several
/// times as much as in a user's program, on a slow day more than that; then it is twice as much.
const BUSY: f64 = if cfg!(debug_assertions) { 0.04 } else { 0.02 };

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

/// The median hand-over is sooner than it would be by polling, and is printed.
///
/// # Errors
/// When it is later, and those of [`hand_overs`].
pub async fn are_woken(one: &Client, other: &Client) -> Result<()> {
    const TURNS: u64 = 40;
    let took = hand_overs(one, other, TURNS, |_| Duration::from_millis(100)).await?;
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    println!("hand-over: median {median:?}, slowest {slowest:?}");
    // With nobody else on the machine it takes a tenth of that.
    ensure!(median <= Duration::from_millis(50), "{took:?}");
    Ok(())
}

/// A hundred tasks of the program `peer`, in a process that does nothing else, wait for a name that is held: within that time they take next to
/// nothing of a core, and few questions in all, where the server counts them; and when it is released one of them has it.
///
/// # Errors
/// When they take more, and when the process is gone.
pub async fn cost_next_to_nothing(
    (program, url): (&str, &str),
    held: Guard,
    window: Duration,
    mut asked: impl FnMut() -> Result<u64>,
) -> Result<()> {
    let mut command = Command::new(program);
    command.args([url, "30000"]);
    let mut peer = Spawned::start(command)?;
    let name = held.name().to_owned();
    peer.wait_line("ready", SOON)?;
    for _ in 0..100 {
        peer.write_line(&format!("acquire {name}"))?;
    }
    // All have asked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, earlier) = (cpu_time(peer.pid())?, asked()?);
    tokio::time::sleep(window).await;
    let busy = cpu_time(peer.pid())?.saturating_sub(before);
    let questions = asked()? - earlier;
    println!("{name}: 100 waiters for {window:?}: {busy:?} of a core, {questions} questions");
    ensure!(busy <= window.mul_f64(BUSY), "{busy:?}");
    ensure!(
        questions <= 200 * window.as_secs(),
        "{questions} questions in {window:?}"
    );
    held.release().await?;
    peer.wait_line(&format!("acquired {name}"), SOON)?;
    Ok(())
}
