//! What a lock costs in trips, counted by a proxy.

use std::time::Duration;

use anyhow::Result;
use testkit::proxy::Proxy;
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client};

use crate::{client, eventually, listeners};

fn held_for_long() -> AcquireOptions {
    AcquireOptions::new().expires_after(Duration::from_secs(60))
}

async fn scripts(proxy: &Proxy, count: u64) -> Result<()> {
    eventually("scripts sent", Duration::from_secs(1), || {
        Ok(proxy.count("EVALSHA") == count)
    })
    .await
}

async fn warm(url: &str) -> Result<Client> {
    let client = Client::builder().details(false).connect(url).await?;
    client.lock("warm").acquire().await?.release().await?;
    Ok(client)
}

#[tokio::test]
async fn an_uncontended_round_costs_one_trip_and_one() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = warm(&proxy.url()).await?;
    proxy.reset_counts();
    let guard = client.lock("a").acquire().await?;
    assert_eq!((proxy.count("EVALSHA"), proxy.total()), (1, 1));
    guard.release().await?;
    assert_eq!((proxy.count("EVALSHA"), proxy.total()), (2, 2));
    let guard = client.lock("a").try_acquire().await?;
    assert_eq!(proxy.total(), 3);
    assert!(guard.is_some());
    Ok(())
}

#[tokio::test]
async fn waiting_costs_two_and_a_subscription_for_the_first_and_one_for_the_next() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let holder = client(&server.url()).await?;
    let waiting = warm(&proxy.url()).await?;
    let guard = holder.lock("a").acquire_with(held_for_long()).await?;
    proxy.reset_counts();
    let first = tokio::spawn(waiting.lock("a").acquire_with(held_for_long()));
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    scripts(&proxy, 2).await?;
    assert_eq!(proxy.count("SUBSCRIBE"), 1);
    let second = tokio::spawn(waiting.lock("a").acquire_with(held_for_long()));
    scripts(&proxy, 3).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((proxy.count("EVALSHA"), proxy.count("SUBSCRIBE")), (3, 1));

    guard.release().await?;
    let guard = first.await??;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(proxy.count("EVALSHA"), 4, "one asks, the other sleeps on");
    guard.release().await?;
    second.await??.release().await?;
    assert_eq!((proxy.count("EVALSHA"), proxy.count("SUBSCRIBE")), (7, 1));
    Ok(())
}

#[tokio::test]
async fn a_batch_of_renewals_costs_one_trip() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = Client::builder()
        .details(false)
        .lease(Duration::from_millis(1500))
        .connect(&proxy.url())
        .await?;
    // All at once, so that they fall due together.
    let all = (0..100).map(|n| client.lock(&format!("lock {n}")).acquire());
    let guards = futures_util::future::try_join_all(all).await?;
    // The first period gathers them into one batch.
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let renewals = proxy.count("EVALSHA");
    assert!(
        (2..=4).contains(&renewals),
        "{renewals} scripts for 100 locks in three periods"
    );
    assert!(guards.iter().all(tidelock::Guard::is_held));
    Ok(())
}
