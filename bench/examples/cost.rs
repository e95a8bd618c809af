//! Measures what one lock, one renewal and one waiter cost the server: requests, bytes and processor time. The figures
//! are differences of the server's own `INFO` counters. For docs/scale.md.
//!
//! `cargo run --profile bench -p bench --example cost`

use std::time::Duration;

use anyhow::Result;
use bench::books::Books;
use testkit::servers::RedisServer;
use tidelock::{Client, HandOff};

/// Prints a table row: the cost per operation.
fn show(what: &str, times: u32, before: &Books, after: &Books) {
    let each = |after: f64, before: f64| (after - before) / f64::from(times);
    println!(
        "| {what} | {:.2} | {:.0} | {:.0} | {:.1} |",
        each(after.requests, before.requests),
        each(after.came, before.came),
        each(after.went, before.went),
        each(after.cpu_us, before.cpu_us),
    );
}

const NAME: &str = "shop:stock:4711";

#[tokio::main]
async fn main() -> Result<()> {
    let server = RedisServer::start()?;
    println!("| each | requests | bytes in | bytes out | server CPU µs |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    pairs(&server).await?;
    renewals(&server).await?;
    turns(&server).await
}

async fn pairs(server: &RedisServer) -> Result<()> {
    const TIMES: u32 = 20_000;
    let client = Client::builder()
        .publish_process_info(false)
        .connect(&server.url())
        .await?;
    let lock = client.lock(NAME);
    lock.acquire().await?.release().await?;
    let before = Books::read(server)?;
    for _ in 0..TIMES {
        lock.acquire().await?.release().await?;
    }
    show("acquire and release", TIMES, &before, &Books::read(server)?);
    let fenced = lock.fenced();
    fenced.acquire().await?.release().await?;
    let before = Books::read(server)?;
    for _ in 0..TIMES {
        fenced.acquire().await?.release().await?;
    }
    show("the same, fenced", TIMES, &before, &Books::read(server)?);
    client.close(Duration::ZERO).await;
    Ok(())
}

/// Holds locks for a few renewal periods.
async fn renewals(server: &RedisServer) -> Result<()> {
    const LOCKS: u32 = 10_000;
    const PERIODS: u32 = 4;
    let lease = Duration::from_secs(6);
    let builder = Client::builder().publish_process_info(false).lease(lease);
    let client = builder.connect(&server.url()).await?;
    let mut held = Vec::new();
    for number in 0..LOCKS {
        held.push(client.lock(&format!("{NAME}:{number}")).acquire().await?);
    }
    // We measure from the middle between two renewals to the middle between two later ones, so that the interval
    // contains whole periods only.
    tokio::time::sleep(lease / 2).await;
    let before = Books::read(server)?;
    tokio::time::sleep(lease / 3 * PERIODS).await;
    show(
        "renewal of one lock among 10,000",
        LOCKS * PERIODS,
        &before,
        &Books::read(server)?,
    );
    client.close(Duration::ZERO).await;
    Ok(())
}

/// Two clients take one lock in turn, so each acquisition waits. The cost includes the wake message and the attempts
/// that find the lock held.
async fn turns(server: &RedisServer) -> Result<()> {
    const TIMES: u32 = 2_000;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let builder = Client::builder()
            .publish_process_info(false)
            .hand_off(HandOff::OFF);
        let lock = builder.connect(&server.url()).await?.lock(NAME);
        tasks.push(lock);
    }
    let before = Books::read(server)?;
    let both = tasks.into_iter().map(|lock| {
        tokio::spawn(async move {
            for _ in 0..TIMES {
                let held = lock.acquire().await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                held.release().await?;
            }
            tidelock::Result::Ok(())
        })
    });
    for done in both.collect::<Vec<tokio::task::JoinHandle<tidelock::Result<()>>>>() {
        done.await??;
    }
    show(
        "turn of a lock that another process waits for",
        2 * TIMES,
        &before,
        &Books::read(server)?,
    );
    Ok(())
}
