//! Lost replies, lost connections, lost scripts, lost data.

use std::time::Duration;

use anyhow::Result;
use real_servers::{ms, secs};
use testkit::servers::RedisServer;
use tidelock::once::{Once, Slot};
use tidelock::{AcquireOptions, ErrorKind};

use crate::{client, eventually, lease, listeners};

#[tokio::test]
async fn renewal_keeps_a_lock_far_beyond_its_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    tokio::time::sleep(lease() * 5 / 2).await;
    assert!(guard.is_held());
    assert!(server.query::<i64, _>(&["PTTL", "a"])? > 0);
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn t24_a_full_server_refuses_an_acquire_and_still_takes_a_release() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    let options = AcquireOptions::new().wait(ms(1500));
    let error = client.lock("b").acquire_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    tokio::time::sleep(lease() * 6 / 5).await;
    assert!(guard.is_held(), "renewal works with full memory");
    guard.release().await?;
    assert!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    Ok(())
}

/// A renewal of permits takes no memory, although the server counts its command among those that may.
#[tokio::test]
async fn permits_are_renewed_and_given_back_on_a_full_server() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let semaphore = client.semaphore("slots");
    semaphore.set_permits(2).await?;
    let permit = semaphore.acquire().await?;
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    let options = AcquireOptions::new().wait(ms(1500));
    let other = semaphore.permits(1).acquire_with(options).await;
    let error = other.expect_err("the memory is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    tokio::time::sleep(lease() * 6 / 5).await;
    assert!(permit.is_held(), "renewal works with full memory");
    permit.release().await?;
    assert_eq!(server.query::<i64, _>(&["GET", "slots"])?, 2);
    Ok(())
}

/// Otherwise its mark would say that it runs, and the next call would run it again.
#[tokio::test]
async fn a_job_that_ends_on_a_full_server_is_not_run_again() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let job = client.once("nightly").slot(Slot::id("Monday"));
    let fills = async { server.admin(&["CONFIG", "SET", "maxmemory", "1"]).map(drop) };
    let ran = job.run(|_| fills).await?;
    assert!(matches!(ran, Once::Ran(())), "{ran:?}");
    server.admin(&["CONFIG", "SET", "maxmemory", "0"])?;
    let again = job.run(|_| async { anyhow::Ok(()) }).await?;
    assert!(matches!(again, Once::Done(_)), "{again:?}");
    Ok(())
}

/// A replica can lag behind the release, so we do not read from it whether the release took effect.
#[tokio::test]
async fn a_server_that_has_become_a_replica_does_not_say_that_a_lock_was_taken() -> Result<()> {
    let server = RedisServer::start()?;
    let client = tidelock::Client::builder()
        .response_timeout(ms(1000))
        .connect(&server.url())
        .await?;
    let guard = client.lock("a").acquire().await?;
    server.admin(&["DEL", "a"])?;
    server.admin(&["REPLICAOF", "127.0.0.1", "1"])?;
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
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
    std::thread::sleep(lease() * 3 / 2);
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
    eventually("all connections are closed", secs(2), || {
        let list: String = server.query(&["CLIENT", "LIST"])?;
        Ok(!list.contains("lib-name=tidelock") && list.lines().count() == 1)
    })
    .await?;
    // A tombstone may stay for a while, but no lock may stay.
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
    // The first request detects the dead connection, within the response timeout. The acquire goes on for a lease.
    let builder = tidelock::Client::builder()
        .lease(lease())
        .response_timeout(lease() / 4);
    let url = server.url();
    let connecting = builder.publish_process_info(false).connect(&url);
    let client = idle.block_on(connecting.into_future())?;
    runtime()?.block_on(async {
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
                // A timeout error means that the acquire future was dropped.
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
    eventually("no lock is left", lease(), || {
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
