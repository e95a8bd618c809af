//! Lost answers, lost connections, lost scripts, lost data.

use std::time::Duration;

use anyhow::Result;
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, ErrorKind, FencingToken, LostReason};

use crate::{client, eventually, listeners};

#[tokio::test]
async fn renewal_keeps_a_lock_far_beyond_its_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_held());
    assert!(server.query::<i64, _>(&["PTTL", "a"])? > 500);
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn t20_a_key_that_is_gone_is_told_at_the_next_renewal() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let (gone, kept) = (
        client.lock("a").acquire().await?,
        client.lock("b").acquire().await?,
    );
    server.admin(&["DEL", "a"])?;
    let reason = tokio::time::timeout(Duration::from_millis(700), gone.lost()).await?;
    assert_eq!(reason, LostReason::Taken);
    assert!(kept.is_held());
    assert_eq!(gone.release().await.unwrap_err().kind(), ErrorKind::Lost);
    kept.release().await?;
    Ok(())
}

#[tokio::test]
async fn t21_a_bad_key_in_a_batch_harms_no_other() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let (bad, good) = (
        client.lock("bad").acquire().await?,
        client.lock("good").acquire().await?,
    );
    server.admin(&["SET", "bad", "x"])?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(good.is_held());
    assert!(!bad.is_held());
    assert_eq!(server.query::<String, _>(&["GET", "bad"])?, "x");
    good.release().await?;
    Ok(())
}

#[tokio::test]
async fn t19_a_server_that_has_forgotten_the_scripts_is_given_them_again() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    for _ in 0..10 {
        server.admin(&["SCRIPT", "FLUSH"])?;
        tokio::time::sleep(Duration::from_millis(150)).await;
        client.lock("b").acquire().await?.release().await?;
    }
    assert!(guard.is_held());
    server.admin(&["SCRIPT", "FLUSH"])?;
    guard.release().await?;
    assert!(server.keys()?.is_empty());
    Ok(())
}

#[tokio::test]
async fn t10_an_acquire_whose_answer_was_lost_counts_once_and_is_freed_once() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy.url()).await?;
    client.lock("warm").acquire().await?.release().await?;
    let lost = proxy.on(When::command("EVALSHA", "a"), Then::CutReply);
    let guard = client.fenced_lock("a").acquire().await?;
    assert_eq!(lost.count(), 1);
    assert_eq!(
        guard.token().map(FencingToken::get),
        Some(1),
        "the repeat got the same token"
    );
    assert_eq!(server.query::<i64, _>(&["HLEN", "a"])?, 1);
    assert_eq!(
        server.query::<i64, _>(&["HGET", "a", &guard.owner_id()])?,
        1
    );
    guard.release().await?;
    assert_eq!(server.query::<i64, _>(&["EXISTS", "a"])?, 0);
    Ok(())
}

#[tokio::test]
async fn t11_a_release_whose_answer_was_lost_is_a_release() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy.url()).await?;
    let guard = client.lock("a").acquire().await?;
    let other = client.lock("a");
    let lost = proxy.on(When::any_request(), Then::CutReply);
    guard.release().await?;
    assert_eq!(lost.count(), 1);
    other.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn t10_an_acquire_that_arrives_after_its_withdrawal_takes_no_effect() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy.url()).await?;
    client.lock("warm").acquire().await?.release().await?;
    let held_back = proxy.on(When::command("EVALSHA", "a"), Then::Hold);
    let error = client
        .lock("a")
        .acquire_with(AcquireOptions::new().wait(Duration::from_millis(100)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::OutcomeUnknown
        ),
        "{error}"
    );
    eventually("a tombstone", Duration::from_secs(3), || {
        Ok(server
            .keys()?
            .iter()
            .any(|key| key.starts_with("tidelock:withdrawn:{a}:")))
    })
    .await?;
    held_back.release();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        server.query::<i64, _>(&["EXISTS", "a"])?,
        0,
        "the late request took the lock"
    );
    Ok(())
}

#[tokio::test]
async fn t13_connections_that_are_killed_again_and_again_cost_no_lock() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("kept").acquire().await?;
    let mut rounds = 0;
    for _ in 0..40 {
        server.admin(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        if client.lock("a").acquire().await?.release().await.is_ok() {
            rounds += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(rounds > 30, "{rounds}");
    assert!(guard.is_held());
    guard.release().await?;
    assert!(
        server
            .keys()?
            .iter()
            .all(|key| key.starts_with("tidelock:")),
        "{:?}",
        server.keys()?
    );
    Ok(())
}

#[tokio::test]
async fn t14_a_killed_subscription_is_made_anew_and_counts_as_a_wake_up() -> Result<()> {
    let server = RedisServer::start()?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let long = || AcquireOptions::new().expires_after(Duration::from_secs(60));
    let guard = one.lock("a").acquire_with(long()).await?;
    let waiter = tokio::spawn(two.lock("a").acquire());
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    server.admin(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    server.admin(&["DEL", "a"])?; // the message of this release is lost with the connection
    let second = tokio::time::timeout(Duration::from_millis(500), waiter).await???;
    drop(guard);
    second.release().await?;
    Ok(())
}

#[tokio::test]
async fn t24_a_full_server_refuses_an_acquire_and_still_takes_a_release() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    let options = AcquireOptions::new().wait(Duration::from_millis(300));
    let error = client.lock("b").acquire_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(guard.is_held(), "renewal works with full memory");
    guard.release().await?;
    assert!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    Ok(())
}

#[tokio::test]
async fn t08_a_half_open_connection_is_given_up_in_time() -> Result<()> {
    use testkit::proxy::Mode;
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy.url()).await?;
    client.lock("warm").acquire().await?.release().await?;
    proxy.set_both(Mode::Drop);
    let start = std::time::Instant::now();
    let options = AcquireOptions::new().wait(Duration::from_millis(600));
    assert!(client.lock("a").acquire_with(options).await.is_err());
    assert!(
        start.elapsed() < Duration::from_millis(700),
        "{:?}",
        start.elapsed()
    );
    proxy.set_both(Mode::Pass);
    proxy.cut();
    client.lock("b").acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn t04_a_freeze_of_the_server_shorter_than_the_lease_costs_nothing() -> Result<()> {
    let server = RedisServer::start()?;
    let client = Client::builder()
        .details(false)
        .lease(Duration::from_secs(3))
        .connect(&server.url())
        .await?;
    let guard = client.lock("a").acquire().await?;
    server.freeze()?;
    tokio::time::sleep(Duration::from_millis(1300)).await;
    server.thaw()?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(guard.is_held());
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn t05_a_mute_server_is_told_to_the_holder_before_the_lease_ends() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let start = std::time::Instant::now();
    let guard = client.lock("a").acquire().await?;
    server.freeze()?;
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(
        start.elapsed() < Duration::from_millis(1400),
        "{:?}",
        start.elapsed()
    );
    server.thaw()?;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let next = tokio::time::timeout(Duration::from_secs(2), client.lock("a").acquire()).await??;
    next.release().await?;
    Ok(())
}

#[tokio::test]
async fn t06_a_server_that_comes_back_empty_is_told_and_then_serves() -> Result<()> {
    let server = RedisServer::start()?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = one.lock("a").acquire().await?;
    let waiter = tokio::spawn(two.lock("a").acquire());
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    server.restart_empty()?;
    let reason = tokio::time::timeout(Duration::from_millis(1100), guard.lost()).await?;
    assert!(
        matches!(reason, LostReason::Taken | LostReason::Expired),
        "{reason}"
    );
    let next = tokio::time::timeout(Duration::from_secs(2), waiter).await???;
    next.release().await?;
    Ok(())
}

#[test]
fn a_client_goes_on_when_the_runtime_of_its_connection_has_gone() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let (client, guard) = {
        let first = runtime()?;
        first.block_on(async {
            let client = client(&server.url()).await?;
            let guard = client.lock("kept").acquire().await?;
            anyhow::Ok((client, guard))
        })?
    };
    std::thread::sleep(Duration::from_millis(1500));
    runtime()?.block_on(async {
        assert!(guard.is_held(), "the steward has a runtime of its own");
        client.lock("a").acquire().await?.release().await?;
        guard.release().await?;
        anyhow::Ok(())
    })?;
    assert!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    Ok(())
}

#[tokio::test]
async fn closing_ends_every_connection() -> Result<()> {
    let server = RedisServer::start()?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = one.lock("a").acquire().await?;
    let waiter = tokio::spawn(two.lock("a").acquire());
    listeners(&server, "redisson_lock__channel:{a}", 1).await?;
    two.close(Duration::ZERO).await;
    assert_eq!(waiter.await?.unwrap_err().kind(), ErrorKind::Closed);
    drop(two);
    one.close(Duration::ZERO).await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(one);
    eventually("all connections are closed", Duration::from_secs(2), || {
        let list: String = server.query(&["CLIENT", "LIST"])?;
        Ok(!list.contains("lib-name=tidelock") && list.lines().count() == 1)
    })
    .await?;
    // A tombstone may stay for a while; no lock does.
    assert_eq!(server.query::<i64, _>(&["EXISTS", "a"])?, 0);
    Ok(())
}

#[test]
fn a_client_goes_on_when_nobody_drives_the_runtime_of_its_connection() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let idle = runtime()?;
    let client = idle.block_on(client(&server.url()))?;
    runtime()?.block_on(async {
        // The first request finds out, within the response timeout.
        let guard = client.lock("a").acquire().await?;
        guard.release().await?;
        anyhow::Ok(())
    })?;
    drop(idle);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_moments_leave_nothing() -> Result<()> {
    let server = RedisServer::start()?;
    let clients = [client(&server.url()).await?, client(&server.url()).await?];
    let tasks = (0..64_u64).map(|task| {
        let lock = clients[usize::try_from(task % 2).unwrap_or(0)].lock("hot");
        tokio::spawn(async move {
            for round in 0..16_u64 {
                let patience = Duration::from_micros(50 + (task * 7919 + round * 104_729) % 20_000);
                // An error means that it was dropped.
                if let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await {
                    drop(guard?);
                }
            }
            anyhow::Ok(())
        })
    });
    for done in futures_util::future::join_all(tasks).await {
        done??;
    }
    eventually("no lock is left", Duration::from_secs(2), || {
        Ok(server.query::<i64, _>(&["EXISTS", "hot"])? == 0)
    })
    .await?;
    eventually("no channel is left", Duration::from_secs(8), || {
        Ok(crate::channels(&server)?.is_empty())
    })
    .await?;
    clients[1].lock("hot").acquire().await?.release().await?;
    Ok(())
}
