//! The server's wall clock, on which it counts leases.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Flavour, RedisServer};
use tidelock::ErrorKind;

use crate::looks::{FAST, asleep, listening, more_scripts, scripts, shortest_pause};
use crate::setup::{Shop, shop_on};
use real_servers::{boot_time, listen, ms, within};

/// A shop whose server has a wall clock of its own.
async fn shop_with_a_clock(lease: Duration) -> Result<Shop> {
    let flavour = Flavour::from_env()?;
    let flavour = if flavour.has_fake_clock() {
        flavour
    } else {
        Flavour::Valkey9
    };
    shop_on(
        RedisServer::builder().flavour(flavour).fake_clock(true),
        lease,
    )
    .await
}

/// T41: the server's clock jumps a minute ahead, so every lease ends at once. The holder is told at its next renewal,
/// the lock can be acquired again with a larger token, and the first release does not affect the second holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_clock_that_jumps_ahead_is_told_at_the_next_renewal() -> Result<()> {
    let shop = shop_with_a_clock(ms(6000)).await?;
    let rival = shop.direct().await?;
    let held = shop.client.lock("stock").fenced().acquire().await?;
    let told = listen(&held);
    shop.next_renewal("stock")?;
    shop.server.shift_clock(60)?;
    let lock = rival.lock("stock").fenced();
    let next = within(FAST, "the lock is free", lock.acquire()).await??;
    ensure!(next.token() > held.token(), "{:?}", next.token());
    shop.told_by_the_next_renewal(told).await?;
    ensure!(!held.is_held());
    let late = held.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    shop.next_renewal("stock")?;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T41: the server's clock jumps a minute back, so every lease is a minute longer. A holder keeps its lock and can
/// release it; the release wakes a waiter, however long the server said the lease still was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_clock_that_jumps_back_keeps_nobody_from_releasing() -> Result<()> {
    let shop = shop_with_a_clock(ms(3000)).await?;
    let rival = shop.direct().await?;
    let held = shop.client.lock("till").acquire().await?;
    let told = listen(&held);
    shop.next_renewal("till")?;
    shop.server.shift_clock(-60)?;
    let left = shop.time_left("till")?.context("it is held")?;
    ensure!(left > Duration::from_secs(50), "{left:?}");
    let waiting = tokio::spawn(rival.lock("till").acquire());
    listening(&shop.server, "till").await?;
    // Longer than a lease, so several renewals must have been answered; none of them shortens the lease.
    tokio::time::sleep(shop.lease * 3 / 2).await;
    ensure!(held.is_held() && told.is_quiet() && !waiting.is_finished());
    held.release().await?;
    let next = within(shop.lease / 2, "the wake-up", waiting).await???;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T41: a time daemon slews the server's clock, first ahead and then back, by half a percent. A lease never ends on the
/// server before the holder's own proof of it does, and no lock is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_clock_that_is_slewed_ends_no_lease_before_its_holder_knows() -> Result<()> {
    let (pause, rate) = (ms(400), 0.005);
    let shop = shop_with_a_clock(ms(3000)).await?;
    let rival = shop.direct().await?;
    let held = shop.client.lock("stock").acquire().await?;
    let told = listen(&held);
    let waiting = tokio::spawn(rival.lock("stock").acquire());
    listening(&shop.server, "stock").await?;
    let (mut ahead, mut compared) = (0, 0);
    for step in [
        2, 2, 2, 2, 2, 2, 2, 2, 2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2,
    ] {
        ahead += step;
        shop.server.slew_clock(ahead)?;
        let next = boot_time() + pause;
        while boot_time() < next {
            // We ask the guard first: a renewal in between only makes the server's lease longer.
            let proved = boot_time() + held.valid_for();
            let before = boot_time();
            let left = shop.time_left("stock")?.context("the server ended it")?;
            tokio::time::sleep(ms(10)).await;
            if boot_time() - before > ms(14) {
                // The answer may be older than it seems.
                continue;
            }
            compared += 1;
            let ends = before + left.mul_f64(1.0 - rate);
            ensure!(
                proved <= ends,
                "proved for {:?} longer than the lease",
                proved - ends
            );
        }
    }
    ensure!(compared > 50, "only {compared} answers came in time");
    ensure!(held.is_held() && told.is_quiet() && !waiting.is_finished());
    held.release().await?;
    let next = within(shop.lease / 2, "the wake-up", waiting).await???;
    next.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T41: the holder died before the clock jumped back, so no release message comes. The waiter does not rely on the
/// wrong time left: it retries once per lease of its own, and has the lock soon after the clock is right again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_waiter_does_not_sleep_for_as_long_as_a_clock_is_wrong() -> Result<()> {
    let shop = shop_with_a_clock(ms(1200)).await?;
    let dead = "7f7c1a34-0000-4000-8000-000000000001:51";
    shop.server.admin(&["HSET", "till", dead, "1"])?;
    shop.server.admin(&["PEXPIRE", "till", "1200"])?;
    shop.server.shift_clock(-60)?;
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    let before = scripts(&shop.proxy);
    let again = more_scripts(&shop.proxy, before, 1);
    within(shop.lease + FAST, "another question", again).await?;
    tokio::time::sleep(shop.lease / 2).await;
    ensure!(!waiting.is_finished(), "the server still says it is held");
    shop.server.shift_clock(0)?;
    let next = within(shop.lease + FAST, "the lock", waiting).await???;
    // From the last question before it slept.
    let pause = shortest_pause(&shop.proxy, before - 1)?;
    ensure!(pause < shop.lease * 3 / 2, "{pause:?} between questions");
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![]).await
}
