//! The number of round trips of each verb, counted on the wire, and the cost of waiting.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use real_servers::requests::{Protocol, RequestCounter};
use real_servers::waiting::{A_MINUTE, cost_next_to_nothing, hand_overs};
use testkit::process::cpu_time;
use testkit::servers::MariaDb;
use tidelock::Client;
use tokio::task::JoinSet;

use super::soon;

/// The limits of a hand-over that polls find: for half of them, and for the fastest quarter.
const MEDIAN: Duration = Duration::from_millis(200);
const QUARTER: Duration = Duration::from_millis(50);

async fn counter(server: &MariaDb) -> Result<RequestCounter> {
    RequestCounter::before(server.addr(), Protocol::Mysql).await
}

async fn client(url: &str) -> Result<Client> {
    Ok(Client::builder()
        .publish_process_info(false)
        .connect(url)
        .await?)
}

/// Each verb of a lock takes one round trip once a connection is open; a look takes two.
#[tokio::test(flavor = "multi_thread")]
async fn each_verb_costs_one_trip() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = counter(&server).await?;
    let a = client(&server.url_at(counter.addr, "tide")).await?;
    let lock = a.lock("stock").fenced();
    // The dropped guard is released on the second connection. After this, both connections are open.
    drop(lock.acquire().await?);
    soon("the lock is free", lock.acquire())
        .await?
        .release()
        .await?;
    counter.spent();
    let guard = lock.acquire().await?;
    assert_eq!(counter.spent(), 1, "acquire");
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(counter.spent(), 1, "try_acquire, refused");
    assert!(lock.inspect().await?.is_locked());
    // The second one asks whether readers or writers wait.
    assert_eq!(counter.spent(), 2, "inspect");
    assert_eq!(a.list("*").limit(10).await?, ["stock"]);
    assert_eq!(counter.spent(), 1, "list");
    guard.extend(Duration::from_secs(60)).await?;
    assert_eq!(counter.spent(), 1, "extend");
    guard.release().await?;
    assert_eq!(counter.spent(), 1, "release");
    let guard = lock.try_acquire().await?.context("it is free")?;
    assert_eq!(counter.spent(), 1, "try_acquire");
    assert!(lock.force_release().await?);
    assert_eq!(counter.spent(), 1, "force_release");
    drop(guard);
    Ok(())
}

/// A hundred locks are renewed with one statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_renewals_cost_one_trip() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = counter(&server).await?;
    let builder = Client::builder()
        .publish_process_info(false)
        .lease(Duration::from_secs(6));
    let a = builder
        .connect(&server.url_at(counter.addr, "tide"))
        .await?;
    let mut guards = Vec::new();
    for n in 0..100 {
        guards.push(a.lock(&format!("stock:{n}")).acquire().await?);
    }
    counter.spent();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Two renewals. The locks were not all acquired at the same instant, and the first renewal also opens the
    // connection.
    let spent = counter.spent();
    assert!((2..=12).contains(&spent), "{spent} trips for 200 renewals");
    assert!(guards.iter().all(tidelock::Guard::is_held));
    Ok(())
}

/// A hundred waiters in one process cost as much as one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_waiters_costs_little() -> Result<()> {
    const SECONDS: u64 = 10;
    let server = MariaDb::start()?;
    let counter = counter(&server).await?;
    let holder = client(&server.url()).await?;
    let held = holder.lock("stock").acquire().await?;
    let crowd = client(&server.url_at(counter.addr, "tide")).await?;
    let mut waiters = JoinSet::new();
    for _ in 0..100 {
        let lock = crowd.lock("stock");
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    counter.spent();
    let before = cpu_time(std::process::id())?;
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let spent = counter.spent();
    println!(
        "{} trips a second, {:?} of a core in {SECONDS} s",
        spent / SECONDS,
        cpu_time(std::process::id())?.saturating_sub(before)
    );
    ensure!(spent <= 30 * SECONDS, "{spent} trips in {SECONDS} s");
    held.release().await?;
    for turn in soon("everybody's turn", waiters.join_all()).await {
        turn?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = counter(&server).await?;
    let held = client(&server.url()).await?.lock("stock").acquire().await?;
    let url = server.url_at(counter.addr, "tide");
    let peer = (env!("CARGO_BIN_EXE_peer"), &*url);
    cost_next_to_nothing(peer, held, A_MINUTE, || Ok(counter.total())).await
}

/// The time from a release in one client to the grant in another one, which polls.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_takes_half_a_pause() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    // Each hold lasts long enough for the poll interval to reach its maximum. The holds differ in length, so the
    // releases fall at different points of that interval.
    let took = hand_overs(&a, &b, 30, |turn| Duration::from_millis(500 + turn * 7)).await?;
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!("hand-over: median {median:?}, worst {worst:?}");
    ensure!(median <= MEDIAN, "{median:?}");
    // That is three of the longest pauses. A quarter of the hand-overs is on time on a busy machine too, and takes less
    // than one pause.
    ensure!(took[took.len() / 4] <= QUARTER, "{took:?}");
    Ok(())
}

/// Waits until this many wait for a fair lock.
async fn queued(server: &MariaDb, count: &str) -> Result<()> {
    let begun = Instant::now();
    while server.query("SELECT COUNT(*) FROM locks.tidelock_waiters")? != count {
        ensure!(begun.elapsed() < Duration::from_secs(30), "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A free fair lock costs one request and one, as a lock without a queue does. A turn of a waiter costs one that
/// confirms the grant and one that releases the lock; the looks of its process come on top, because nobody is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_a_fair_lock_costs_two_trips_and_a_look() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = counter(&server).await?;
    let watched = client(&server.url_at(counter.addr, "tide")).await?;
    let (watched, other) = (
        watched.fair_lock("till"),
        client(&server.url()).await?.fair_lock("till"),
    );
    watched.acquire().await?.release().await?;
    counter.spent();
    let guard = watched.acquire().await?;
    assert_eq!(counter.spent(), 1, "acquire");
    guard.release().await?;
    assert_eq!(counter.spent(), 1, "release");
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        let held = other.acquire().await?;
        let waiting = tokio::spawn(watched.acquire());
        queued(&server, "1").await?;
        counter.spent();
        held.release().await?;
        soon("the turn", waiting).await??.release().await?;
        fewest = fewest.min(counter.spent());
    }
    // How many looks there were before the release depends on the moment.
    ensure!((2..=3).contains(&fewest), "{fewest}");
    Ok(())
}
