//! Lost replies: the server has executed a request, and the client does not know.

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Then, When};
use testkit::servers::RedisServer;
use tidelock::AcquireOptions;
use tokio::time::sleep;

use crate::setup::shop;
use real_servers::{SOON, boot_time, eventually, listen, ms, within};

/// T10. The server grants a lock, and the connection is cut before the reply is complete. The acquire retries and holds
/// the lock once: one release frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_grant_whose_reply_was_cut_off_counts_once() -> Result<()> {
    lost_grant(Then::CutReply).await
}

/// T10, with a reply that is dropped while the connection stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_grant_whose_reply_was_swallowed_counts_once() -> Result<()> {
    lost_grant(Then::DropReply).await
}

async fn lost_grant(then: Then) -> Result<()> {
    let shop = shop(ms(3000)).await?;
    shop.warm_up().await?;
    let rule = shop.proxy.on(When::command("EVALSHA", "seat"), then);
    let guard = within(
        shop.lease,
        "it asks again",
        shop.client.lock("seat").fenced().acquire(),
    )
    .await??;
    ensure!(rule.count() == 1);
    ensure!(shop.holders("seat")? == [(guard.owner_id(), 1)]);
    // The token must be that of the first grant: a retry does not increment the counter.
    ensure!(guard.token().get() == 1, "{:?}", guard.token());
    let left = shop.time_left("seat")?.context("no such key")?;
    ensure!(left <= shop.lease, "{left:?} left");
    guard.release().await?;
    ensure!(
        shop.time_left("seat")?.is_none(),
        "one release was not enough"
    );
    shop.nothing_left(vec![]).await
}

/// T10: a caller times out, and its request is withdrawn while still in flight. The request reaches the server after
/// the withdrawal and must have no effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_request_that_arrives_after_its_withdrawal_takes_no_effect() -> Result<()> {
    // The limit is shorter than the response timeout, so the request is not repeated.
    let shop = shop(ms(6000)).await?;
    shop.warm_up().await?;
    let late = shop.proxy.on(When::command("EVALSHA", "seat"), Then::Hold);
    let limit = AcquireOptions::new().wait(ms(1000));
    let answer = shop.client.lock("seat").acquire_with(limit).await;
    ensure!(answer.is_err() && late.count() == 1, "{answer:?}");
    arrives_late(&shop, || late.release())?;
    shop.nothing_left(vec![]).await
}

/// T10: the same for a caller that was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_request_that_arrives_after_its_caller_was_dropped_takes_no_effect() -> Result<()> {
    let shop = shop(ms(3000)).await?;
    shop.warm_up().await?;
    let late = shop.proxy.on(When::command("EVALSHA", "seat"), Then::Hold);
    let lock = shop.client.lock("seat");
    tokio::select! {
        answer = lock.acquire() => anyhow::bail!("an answer to a request that was not sent on: {answer:?}"),
        () = late.fired() => {}
    }
    arrives_late(&shop, || late.release())?;
    shop.nothing_left(vec![]).await
}

fn arrives_late(shop: &crate::setup::Shop, release: impl Fn()) -> Result<()> {
    eventually(SOON, "it is withdrawn", || {
        Ok(shop
            .server
            .keys()?
            .iter()
            .any(|key| key.starts_with("tidelock:withdrawn")))
    })?;
    ensure!(shop.time_left("seat")?.is_none());
    let before = scripts_run(&shop.server)?;
    release();
    eventually(SOON, "it arrives", || {
        Ok(scripts_run(&shop.server)? > before)
    })?;
    let left = shop.leftovers()?;
    ensure!(left.is_empty(), "a ghost has left {left:?}");
    Ok(())
}

/// The number of scripts that the server has run.
fn scripts_run(server: &RedisServer) -> Result<u64> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|rest| rest.split(',').next());
    Ok(calls.context("no script has run")?.parse()?)
}

/// T11. The server frees the lock, and the connection is cut before the reply is complete. Another client has taken the
/// lock before the retry. The release still succeeds, and does not affect the new hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_a_release_whose_reply_was_cut_off_is_a_release() -> Result<()> {
    lost_release(Then::CutReply).await
}

/// T11, with a reply that is dropped while the connection stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_a_release_whose_reply_was_swallowed_is_a_release() -> Result<()> {
    lost_release(Then::DropReply).await
}

async fn lost_release(then: Then) -> Result<()> {
    let shop = shop(ms(4000)).await?;
    shop.warm_up().await?;
    let rival = shop.direct().await?;
    let guard = shop.client.lock("seat").acquire().await?;
    let lock = rival.lock("seat");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually(SOON, "somebody waits", || {
        Ok(!shop
            .server
            .query::<Vec<String>, _>(&["PUBSUB", "CHANNELS"])?
            .is_empty())
    })?;
    shop.next_renewal("seat")?;
    let rule = shop.proxy.on(When::command("EVALSHA", "seat"), then);
    within(shop.lease, "it is confirmed", guard.release()).await??;
    ensure!(rule.count() == 1);
    let second = within(shop.lease / 2, "the waiter gets it", waiter).await???;
    let told = listen(&second);
    ensure!(shop.holders("seat")? == [(second.owner_id(), 1)]);
    shop.next_renewal("seat")?;
    ensure!(second.is_held() && told.is_quiet());
    second.release().await?;
    ensure!(shop.time_left("seat")?.is_none());
    shop.nothing_left(vec![rival]).await
}

/// T12. The server renews a lease, and the connection is cut before the reply is complete. The holder loses nothing,
/// later renewals succeed, the lease is never longer than it should be, and the server is not flooded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_a_renewal_whose_reply_was_cut_off_loses_nothing() -> Result<()> {
    lost_renewal(Then::CutReply).await
}

/// T12, with a reply that arrives after the replies to newer requests: it neither shortens nor extends the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_a_renewal_whose_reply_comes_late_changes_nothing() -> Result<()> {
    lost_renewal(Then::HoldReply).await
}

async fn lost_renewal(then: Then) -> Result<()> {
    let shop = shop(ms(2400)).await?;
    let guard = shop.client.lock("seat").acquire().await?;
    let told = listen(&guard);
    shop.next_renewal("seat")?;
    let rule = shop.proxy.on(When::command("EVALSHA", "seat"), then);
    within(SOON, "a renewal", rule.fired()).await?;
    shop.proxy.reset_counts();
    let (late, end) = (boot_time() + shop.lease, boot_time() + 2 * shop.lease);
    while boot_time() < end {
        if boot_time() > late {
            rule.release();
        }
        let left = shop.time_left("seat")?.context("the key has gone")?;
        ensure!(left <= shop.lease, "{left:?} left");
        ensure!(guard.is_held() && told.is_quiet());
        sleep(ms(20)).await;
    }
    let renewals = shop.proxy.count("EVALSHA");
    ensure!(
        (5..=10).contains(&renewals),
        "{renewals} renewals in two leases"
    );
    ensure!(shop.holders("seat")? == [(guard.owner_id(), 1)]);
    guard.release().await?;
    shop.nothing_left(vec![]).await
}
