//! What other clients can see, byte for byte.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::servers::RedisServer;
use tidelock::redis::Topology;
use tidelock::{AcquireOptions, Client, ErrorKind};

use crate::rights::calls;
use crate::{channels, client, eventually, lease, listeners};

#[tokio::test]
async fn a_lock_is_a_hash_with_one_field_and_a_time_to_live_and_nothing_stays() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let begun = Instant::now();
    let guard = client.lock("stock").acquire().await?;
    assert_eq!(server.keys()?, ["stock"]);
    let fields: BTreeMap<String, String> = server.query(&["HGETALL", "stock"])?;
    assert_eq!(fields, BTreeMap::from([(guard.owner_id(), "1".to_owned())]));
    let left = Duration::from_millis(server.query(&["PTTL", "stock"])?);
    // The server counts whole milliseconds.
    let least = lease().saturating_sub(begun.elapsed() + Duration::from_millis(1));
    assert!((least..=lease()).contains(&left), "{left:?}");
    guard.release().await?;
    assert!(server.keys()?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_fenced_lock_counts_where_redisson_counts() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    for (name, key) in [
        ("ledger", "redisson_lock_token:{ledger}"),
        ("{a}:b", "redisson_lock_token:{a}:b"),
    ] {
        for expected in 1..=3_u64 {
            let guard = client.lock(name).fenced().acquire().await?;
            assert_eq!(guard.token().get(), expected);
            assert_eq!(server.query::<u64, _>(&["GET", key])?, expected);
            guard.release().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_client_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let (one, two) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let options = AcquireOptions::new().expires_after(Duration::from_secs(60));
    let guard = one.lock("a").acquire_with(options).await?;
    let before = calls(&server, "evalsha", "calls")?;
    let waiter = tokio::spawn(two.lock("a").acquire());
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    // The waiter makes another attempt after its subscription. The release must not come before that attempt.
    eventually("it waits", Duration::from_secs(8), || {
        Ok(calls(&server, "evalsha", "calls")? >= before + 2)
    })
    .await?;
    guard.release().await?;
    // A waiter that sleeps through the release asks for itself after its own lease of 30 s.
    let guard = tokio::time::timeout(Duration::from_secs(10), waiter).await???;
    // One that knows that it hears nothing polls every second, which is in time too.
    let stats = two.stats();
    assert!(
        stats.woken_by_message > 0 || stats.woken_by_timer == 0,
        "only its poll found the lock: {stats:?}"
    );
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_subscription_goes_a_while_after_its_last_waiter() -> Result<()> {
    let server = RedisServer::start()?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = one.lock("a").acquire().await?;
    let options = AcquireOptions::new().wait(lease());
    let error = two.lock("a").acquire_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let mut open = channels(&server)?;
    open.sort();
    assert_eq!(open, ["redisson_lock__channel:{a}", "tidelock:waiting:{a}"]);
    eventually("no channel is left", Duration::from_secs(8), || {
        Ok(channels(&server)?.is_empty())
    })
    .await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_foreign_holder_is_respected_and_its_counts_are_shown() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let java = "0123abcd-0123-4123-8123-0123456789ab:7";
    server.admin(&["HSET", "a", java, "3"])?;
    server.admin(&["PEXPIRE", "a", "60000"])?;
    let lock = client.lock("a");
    assert!(lock.try_acquire().await?.is_none());
    let snapshot = lock.inspect().await?;
    assert_eq!(
        (
            snapshot.holders[0].owner.as_str(),
            snapshot.holders[0].holds
        ),
        (java, 3)
    );
    assert_eq!(client.list("*").limit(10).await?, ["a"]);
    // The foreign lease has at most 600 ms left, so the wait ends without any release.
    server.admin(&["PEXPIRE", "a", "600"])?;
    let guard = tokio::time::timeout(lease() * 2, lock.acquire()).await??;
    assert!(lock.force_release().await?);
    assert!(!lock.force_release().await?);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_no_plain_lock_is_refused_and_left_as_it_is() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    server.admin(&["SET", "text", "x"])?;
    server.admin(&["HSET", "both", "mode", "read", "u:1", "1"])?;
    server.admin(&["SET", "redisson_lock_token:{odd}", "x"])?;
    for name in ["text", "both"] {
        let lock = client.lock(name);
        assert_eq!(
            lock.try_acquire().await.unwrap_err().kind(),
            ErrorKind::WrongType,
            "{name}"
        );
        assert_eq!(
            lock.force_release().await.unwrap_err().kind(),
            ErrorKind::WrongType,
            "{name}"
        );
    }
    let error = client.lock("odd").fenced().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(
        server.keys()?,
        ["both", "redisson_lock_token:{odd}", "text"]
    );
    assert_eq!(server.query::<String, _>(&["GET", "text"])?, "x");
    Ok(())
}

#[tokio::test]
async fn a_key_without_a_limit_is_waited_for_with_a_cap() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    // Without `PEXPIRE` the key has no time to live.
    server.admin(&["HSET", "a", "0123abcd-0123-4123-8123-0123456789ab:7", "1"])?;
    let waiter = tokio::spawn(client.lock("a").acquire());
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    server.admin(&["DEL", "a"])?; // nobody publishes a wake
    let guard = tokio::time::timeout(lease() * 2, waiter).await???;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn details_are_left_for_operators() -> Result<()> {
    let server = RedisServer::start()?;
    let client = tidelock::Client::connect(&server.url()).await?;
    let key = format!("tidelock:client:{}", client.id());
    eventually("details", Duration::from_secs(8), || {
        Ok(server.keys()?.contains(&key))
    })
    .await?;
    assert!(server.query::<i64, _>(&["PTTL", &key])? > 0);
    let _guard = client.lock("a").acquire().await?;
    let holder = client.lock("a").inspect().await?.holders.remove(0);
    let details = holder.client.expect("this process has left its details");
    assert_eq!(details.pid, std::process::id());
    assert_eq!(
        client.list("*").limit(10).await?,
        ["a"],
        "keys of our own are no locks"
    );
    Ok(())
}

#[tokio::test]
async fn databases_and_sockets_are_reached_by_url() -> Result<()> {
    let server = RedisServer::start()?;
    for url in [
        format!("{}/3", server.url()),
        format!("{}?db=3", server.unix_url()),
    ] {
        let client = client(&url).await?;
        let guard = client.lock("a").acquire().await?;
        assert!(server.keys()?.is_empty(), "not in database 0");
        let info: String = server.query(&["INFO", "keyspace"])?;
        assert!(info.contains("db3:keys=1"), "{info}");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    let error = client(&format!("{}/99", server.url())).await.unwrap_err();
    assert!(error.to_string().contains("database"), "{error}");
    Ok(())
}

#[test]
fn servers_named_in_parts_are_reached_without_async_too() -> Result<()> {
    let server = RedisServer::start()?;
    let parts = Topology::one(server.addr().to_string());
    let client = tidelock::blocking::Client::from_async(parts.connect(Client::builder()))?;
    let guard = client.lock("stock").acquire()?;
    let fields: BTreeMap<String, String> = server.query(&["HGETALL", "stock"])?;
    assert_eq!(fields, BTreeMap::from([(guard.owner_id(), "1".to_owned())]));
    guard.release()?;
    Ok(())
}
