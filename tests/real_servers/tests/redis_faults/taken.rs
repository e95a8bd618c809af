//! A key that is deleted or replaced under its holder.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidelock::{ErrorKind, Guard, LostReason};

use crate::looks::{FAST, asleep, listening};
use crate::setup::{Shop, patient};
use real_servers::{SOON, listen, secs, within};

fn lease() -> Duration {
    secs(3)
}

async fn told_taken(shop: &Shop, held: &Guard) -> Result<()> {
    shop.told_by_the_next_renewal(listen(held)).await?;
    ensure!(!held.is_held() && held.valid_for().is_zero());
    Ok(())
}

/// T20: `FLUSHALL`, and an operator's `DEL`, under a holder. The holder is told at its next renewal; its release
/// returns `Lost`; none of its later calls affects the next holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t20_a_vanished_key_is_told_at_the_next_renewal() -> Result<()> {
    for fault in [&["FLUSHALL"][..], &["DEL", "till"][..]] {
        let shop = patient(lease()).await?;
        let other = shop.direct().await?;
        let held = shop.client.lock("till").acquire().await?;
        shop.server.admin(fault)?;
        // The fault frees the lock for every client, and this one takes it.
        let next = other.lock("till").acquire().await?;
        told_taken(&shop, &held).await?;
        let error = held.release().await.unwrap_err();
        ensure!(error.kind() == ErrorKind::Lost, "{error}");
        ensure!(error.lost_reason() == Some(LostReason::Taken), "{error}");
        tokio::time::sleep(lease()).await;
        shop.held_once(&next)?;
        next.release().await?;
        shop.nothing_left(vec![other]).await?;
    }
    Ok(())
}

/// T20 for a waiter: the key disappears without a message. The waiter gets the lock when the lease that it knows of
/// ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t20_a_waiter_notices_a_vanished_key() -> Result<()> {
    let lease = secs(4);
    let shop = patient(lease).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    let asked = Instant::now();
    let rest = shop.time_left("till")?.context("it is held")?;
    shop.server.admin(&["DEL", "till"])?;
    let (_, reason) = listen(&held).told(SOON).await?;
    ensure!(reason == LostReason::Taken && !held.is_held(), "{reason}");
    // One that missed that end would sleep for another lease.
    let limit = (rest + lease * 2 / 3).saturating_sub(asked.elapsed());
    let next = within(limit, "the waiter", waiting).await???;
    drop(held);
    tokio::time::sleep(lease).await;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// T20 and tokens: after a `DEL` of a fenced lock's key the next token is larger. `FLUSHALL` deletes the counter as
/// well: tokens start over, as documented, and the holder of the old token has been told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t20_tokens_grow_unless_their_counter_is_flushed() -> Result<()> {
    let shop = patient(lease()).await?;
    let lock = shop.client.lock("till").fenced();
    let held = lock.acquire().await?;
    let first = held.token();
    shop.server.admin(&["DEL", "till"])?;
    told_taken(&shop, &held).await?;
    drop(held);
    let held = lock.acquire().await?;
    let second = held.token();
    ensure!(second > first, "{second} after {first}");
    shop.server.admin(&["FLUSHALL"])?;
    told_taken(&shop, &held).await?;
    drop(held);
    let held = lock.acquire().await?;
    ensure!(held.token().get() == 1);
    held.release().await?;
    shop.nothing_left(vec![]).await
}

/// T21: the key holds a string. Every operation returns a specific error at once; the string is not changed, and the
/// attempts leave no channel, key or connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t21_a_key_of_the_wrong_type_is_named_and_left() -> Result<()> {
    let lease = secs(12);
    let shop = patient(lease).await?;
    shop.server.admin(&["SET", "till", "x"])?;
    let (lock, fenced) = (shop.client.lock("till"), shop.client.lock("till").fenced());
    let asked = Instant::now();
    let errors = [
        ("acquire", lock.acquire().await.map(drop).unwrap_err()),
        ("try", lock.try_acquire().await.map(drop).unwrap_err()),
        ("fenced", fenced.acquire().await.map(drop).unwrap_err()),
        ("inspect", lock.inspect().await.map(drop).unwrap_err()),
        ("force", lock.force_release().await.map(drop).unwrap_err()),
    ];
    ensure!(asked.elapsed() < lease / 3, "took {:?}", asked.elapsed());
    for (verb, error) in errors {
        ensure!(error.kind() == ErrorKind::WrongType, "{verb}: {error}");
        ensure!(error.lock_name() == Some("till"), "{verb}: {error}");
    }
    ensure!(shop.server.query::<String, _>(&["GET", "till"])? == "x");
    ensure!(shop.leftovers()? == ["till"], "{:?}", shop.leftovers()?);
    shop.server.admin(&["DEL", "till"])?;
    // The same client still works once the key is gone.
    lock.acquire().await?.release().await?;
    shop.nothing_left(vec![]).await
}

/// T21 under a holder: its key is overwritten by a string. The holder is told within its lease; another lock renewed in
/// the same batch is not harmed; a waiter gets an error that names the cause; the string stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t21_a_key_overwritten_under_a_holder_harms_no_other() -> Result<()> {
    let shop = patient(lease()).await?;
    let waiter = shop.direct().await?;
    let held = shop.client.lock("till").acquire().await?;
    let beside = shop.client.lock("safe").acquire().await?;
    let told = listen(&held);
    let waiting = tokio::spawn(waiter.lock("till").acquire());
    listening(&shop.server, "till").await?;
    let ends_at = shop.ends_at("till")?;
    shop.server.admin(&["SET", "till", "x"])?;
    let (at, reason) = told.told(SOON).await?;
    ensure!(at < ends_at, "told {:?} too late: {reason}", at - ends_at);
    let error = held.release().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    let answer = within(lease() + FAST, "the waiter", waiting).await??;
    let error = answer.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::WrongType, "{error}");
    tokio::time::sleep(lease()).await;
    shop.held_once(&beside)?;
    ensure!(shop.server.query::<String, _>(&["GET", "till"])? == "x");
    beside.release().await?;
    shop.server.admin(&["DEL", "till"])?;
    shop.nothing_left(vec![waiter]).await
}
