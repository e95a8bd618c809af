//! T76: when a client connects, the server is full of clients, busy, slow or not there yet.

use anyhow::{Result, ensure};
use real_servers::connecting::{Insider, is_waited_for};
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, Credentials, ErrorKind};

use real_servers::{SOON, builder, eventually, ms, secs, within};

/// Uses up the free connections of the server. They are free again when the result is dropped.
fn fill(server: &RedisServer) -> Result<Vec<Insider>> {
    let mut inside = vec![
        Insider::enter(server.addr())?,
        Insider::enter(server.addr())?,
    ];
    let answer = inside[0].say("CONFIG SET maxclients 2")?;
    ensure!(answer == "+OK", "{answer}");
    Ok(inside)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_is_waited_for() -> Result<()> {
    let server = RedisServer::start()?;
    let inside = fill(&server)?;
    let error = builder(secs(20)).connect(&server.url()).await.unwrap_err();
    ensure!(error.to_string().contains("maxclients"), "{error}");
    is_waited_for(builder(secs(20)), &server.url(), || {
        drop(inside);
        Ok(())
    })
    .await?;
    Ok(())
}

/// A full server refuses a client before it checks the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_says_nothing_of_the_password() -> Result<()> {
    let server = RedisServer::start()?;
    let inside = fill(&server)?;
    let stranger = builder(secs(20)).credentials(Credentials::new("default", "wrong"));
    for _ in 0..20 {
        let refused = stranger.clone().connect(&server.url()).await.unwrap_err();
        ensure!(refused.kind() == ErrorKind::Unavailable, "{refused}");
    }
    drop(inside);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_busy_with_a_script_is_waited_for() -> Result<()> {
    let server = RedisServer::start()?;
    let mut inside = [
        Insider::enter(server.addr())?,
        Insider::enter(server.addr())?,
    ];
    inside[0].say("CONFIG SET lua-time-limit 1")?;
    inside[0].begin("EVAL \"while true do end\" 0")?;
    eventually(SOON, "the server is busy", || {
        Ok(inside[1].say("PING")?.starts_with("-BUSY"))
    })?;
    is_waited_for(builder(secs(20)), &server.url(), || {
        let answer = inside[1].say("SCRIPT KILL")?;
        ensure!(answer == "+OK", "{answer}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_frozen_server_is_waited_for() -> Result<()> {
    let server = RedisServer::start()?;
    server.freeze()?;
    is_waited_for(builder(ms(2000)), &server.url(), || server.thaw()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_started_later_is_waited_for() -> Result<()> {
    let server = RedisServer::start()?;
    server.kill()?;
    is_waited_for(builder(secs(20)), &server.url(), || server.restart()).await?;
    Ok(())
}

/// A permanent error is returned at once, however long the limit is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_wrong_password_is_not_waited_for() -> Result<()> {
    let server = RedisServer::builder().password("hush").start()?;
    let url = format!("redis://{}", server.addr());
    let patient = Client::builder().connect_within(SOON);
    let wrong = patient
        .clone()
        .credentials(Credentials::new("default", "loud"));
    for stranger in [patient, wrong] {
        let refused = within(SOON / 4, "an answer", stranger.connect(&url)).await?;
        let refused = refused.unwrap_err();
        ensure!(refused.kind() == ErrorKind::Refused, "{refused}");
    }
    Ok(())
}

/// A connected client reconnects to a full server and is refused: it treats that as an outage and retries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_client_that_comes_back_to_a_full_server_keeps_its_locks() -> Result<()> {
    let server = RedisServer::start()?;
    let client = builder(secs(6)).connect_within(SOON);
    let client = client.connect(&server.url()).await?;
    let guard = client.lock("stock").acquire().await?;
    let mut inside = fill(&server)?;
    // The server closes every other connection, and none of these clients can reconnect.
    inside[0].say("CONFIG SET maxclients 1")?;
    inside[0].say("CLIENT KILL TYPE normal SKIPME yes")?;
    let lock = client.lock("other");
    let patience = AcquireOptions::new().wait(SOON);
    let waiting = tokio::spawn(async move { lock.acquire_with(patience).await });
    // Some renewals fail, but half of the lease is left.
    tokio::time::sleep(secs(3)).await;
    ensure!(!waiting.is_finished(), "{:?}", waiting.await?.err());
    let answer = inside[0].say("CONFIG SET maxclients 100")?;
    ensure!(answer == "+OK", "{answer}");
    let other = within(SOON, "the other lock", waiting).await???;
    ensure!(guard.is_held());
    other.release().await?;
    guard.release().await?;
    Ok(())
}

/// A compose file starts a service and its Redis at the same time, and the service is ready first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_starts_before_its_redis_waits_for_it() -> Result<()> {
    let server = RedisServer::start()?;
    server.kill()?;
    let client = builder(ms(9000)).connect_lazy(&server.url())?;
    let (health, worker) = (client.clone(), client.clone());
    let ready = move || health.status().is_connected;
    ensure!(!ready());
    let job = tokio::spawn(async move {
        let guard = worker.lock("migration").acquire_timeout(SOON).await?;
        let done = guard.while_held(async { "migrated" }).await?;
        guard.release().await.map(|()| done)
    });
    tokio::time::sleep(ms(1000)).await;
    ensure!(!job.is_finished() && !ready());
    server.restart()?;
    ensure!(job.await?? == "migrated");
    ensure!(ready());
    ensure!(client.close(SOON).await == 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_with_a_wrong_password_does_not_wait() -> Result<()> {
    let server = RedisServer::builder().password("hush").start()?;
    let url = format!("redis://:loud@{}", server.addr());
    let client = builder(ms(9000)).connect_lazy(&url)?;
    let begun = std::time::Instant::now();
    let refused = client.lock("stock").acquire_timeout(SOON).await;
    let kind = refused.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Refused), "{kind:?}");
    ensure!(begun.elapsed() < SOON / 4, "{:?}", begun.elapsed());
    Ok(())
}
