//! The number of requests that a plain lock costs, and the number that waiting costs.

use std::time::Duration;

use anyhow::Result;
use real_servers::waiting::{A_MINUTE, cost_next_to_nothing};
use testkit::proxy::Proxy;
use testkit::servers::RedisServer;
use tidelock::Client;

async fn client(proxy: &Proxy, lease: Duration) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false).lease(lease);
    let client = builder.connect(&proxy.url()).await?;
    let warm = client.plain_lock("warm");
    // Opens both connections and loads the scripts first, so that only the steady-state cost is counted.
    let guard = warm.acquire().await?;
    guard.extend(lease).await?;
    drop(guard);
    warm.acquire().await?.release().await?;
    proxy.reset_counts();
    Ok(client)
}

fn spent(proxy: &Proxy) -> u64 {
    let spent = proxy.counts().values().sum();
    proxy.reset_counts();
    spent
}

#[tokio::test]
async fn the_requests_of_plain_locks() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy, Duration::from_secs(30)).await?;
    let lock = client.plain_lock("stock");
    let guard = lock.acquire().await?;
    assert_eq!(spent(&proxy), 1);
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(spent(&proxy), 1);
    guard.extend(Duration::from_secs(60)).await?;
    assert_eq!(spent(&proxy), 1);
    guard.release().await?;
    assert_eq!(spent(&proxy), 1);
    Ok(())
}

/// A hundred waiters of one process send as many requests as one waiter.
#[tokio::test]
async fn a_hundred_waiters_look_as_one() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy, Duration::from_secs(30)).await?;
    let other = Client::connect(&server.url()).await?;
    let held = other.plain_lock("stock").acquire().await?;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..100 {
        waiters.spawn(client.plain_lock("stock").acquire());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looks = spent(&proxy) / 3;
    println!("{looks} looks a second");
    assert!((5..=60).contains(&looks), "{looks} looks a second");
    waiters.shutdown().await;
    held.release().await?;
    Ok(())
}

async fn a_hundred_waiters_for_a_minute(events: &str) -> Result<()> {
    let server = RedisServer::builder().args(["--notify-keyspace-events", events]);
    let server = server.start()?;
    let held = Client::connect(&server.url()).await?;
    let held = held.plain_lock("stock").acquire().await?;
    let asked = || Ok(server.info("total_commands_processed")?.parse()?);
    let url = format!("{}?locks=plain", server.url());
    cost_next_to_nothing((env!("CARGO_BIN_EXE_peer"), &url), held, A_MINUTE, asked).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    a_hundred_waiters_for_a_minute("").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn with_events_a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    a_hundred_waiters_for_a_minute("Kgx").await
}
