//! Redlock: servers that freeze, servers that restart empty, and split votes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::{Flavour, Independents, RedisServer};
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason, RedLock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use real_servers::{SOON, boot_time, builder, eventually, insist, listen, ms, secs, within};

fn lease() -> Duration {
    secs(5)
}

/// A server that a busy machine keeps waiting for less than that must not count as frozen.
fn node_timeout() -> Duration {
    ms(1000)
}

async fn clients(servers: &Independents, lease: Duration) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for url in servers.urls() {
        clients.push(
            builder(lease)
                .publish_process_info(false)
                .connect_within(SOON)
                .connect(&url)
                .await?,
        );
    }
    Ok(clients)
}

async fn redlock(servers: &Independents) -> Result<RedLock> {
    let clients = clients(servers, lease()).await?;
    let settings = RedLock::builder(clients).node_timeout(node_timeout());
    // These servers have just been started, so the restart guard would refuse their votes.
    Ok(settings.restart_guard(false).build()?)
}

/// T38. One or two frozen servers of five cost an acquire the node timeout, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t38_fewer_than_half_may_freeze() -> Result<()> {
    let servers = Independents::start(5)?;
    let redlock = redlock(&servers).await?;
    let lock = redlock.lock("stock");
    lock.acquire().await?.release().await?;
    for frozen in &servers.nodes()[..2] {
        frozen.freeze()?;
        let begun = Instant::now();
        let guard = lock.acquire().await?;
        let took = begun.elapsed();
        // Two timeouts one after the other take longer than this.
        ensure!(took < node_timeout() * 19 / 10, "{took:?}");
        tokio::time::sleep(lease()).await;
        ensure!(guard.is_held(), "renewed by the others");
        guard.release().await?;
    }
    Ok(())
}

/// T38. Three frozen servers of five: the acquire fails within its timeout, and leaves nothing on the other two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t38_without_a_majority_there_is_a_clean_failure() -> Result<()> {
    let servers = Independents::start(5)?;
    let redlock = redlock(&servers).await?;
    let lock = redlock.lock("stock");
    lock.acquire().await?.release().await?;
    for server in &servers.nodes()[..3] {
        server.freeze()?;
    }
    let budget = lease() / 2;
    let begun = Instant::now();
    let patient = AcquireOptions::new().wait(budget);
    let error = lock.acquire_with(patient).await.unwrap_err();
    let took = begun.elapsed();
    // A frozen server may have the request in its socket buffer, so the outcome can be unknown.
    let expected = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
    ensure!(expected.contains(&error.kind()), "{error}");
    ensure!(error.to_string().contains("server 1 of 5"), "{error}");
    ensure!(took < budget + node_timeout(), "{took:?}");
    for server in &servers.nodes()[3..] {
        eventually(lease(), "nothing is left", || {
            let left: i64 = server.query(&["EXISTS", "stock"])?;
            Ok(left == 0)
        })?;
    }
    for server in &servers.nodes()[..3] {
        server.thaw()?;
    }
    // After the thaw, the buffered requests are withdrawn, or their leases expire.
    let guard = within(lease() * 2, "the lock once they are back", insist(lock)).await??;
    guard.release().await?;
    Ok(())
}

/// T39. A majority restarts empty while the lock is held. The votes of these servers do not count until the longest
/// lease is over, so the holder learns of the loss before anybody else gets a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t39_servers_that_forgot_make_no_second_majority() -> Result<()> {
    let lease = secs(4);
    let servers = Independents::start(5)?;
    let one = RedLock::new(clients(&servers, lease).await?)?;
    let two = RedLock::new(clients(&servers, lease).await?)?;
    let young = one.lock("stock").try_acquire().await.unwrap_err();
    ensure!(young.to_string().contains("restart_guard"), "{young}");
    let guard = within(
        SOON * 2,
        "the servers are old enough",
        insist(one.lock("stock")),
    )
    .await??;
    let told = listen(&guard);
    // The two servers that keep their data are frozen. Otherwise they alone would refuse the second client, and the
    // restart guard would not be tested.
    for server in &servers.nodes()[3..] {
        server.freeze()?;
    }
    for server in &servers.nodes()[..3] {
        server.kill()?;
        server.restart_empty()?;
    }
    let second = within(
        SOON * 2,
        "the second has it in the end",
        insist(two.lock("stock")),
    )
    .await??;
    let granted = boot_time();
    let (lost, _) = told.told(SOON).await.context("it was told")?;
    ensure!(lost < granted, "told {:?} after the grant", lost - granted);
    drop(second);
    Ok(())
}

/// T39, on a fresh install: no server has lost data, but nobody can know that. A single attempt returns the reason. A
/// waiter gets the lock when the servers have been up long enough, also if that takes longer than a waiter tolerates an
/// outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t39_servers_that_are_all_new_are_waited_for() -> Result<()> {
    let (lease, longest) = (secs(2), secs(6));
    let servers = Independents::start(3)?;
    let settings = RedLock::builder(clients(&servers, lease).await?).longest_lease(longest);
    let lock = settings.node_timeout(node_timeout()).build()?.lock("stock");
    let young = lock.try_acquire().await.unwrap_err();
    ensure!(young.kind() == ErrorKind::Unavailable, "{young}");
    ensure!(young.to_string().contains("restart_guard"), "{young}");
    let guard = within(SOON * 2, "they are old enough", lock.acquire()).await??;
    for server in servers.nodes() {
        let info: String = server.query(&["INFO", "server"])?;
        let up = info
            .lines()
            .find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        let up: u64 = up.context("an uptime")?.trim().parse()?;
        ensure!(up >= longest.as_secs(), "a vote at the age of {up} s");
    }
    guard.release().await?;
    Ok(())
}

/// T39. The clock of a server was ahead when it started, and was set right: the server tells a negative uptime. It votes when it
/// has been up for the longest lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t39_a_server_whose_clock_was_set_back_is_waited_for() -> Result<()> {
    let lease = secs(4);
    let flavour = Flavour::from_env()?;
    let flavour = if flavour.has_fake_clock() {
        flavour
    } else {
        Flavour::Valkey9
    };
    let settings = RedisServer::builder().flavour(flavour).fake_clock(true);
    let servers = Independents::start_with(1, settings)?;
    servers.nodes()[0].shift_clock(-3600)?;
    let begun = Instant::now();
    let settings = RedLock::builder(clients(&servers, lease).await?);
    let lock = settings.node_timeout(node_timeout()).build()?.lock("stock");
    let young = lock.try_acquire().await.unwrap_err();
    ensure!(young.kind() == ErrorKind::Unavailable, "{young}");
    ensure!(young.to_string().contains("restart_guard"), "{young}");
    let guard = within(SOON * 2, "it is old enough", lock.acquire()).await??;
    let up = begun.elapsed();
    ensure!(up >= lease, "a vote at the age of {up:?}");
    guard.release().await?;
    Ok(())
}

/// T40. Eight clients ask five servers at the same moment. Votes split, and one client wins soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t40_split_votes_have_a_winner() -> Result<()> {
    let servers = Independents::start(5)?;
    let mut racers = Vec::new();
    for _ in 0..8 {
        racers.push(redlock(&servers).await?);
    }
    let mut took = Vec::new();
    for round in 0..5 {
        let start = Arc::new(Barrier::new(racers.len() + 1));
        let mut race = JoinSet::new();
        for racer in &racers {
            let (lock, start) = (racer.lock(&format!("race {round}")), Arc::clone(&start));
            race.spawn(async move {
                start.wait().await;
                lock.acquire().await
            });
        }
        start.wait().await;
        let begun = Instant::now();
        let first = within(SOON, "a winner", race.join_next()).await?;
        took.push(begun.elapsed());
        let winner = first.context("a racer")???;
        ensure!(winner.is_held());
        winner.release().await?;
        // All the others get the lock too.
        while let Some(next) = within(SOON, "the next", race.join_next()).await? {
            next??.release().await?;
        }
    }
    // A vote that a loser does not give back lasts for a lease. On a busy machine one round or two may be slow without
    // that.
    took.sort_unstable();
    ensure!(took[2] < lease() * 2 / 3, "{took:?}");
    Ok(())
}

/// Two clients of the same server share one vote: with that server and one more of three there is a majority, with that
/// server alone there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_by_two_addresses_has_one_vote() -> Result<()> {
    let servers = Independents::start(2)?;
    let mut clients = clients(&servers, lease()).await?;
    let again = servers.nodes()[0].url().replace("127.0.0.1", "localhost");
    clients.push(
        builder(lease())
            .publish_process_info(false)
            .connect(&again)
            .await?,
    );
    let redlock = RedLock::builder(clients)
        .node_timeout(node_timeout())
        .restart_guard(false)
        .build()?;
    redlock.lock("stock").acquire().await?.release().await?;
    servers.nodes()[1].kill()?;
    let error = redlock.lock("stock").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::InvalidOptions, "{error}");
    ensure!(error.to_string().contains("same server"), "{error}");
    eventually(lease(), "nothing is left", || {
        let left: i64 = servers.nodes()[0].query(&["EXISTS", "stock"])?;
        Ok(left == 0)
    })?;
    Ok(())
}

/// An acquisition is kept and not polled after it has asked a server for its run. Others ask for themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_not_polled_keeps_no_other_from_a_vote() -> Result<()> {
    let servers = Independents::start(1)?;
    let proxy = Proxy::start(servers.nodes()[0].addr())?;
    let settings = builder(lease()).publish_process_info(false);
    let client = settings.connect(&proxy.url()).await?;
    let settings = RedLock::builder([client]).node_timeout(lease());
    let redlock = settings.restart_guard(false).build()?;
    let told = proxy.on(When::command("INFO", "server"), Then::HoldReply);
    let mut idle = Box::pin(redlock.lock("idle").acquire());
    tokio::select! {
        granted = &mut idle => anyhow::bail!("{granted:?} before the server has told its run"),
        () = told.fired() => {}
    }
    told.release();
    let other = redlock.lock("stock").acquire_timeout(lease() * 2).await?;
    other.release().await?;
    Ok(())
}

/// The servers answer scripts, but no SUBSCRIBE. Their refusals count although no wake could be armed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_subscription_has_its_vote() -> Result<()> {
    let lease = Duration::from_secs(32);
    let servers = Independents::start(3)?;
    let (mut proxies, mut behind, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for server in servers.nodes() {
        let proxy = Proxy::start(server.addr())?;
        let _dropped = proxy.on_each(When::command("SUBSCRIBE", ""), Then::Drop);
        let settings = builder(lease).publish_process_info(false);
        behind.push(settings.connect(&proxy.url()).await?);
        proxies.push(proxy);
    }
    let holders = clients(&servers, lease).await?;
    for holder in &holders {
        held.push(holder.lock("stock").acquire().await?);
    }
    // A server would wait for half of the response timeout, which is a quarter of the lease.
    let settings = RedLock::builder(behind).node_timeout(lease / 16);
    let lock = settings.restart_guard(false).build()?.lock("stock");
    let error = lock.acquire_timeout(lease / 8).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::TimedOut, "{error}");
    Ok(())
}

/// T65. Redisson's read-write lock acquires the key on one server of three, and nothing is lost. It acquires the key on
/// a second one, and the holder learns of the loss and its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_majority_is_told_that_another_kind_was_taken() -> Result<()> {
    let servers = Independents::start(3)?;
    let redlock = redlock(&servers).await?;
    let lock = redlock.lock("stock");
    let guard = lock.acquire().await?;
    let writer = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7:write";
    // Redisson sets its own lease. Without it the key would expire with our lease, and we would put our lock back.
    let mixed = |server: usize| {
        let server = &servers.nodes()[server];
        server.admin(&["HSET", "stock", "mode", "write", writer, "1"])?;
        server.admin(&["PEXPIRE", "stock", "30000"])
    };
    mixed(0)?;
    tokio::time::sleep(lease()).await;
    ensure!(guard.is_held(), "two of three are its own");
    mixed(1)?;
    let told = within(lease(), "the loss is told", guard.lost()).await?;
    ensure!(told == LostReason::WrongType, "{told}");
    guard.release().await.unwrap_err();
    for server in servers.nodes() {
        server.admin(&["DEL", "stock"])?;
    }
    let guard = lock.acquire().await?;
    mixed(0)?;
    mixed(2)?;
    let error = guard.release().await.unwrap_err();
    let reason = error.lost_reason();
    ensure!(reason == Some(LostReason::WrongType), "{error}");
    Ok(())
}
