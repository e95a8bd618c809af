//! The cost of waiting, measured in the same way on each store.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::{Spawned, cpu_time};
use tidelock::{Client, Guard};

/// The time over which waiters are measured in every test run.
pub const A_WHILE: Duration = Duration::from_secs(6);

/// The time over which they are measured in the runs that are too slow for every change.
pub const A_MINUTE: Duration = Duration::from_secs(60);

const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The part of a core that a hundred waiters may use: a fiftieth. Most runs are unoptimised and need several times as
/// much as a user's program, and more on a slow day; for those the limit is doubled.
const BUSY: f64 = if cfg!(debug_assertions) { 0.04 } else { 0.02 };

/// A limit for a turn, which is much faster unless it hangs.
const SOON: Duration = Duration::from_secs(20);

/// Measures hand-overs between two clients: the time from a release in `one` until a task of `other` has the lock. The
/// task of turn `n` waits for `waited(n)` before the release. Returns the times of all turns, sorted.
///
/// # Errors
/// Passes on the errors of the locks, and fails if a waiter does not get the lock.
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

/// Checks that a release wakes a waiter, and prints how long that takes. The clients have the default lease of 30 s: a
/// waiter that misses the message of a release looks again only after seconds.
///
/// # Errors
/// Fails if the median hand-over takes a thirtieth of the lease, or if messages ended no more than half of the waits,
/// and passes on the errors of [`hand_overs`].
pub async fn are_woken(one: &Client, other: &Client) -> Result<()> {
    const TURNS: u64 = 40;
    let before = other.stats().woken_by_message;
    let took = hand_overs(one, other, TURNS, |_| Duration::from_millis(100)).await?;
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    println!("hand-over: median {median:?}, slowest {slowest:?}");
    ensure!(median <= DEFAULT_LEASE / 30, "{took:?}");
    // A waiter on PostgreSQL that knows that it hears nothing looks every 50 ms, so its hand-overs are fast too.
    let woken = other.stats().woken_by_message - before;
    ensure!(woken > TURNS / 2, "{woken} of {TURNS} by a message");
    Ok(())
}

/// A hundred tasks of the program `peer`, alone in their process, wait for a held name. During `window` they may use
/// next to nothing of a core and send few requests in all, where the server counts them (`asked`). After the release
/// one of them must get the lock.
///
/// # Errors
/// Fails if they use more, or if the process ends.
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
    // By then every task has sent its first request.
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
