//! Faults of the wake-up message: its connection is killed, the message comes too early, or it never comes.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Then, When};
use testkit::servers::RedisServer;
use tidelock::AcquireOptions;

use crate::looks::{FAST, asleep, channel, listeners, listening, until};
use crate::setup::{shop, shop_on};
use real_servers::{SOON, secs, within};

/// So long that only a message, or its substitute, can wake a waiter within the limit of a test.
const LONG: Duration = Duration::from_secs(20);

/// T14: the server kills the connection on which a sleeping waiter listens. The client subscribes again by itself, and
/// the next release wakes the waiter at once, long before the holder's lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t14_a_waiter_survives_the_death_of_its_subscription() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    let killed: u64 = shop.server.query(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    ensure!(killed >= 1, "nobody had subscribed");
    listening(&shop.server, "till").await?;
    ensure!(!waiting.is_finished(), "two hold it");
    held.release().await?;
    let guard = within(FAST, "a wake-up on the new subscription", waiting).await???;
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// T14, the worse case: the release happens while no subscription is open. A reconnect counts as a wake-up, so the
/// waiter retries as soon as the connection is back, or sooner: it polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t14_a_reconnect_counts_as_a_wake_up() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    shop.proxy.refuse(true);
    let before = shop.proxy.accepted();
    let killed: u64 = shop.server.query(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    ensure!(killed >= 1, "nobody had subscribed");
    let tried = shop.proxy.until(|proxy| proxy.accepted() > before);
    within(SOON, "a try to reconnect", tried).await?;
    ensure!(listeners(&shop.server, "till")? == 0, "somebody listens");
    held.release().await?;
    shop.proxy.refuse(false);
    let guard = within(FAST, "a wake-up by the reconnect", waiting).await???;
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// The waiter was armed while its subscription was live. That cannot be had again, and requests are still answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_subscription_cannot_be_had_again_polls() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    shop.proxy.refuse(true);
    let before = shop.proxy.accepted();
    let killed: u64 = shop.server.query(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    ensure!(killed >= 1, "nobody had subscribed");
    let tried = shop.proxy.until(|proxy| proxy.accepted() > before + 2);
    within(SOON, "tries to reconnect", tried).await?;
    held.release().await?;
    let guard = within(FAST, "an attempt without a wake-up", waiting).await???;
    ensure!(listeners(&shop.server, "till")? == 0, "somebody listens");
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.proxy.refuse(false);
    shop.nothing_left(vec![holder]).await
}

/// Each connection for subscriptions is opened, and closed at its first SUBSCRIBE. The pauses between them double from 20 ms,
/// and up to half of each is left out at random.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_with_a_subscription_are_not_opened_without_a_pause() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let subscribe = When::command("SUBSCRIBE", "");
    let cut = shop.proxy.on_each(subscribe, Then::Cut);
    let waiting = tokio::spawn(shop.client.lock("till").acquire());
    within(2 * FAST, "six tries", cut.fired_times(6)).await?;
    cut.remove();
    let log = shop.proxy.log();
    let tries = log.iter().filter(|asked| asked.name == "SUBSCRIBE");
    let tries: Vec<_> = tries.take(6).map(|asked| asked.at).collect();
    let took = tries[5] - tries[0];
    // A busy machine makes it only longer: each pause begins when the proxy has closed a connection.
    let least = Duration::from_millis(20 + 40 + 80 + 160 + 320) / 2;
    ensure!(took >= least, "{took:?}");
    listening(&shop.server, "till").await?;
    held.release().await?;
    let guard = within(2 * FAST, "a wake-up", waiting).await???;
    guard.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// T15: the lock is released after a waiter was refused and before its subscription has reached the server, so the
/// message has no receiver. The waiter retries once after it has subscribed, and gets the lock at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t15_a_release_between_question_and_subscription_is_seen() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let subscribe = When::command("SUBSCRIBE", channel("till"));
    let subscribing = shop.proxy.on(subscribe, Then::Hold);
    let waiting = tokio::spawn(shop.client.lock("till").acquire());
    within(SOON, "a subscription on its way", subscribing.fired()).await?;
    ensure!(listeners(&shop.server, "till")? == 0, "somebody listens");
    held.release().await?;
    ensure!(!waiting.is_finished(), "it had not subscribed yet");
    subscribing.release();
    let guard = within(FAST, "the question after the subscription", waiting).await???;
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// T16: the release message is lost, and the connection stays open. Two waiters of one process both get the lock: the
/// first at the latest when the lease that it knows of ends, the second by the message of the first's release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t16_a_lost_message_costs_at_most_the_rest_of_the_lease() -> Result<()> {
    let shop = shop(secs(4)).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let lost = shop.proxy.on(When::push(channel("till")), Then::Drop);
    let one = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    let two = asleep(&shop.proxy, 1, shop.client.lock("till").acquire()).await?;
    let rest = shop.time_left("till")?.context("the lock has a lease")?;
    held.release().await?;
    within(SOON, "the message that is lost", lost.fired()).await?;
    ensure!(shop.is_free("till")?, "somebody was woken all the same");
    let (mut one, mut two) = (one, two);
    let first = async {
        tokio::select! {
            got = &mut one => (got, true),
            got = &mut two => (got, false),
        }
    };
    let limit = rest + shop.lease * 2 / 3;
    let (first, was_one) = within(limit, "the first waiter", first).await?;
    let first = first??;
    let other = if was_one { two } else { one };
    shop.held_once(&first)?;
    ensure!(!other.is_finished(), "two hold it");
    first.release().await?;
    let other = within(shop.lease / 2, "the wake-up of the second", other).await???;
    shop.held_once(&other)?;
    other.release().await?;
    shop.nothing_left(vec![holder]).await
}

/// T16 with a time limit: a waiter whose message is lost still times out on time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t16_a_lost_message_does_not_stretch_a_time_limit() -> Result<()> {
    let shop = shop(LONG).await?;
    let holder = shop.direct().await?;
    let held = holder.lock("till").acquire().await?;
    let lost = shop.proxy.on_each(When::push(channel("till")), Then::Drop);
    let limit = secs(2);
    let options = AcquireOptions::new().wait(limit);
    let asked = Instant::now();
    let waiting = shop.client.lock("till").acquire_with(options);
    let waiting = asleep(&shop.proxy, 2, waiting).await?;
    held.release().await?;
    within(SOON, "the message that is lost", lost.fired()).await?;
    let error = within(SOON, "the end of the limit", waiting)
        .await??
        .unwrap_err();
    let took = asked.elapsed();
    ensure!(error.is_timeout(), "{error}");
    ensure!(took >= limit && took < limit + FAST / 2, "{took:?}");
    ensure!(shop.is_free("till")?);
    shop.nothing_left(vec![holder]).await
}

/// A server that runs a long script refuses everything else with `BUSY`, also the subscription of a waiter for a fair
/// lock. That passes, so the client subscribes again soon, and not after half a minute, as without the right to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_a_busy_server_refuses_is_asked_for_again() -> Result<()> {
    let server = RedisServer::builder().args(["--lua-time-limit", "1"]);
    let shop = shop_on(server, LONG).await?;
    let waiter = shop.another().await?;
    let held = shop.client.fair_lock("till").acquire().await?;
    let subscribing = shop
        .proxy
        .on(When::command("SUBSCRIBE", "till"), Then::Hold);
    let waiting = tokio::spawn(waiter.fair_lock("till").acquire());
    within(SOON, "the subscription", subscribing.fired()).await?;
    let mut script = TcpStream::connect(shop.server.addr())?;
    script.write_all(b"EVAL \"while true do end\" 0\r\n")?;
    until("it is busy", || Ok(shop.server.admin(&["PING"]).is_err())).await?;
    let before = shop.proxy.count("SUBSCRIBE");
    subscribing.release();
    let again = shop.proxy.until(|proxy| proxy.count("SUBSCRIBE") > before);
    within(SOON, "another subscription", again).await?;
    shop.server.admin(&["SCRIPT", "KILL"])?;
    drop(script);
    // The reply to `SCRIPT KILL` comes before the script ends.
    until("it answers", || Ok(shop.server.admin(&["PING"]).is_ok())).await?;
    until("it is in the queue", || {
        let queue = "redisson_lock_queue:{till}";
        Ok(shop.server.query::<u64, _>(&["LLEN", queue])? == 1)
    })
    .await?;
    held.release().await?;
    within(SOON, "its turn", waiting).await???.release().await?;
    shop.nothing_left(vec![waiter]).await
}
