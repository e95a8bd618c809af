//! A server that does not answer for a while and then continues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;
use tidelock::{Client, ErrorKind, LostReason};

use crate::looks::{listening, wary};
use crate::setup::{shop, shop_on};
use real_servers::{SOON, boot_time, builder, listen, ms, secs, within};

/// T17, a short pause: `CLIENT PAUSE` of all commands, then of writes only, each for two thirds of the lease, so one
/// renewal is not answered in time. No lock is lost or reported as lost, and a request queued in the server takes
/// effect once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t17_a_short_pause_of_the_server_is_not_a_loss() -> Result<()> {
    for what in ["ALL", "WRITE"] {
        let lease = secs(3);
        let shop = shop(lease).await?;
        let other = shop.direct().await?;
        let held = shop.client.lock("till").acquire().await?;
        let told = listen(&held);
        let pause = (lease * 2 / 3).as_millis().to_string();
        let paused = Instant::now();
        shop.server.admin(&["CLIENT", "PAUSE", &pause, what])?;
        // Both requests stay in the server's queue, or are retried, until the pause ends.
        let waiting = tokio::spawn(other.lock("till").acquire());
        let fresh = within(SOON, "a free lock", other.lock("safe").acquire()).await??;
        let took = paused.elapsed();
        ensure!(took > lease * 3 / 5, "PAUSE {what} took {took:?}");
        shop.held_once(&held)?;
        shop.held_once(&fresh)?;
        fresh.release().await?;
        // Time for two more renewals: the lock must be renewed, not just still within its lease.
        tokio::time::sleep(lease * 2 / 3).await;
        ensure!(told.is_quiet(), "told after a pause of {what}");
        shop.held_once(&held)?;
        ensure!(!waiting.is_finished(), "two hold it");
        held.release().await?;
        let next = within(lease / 2, "the wake-up", waiting).await???;
        next.release().await?;
        shop.nothing_left(vec![other]).await?;
    }
    Ok(())
}

/// T17, a long pause of two leases. The holder is told before its lease could have ended. Its release reports the loss
/// and does not affect the next holder, which retried during the pause and is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t17_a_long_pause_is_told_and_counted_once() -> Result<()> {
    for what in ["ALL", "WRITE"] {
        let lease = ms(1800);
        let shop = wary(lease).await?;
        let other = patient(&shop.server, lease).await?;
        let held = shop.client.lock("till").acquire().await?;
        let told = listen(&held);
        let ends_at = shop.ends_at("till")?;
        let pause = (lease * 2).as_millis().to_string();
        shop.server.admin(&["CLIENT", "PAUSE", &pause, what])?;
        let waiting = tokio::spawn(other.lock("till").acquire());
        let (at, reason) = told.told(SOON).await?;
        ensure!(reason == LostReason::Expired, "{reason}");
        ensure!(
            at < ends_at,
            "told {:?} too late",
            at.saturating_sub(ends_at)
        );
        ensure!(!held.is_held() && !waiting.is_finished(), "two hold it");
        let next = within(SOON + lease * 2, "the waiter", waiting).await???;
        ensure!(boot_time() > ends_at, "taken before the lease had ended");
        let error = held.release().await.unwrap_err();
        ensure!(error.kind() == ErrorKind::Lost, "{error}");
        // Longer than a lease, so every request that the pause left in a buffer has taken effect by now.
        tokio::time::sleep(lease).await;
        shop.held_once(&next)?;
        next.release().await?;
        ensure!(
            shop.is_free("till")?,
            "counted twice: {:?}",
            shop.holders("till")?
        );
        shop.nothing_left(vec![other]).await?;
    }
    Ok(())
}

/// A client that retries four times per lease of the holder and waits for longer than one lease.
async fn patient(server: &RedisServer, lease: Duration) -> Result<Client> {
    let patient = builder(lease * 5).response_timeout(lease / 4);
    Ok(patient.connect_within(SOON).connect(&server.url()).await?)
}

/// T18: `DEBUG SLEEP`: the server stands still for less than a lease, in the middle of its work. No lock is lost or
/// reported as lost, and a request in its buffers is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t18_a_sleeping_server_is_not_a_loss() -> Result<()> {
    let (lease, sleep) = (secs(3), secs(2).as_secs().to_string());
    let shop = shop_on(RedisServer::builder().debug_commands(true), lease).await?;
    let other = shop.direct().await?;
    let held = shop.client.lock("till").acquire().await?;
    let told = listen(&held);
    let waiting = tokio::spawn(other.lock("till").acquire());
    listening(&shop.server, "till").await?;
    let shop = Arc::new(shop);
    let (asleep, slept) = (Arc::clone(&shop), Instant::now());
    let asleep =
        tokio::task::spawn_blocking(move || asleep.server.admin(&["DEBUG", "SLEEP", &sleep]));
    // We send an acquire while the server sleeps, and it must succeed when the server wakes. A renewal is sent too, and
    // its answer arrives after the response timeout.
    tokio::time::sleep(lease / 10).await;
    let fresh = within(SOON, "a free lock", other.lock("safe").acquire()).await??;
    ensure!(slept.elapsed() > lease / 2, "it did not sleep");
    asleep.await??;
    shop.held_once(&held)?;
    shop.held_once(&fresh)?;
    tokio::time::sleep(lease * 2 / 3).await;
    ensure!(told.is_quiet(), "told after a short sleep");
    ensure!(!waiting.is_finished(), "two hold it");
    fresh.release().await?;
    held.release().await?;
    let next = within(lease / 2, "the wake-up", waiting).await???;
    shop.held_once(&next)?;
    next.release().await?;
    let shop = Arc::into_inner(shop).expect("the sleep is over");
    shop.nothing_left(vec![other]).await
}
