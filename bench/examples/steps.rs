//! Scale tests in steps of ten, as far as one machine goes: locks held by one client, tasks that wait, and clients that
//! all wait for one name as the same number of processes would. For docs/scale.md.
//!
//! `cargo run --profile bench -p bench --example steps`

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench::books::Books;
use testkit::process::{cpu_time, rss_bytes};
use testkit::servers::RedisServer;
use tidelock::{Client, Guard};
use tokio::task::JoinSet;

/// The renewal period of the default lease.
const PERIOD: Duration = Duration::from_secs(10);

/// Bounds the requests in flight during setup, which is not measured.
const AT_ONCE: usize = 256;

#[tokio::main]
async fn main() -> Result<()> {
    println!(
        "| locks held | taken in s | client memory each, bytes | server memory each, bytes | requests a period | client CPU, % | server CPU, % | lost |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for locks in [10_000, 100_000, 1_000_000] {
        held(locks).await?;
    }
    println!("\n| tasks waiting, on 1,000 names | idle CPU, % | served in s |");
    println!("| ---: | ---: | ---: |");
    for tasks in [10_000, 100_000, 1_000_000] {
        waiting(tasks).await?;
    }
    println!(
        "\n| clients waiting for one name | connections | client memory each, KiB | requests a turn | bytes out a turn | server CPU a turn, µs | turns/s |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for clients in [10, 100, 1_000] {
        fleet(clients).await?;
    }
    Ok(())
}

async fn connect(server: &RedisServer) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false);
    Ok(builder.connect(&server.url()).await?)
}

/// Acquires this many names and returns their guards.
async fn take(client: &Client, names: u32) -> Result<Vec<Guard>> {
    let (mut held, mut tasks) = (Vec::new(), JoinSet::new());
    for number in 0..names {
        let lock = client.lock(&format!("shop:stock:{number}"));
        tasks.spawn(async move { lock.acquire().await });
        if tasks.len() == AT_ONCE
            && let Some(guard) = tasks.join_next().await
        {
            held.push(guard??);
        }
    }
    while let Some(guard) = tasks.join_next().await {
        held.push(guard??);
    }
    Ok(held)
}

fn memory() -> Result<f64> {
    Ok(f64::from(u32::try_from(rss_bytes(std::process::id())? >> 10)?) * 1024.0)
}

fn busy() -> Result<Duration> {
    cpu_time(std::process::id())
}

fn busy_since(before: Duration) -> Result<Duration> {
    Ok(busy()?.saturating_sub(before))
}

fn percent(busy: Duration, of: Duration) -> f64 {
    busy.as_secs_f64() / of.as_secs_f64() * 100.0
}

async fn held(locks: u32) -> Result<()> {
    let server = RedisServer::start()?;
    let client = connect(&server).await?;
    let each = f64::from(locks);
    let (before, empty, began) = (Books::read(&server)?, memory()?, Instant::now());
    let guards = take(&client, locks).await?;
    let (took, grown) = (began.elapsed(), memory()? - empty);
    let full = Books::read(&server)?;
    // The first renewals start one period after the first acquisition. We let them pass and then measure two whole
    // periods.
    tokio::time::sleep(PERIOD).await;
    let (start, cpu, from) = (Books::read(&server)?, busy()?, Instant::now());
    tokio::time::sleep(PERIOD * 2).await;
    let (end, cpu, time) = (Books::read(&server)?, busy_since(cpu)?, from.elapsed());
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    println!(
        "| {locks} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {lost} |",
        took.as_secs_f64(),
        grown / each,
        (full.memory - before.memory) / each,
        (end.requests - start.requests) / 2.0,
        percent(cpu, time),
        (end.cpu_us - start.cpu_us) / time.as_secs_f64() / 1e4,
    );
    client.close(Duration::ZERO).await;
    Ok(())
}

async fn waiting(tasks: u32) -> Result<()> {
    const NAMES: u32 = 1_000;
    let server = RedisServer::start()?;
    let (holder, client) = (connect(&server).await?, connect(&server).await?);
    let guards = take(&holder, NAMES).await?;
    let mut crowd = JoinSet::new();
    for task in 0..tasks {
        let lock = client.lock(&format!("shop:stock:{}", task % NAMES));
        crowd.spawn(async move { lock.acquire().await?.release().await });
        if task % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    until(&server, NAMES, 1).await?;
    let (cpu, from) = (busy()?, Instant::now());
    tokio::time::sleep(PERIOD / 2).await;
    let (cpu, time) = (busy_since(cpu)?, from.elapsed());
    let began = Instant::now();
    drop(guards);
    while let Some(served) = crowd.join_next().await {
        served??;
    }
    println!(
        "| {tasks} | {:.1} | {:.1} |",
        percent(cpu, time),
        began.elapsed().as_secs_f64(),
    );
    client.close(Duration::ZERO).await;
    holder.close(Duration::ZERO).await;
    Ok(())
}

/// Each client has its own connections and its own thread, like a client that is alone in its process.
async fn fleet(clients: u32) -> Result<()> {
    let server = RedisServer::start()?;
    let holder = connect(&server).await?;
    let guards = take(&holder, 1).await?;
    let empty = memory()?;
    let mut fleet = Vec::new();
    for _ in 0..clients {
        fleet.push(connect(&server).await?);
    }
    let mut crowd = JoinSet::new();
    for client in &fleet {
        let lock = client.lock("shop:stock:0");
        crowd.spawn(async move { lock.acquire().await?.release().await });
    }
    until(&server, 1, clients.into()).await?;
    let grown = memory()? - empty;
    let connections: u32 = server.info("connected_clients")?.parse()?;
    let (before, began) = (Books::read(&server)?, Instant::now());
    drop(guards);
    while let Some(served) = crowd.join_next().await {
        served??;
    }
    let (after, took) = (Books::read(&server)?, began.elapsed());
    let each = f64::from(clients);
    println!(
        "| {clients} | {connections} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} |",
        grown / each / 1024.0,
        (after.requests - before.requests) / each,
        (after.went - before.went) / each,
        (after.cpu_us - before.cpu_us) / each,
        each / took.as_secs_f64(),
    );
    for client in fleet {
        client.close(Duration::ZERO).await;
    }
    holder.close(Duration::ZERO).await;
    Ok(())
}

/// Waits until at least `listeners` connections subscribe to each of the names and this process is idle.
async fn until(server: &RedisServer, names: u32, listeners: i64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let channels =
        (0..names).map(|number| format!("redisson_lock__channel:{{shop:stock:{number}}}"));
    let channels: Vec<String> = channels.collect();
    let mut ask = vec!["PUBSUB", "NUMSUB"];
    ask.extend(channels.iter().map(String::as_str));
    loop {
        ensure!(Instant::now() < deadline, "they do not all wait");
        let before = busy()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let heard: Vec<redis::Value> = server.query(&ask)?;
        let counts = heard
            .into_iter()
            .skip(1)
            .step_by(2)
            .map(redis::from_redis_value::<i64>);
        let counts: Vec<i64> = counts.collect::<Result<_, _>>()?;
        let all_listen = counts.iter().all(|count| *count >= listeners);
        if all_listen && busy_since(before)? < Duration::from_millis(50) {
            return Ok(());
        }
    }
}
