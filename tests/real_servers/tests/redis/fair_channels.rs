//! The channels of waiters for a fair lock: each waiter has one of its own, which ends with its wait.

use anyhow::{Result, ensure};
use real_servers::leavers::waits_among_leavers;
use testkit::servers::RedisServer;

use crate::eventually;
use crate::fair::{LEASE, NAME, client, queue, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_stays_has_its_turns_among_many_that_leave() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    waits_among_leavers(&a, &b, 8).await?;
    Ok(())
}

/// The owner channels to which somebody is subscribed.
fn owner_channels(server: &RedisServer) -> Result<usize> {
    let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "*:{turns}:*"])?;
    Ok(channels.len())
}

/// The next wait subscribes on the same connection, so the subscription of the wait before it has ended by then.
#[tokio::test]
async fn a_process_that_waits_often_keeps_no_channels() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    for _ in 0..50 {
        let guard = a.fair_lock(NAME).acquire().await?;
        let waiting = wait(&server, &b, 1).await?;
        let channels = owner_channels(&server)?;
        assert!(channels <= 2, "{channels} channels, and the counts of them");
        guard.release().await?;
        waiting.await??.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_channels_of_waiters_that_leave_end_with_them() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    for _ in 0..50 {
        let waiting = wait(&server, &b, 1).await?;
        waiting.abort();
        eventually("it has left", LEASE, || Ok(queue(&server)?.is_empty())).await?;
    }
    let stays = wait(&server, &b, 1).await?;
    let channels = owner_channels(&server)?;
    ensure!(
        channels <= 6,
        "{channels}: those of one or two more may be about to end"
    );
    guard.release().await?;
    stays.await??.release().await?;
    Ok(())
}
