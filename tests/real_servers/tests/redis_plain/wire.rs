//! What other clients can see of a plain lock, and how it reacts to values that they have written.

use std::time::{Duration, Instant};

use anyhow::Result;
use real_servers::secs;
use testkit::servers::{Cluster, RedisServer, Sentinels};
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason};

/// Short, so that a test can wait for several, and long enough for the renewals of a busy machine.
fn lease() -> Duration {
    secs(2)
}

async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder()
        .lease(lease())
        .response_timeout(lease() * 2)
        .publish_process_info(false);
    Ok(builder.connect(url).await?)
}

#[tokio::test]
async fn a_plain_lock_is_one_key_with_the_owner_and_a_time_to_live_and_nothing_stays() -> Result<()>
{
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let begun = Instant::now();
    let guard = client.plain_lock("stock").acquire().await?;
    assert_eq!(server.keys()?, ["stock"]);
    let value: String = server.query(&["GET", "stock"])?;
    assert_eq!(value, guard.owner_id());
    let left = Duration::from_millis(server.query(&["PTTL", "stock"])?);
    // The server counts whole milliseconds.
    let least = lease().saturating_sub(begun.elapsed() + Duration::from_millis(1));
    assert!((least..=lease()).contains(&left), "{left:?}");
    guard.release().await?;
    assert!(server.keys()?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_key_of_another_client_is_waited_for_and_left_alone() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.plain_lock("stock");
    // Bytes that are not UTF-8, as rslock writes them.
    let theirs: &[&[u8]] = &[b"SET", b"stock", b"\xff\x00theirs", b"NX", b"PX", b"60000"];
    server.admin(theirs)?;
    assert!(lock.try_acquire().await?.is_none());
    let seen = lock.inspect().await?;
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].owner, "0xff00746865697273");
    let short = AcquireOptions::new().wait(lease());
    assert!(lock.acquire_with(short).await.unwrap_err().is_timeout());
    assert_eq!(server.query::<i64, _>(&["STRLEN", "stock"])?, 8);
    // The foreign lock expires without any message. A waiter looks at least once per lease of its own.
    server.admin(&["PEXPIRE", "stock", "300"])?;
    let within = AcquireOptions::new().wait(lease() * 2);
    lock.acquire_with(within).await?.release().await?;
    Ok(())
}

/// T23: a foreign client has set the key without a time to live. The key excludes us for as long as it exists. A waiter
/// with a timeout gives up in time, and a waiter without one notices the deletion soon, although no message announces
/// it.
#[tokio::test]
async fn t23_a_key_without_an_end_is_looked_at_again() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.plain_lock("stock");
    server.admin(&["SET", "stock", "theirs"])?;
    assert!(lock.try_acquire().await?.is_none());
    let seen = lock.inspect().await?;
    assert!(seen.is_locked() && seen.expires_in.is_none(), "{seen:?}");
    let (begun, limit) = (Instant::now(), secs(2));
    let limited = lock.acquire_with(AcquireOptions::new().wait(limit));
    assert!(limited.await.unwrap_err().is_timeout());
    let took = begun.elapsed();
    assert!(took < limit * 2, "{took:?}");
    let waiting = tokio::spawn(lock.acquire());
    // Longer than one of our leases: the key must not be treated as an expired lock.
    tokio::time::sleep(lease() * 3 / 2).await;
    let left: i64 = server.query(&["PTTL", "stock"])?;
    assert!(left == -1 && !waiting.is_finished(), "touched: {left}");
    server.admin(&["DEL", "stock"])?;
    let guard = tokio::time::timeout(lease(), waiting).await???;
    guard.release().await?;
    assert!(server.keys()?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_key_that_was_deleted_or_taken_over_is_a_loss_and_is_not_touched() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.plain_lock("stock").acquire().await?;
    server.admin(&["SET", "stock", "theirs", "PX", "60000"])?;
    let told = tokio::time::timeout(lease() * 9 / 10, guard.lost()).await?;
    assert_eq!(told, LostReason::Taken);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.query::<String, _>(&["GET", "stock"])?, "theirs");
    let left: i64 = server.query(&["PTTL", "stock"])?;
    assert!(left > 30_000, "nobody but its owner moves its end: {left}");
    server.admin(&["DEL", "stock"])?;
    // This time the release comes before the holder has learned of the loss.
    let guard = client.plain_lock("stock").acquire().await?;
    server.admin(&["SET", "stock", "theirs", "PX", "5000"])?;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.query::<String, _>(&["GET", "stock"])?, "theirs");
    Ok(())
}

#[tokio::test]
async fn the_two_kinds_refuse_each_others_names() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let (plain, redisson) = (client.plain_lock("stock"), client.lock("stock"));
    let held = redisson.acquire().await?;
    for error in [
        plain.try_acquire().await.map(drop).unwrap_err(),
        plain.inspect().await.map(drop).unwrap_err(),
        plain.force_release().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    held.release().await?;
    let held = plain.acquire().await?;
    for error in [
        redisson.try_acquire().await.map(drop).unwrap_err(),
        redisson.inspect().await.map(drop).unwrap_err(),
        redisson.force_release().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    held.release().await?;
    Ok(())
}

#[tokio::test]
async fn tokens_are_counted_beside_the_lock_for_those_who_ask() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.plain_lock("ledger");
    lock.acquire().await?.release().await?;
    for expected in 1..=3_u64 {
        let guard = lock.clone().fenced().acquire().await?;
        assert_eq!(guard.token().get(), expected);
        guard.release().await?;
    }
    assert_eq!(server.keys()?, ["tidelock:token:{ledger}:ledger"]);
    Ok(())
}

#[tokio::test]
async fn only_short_keys_that_end_by_themselves_are_listed() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&format!("{}?locks=plain", server.url())).await?;
    let guard = client.lock("shop:stock").fenced().acquire().await?;
    server.admin(&["SET", "shop:python", "0123456789abcdef", "PX", "9000"])?;
    server.admin(&["SET", "shop:price", "7"])?;
    server.admin(&["SET", "shop:page", &"x".repeat(999), "PX", "9000"])?;
    server.admin(&["HSET", "shop:basket", "a", "1"])?;
    assert_eq!(
        client.list("*").limit(100).await?,
        ["shop:python", "shop:stock"]
    );
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn behind_sentinels_and_in_a_cluster_its_keys_share_a_slot() -> Result<()> {
    let (sentinels, cluster) = (Sentinels::start()?, Cluster::start()?);
    for url in [sentinels.url(), cluster.url()] {
        let client = client(&url).await?;
        let mut held = Vec::new();
        for name in ["stock", "{tag}stock", "ledger:1", "ledger:2", "ledger:3"] {
            let lock = client.plain_lock(name).fenced();
            let guard = lock.acquire().await?;
            assert!(lock.try_acquire().await?.is_none());
            held.push((name, guard));
        }
        // Longer than a lease, so each must have been renewed.
        tokio::time::sleep(lease() * 5 / 4).await;
        for (name, guard) in held {
            assert!(guard.is_held(), "{name} was renewed");
            guard.release().await?;
        }
    }
    Ok(())
}
