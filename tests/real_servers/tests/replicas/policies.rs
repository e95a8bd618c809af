//! What each policy guarantees, and the behaviour when it cannot be met.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::ReplicaAck::{All, Any, Majority, Off};
use tidelock::store::redis_scripts;
use tidelock::{Client, ErrorKind};
use tokio::runtime::{Builder, Runtime};

use crate::world::{SOON, World, eventually, listen, long, once, patient, within};
use real_servers::{ms, secs};

fn lease() -> Duration {
    secs(4)
}

/// The number of scripts that clients have sent through the proxy for this lock. An attempt whose grant is undone sends two.
fn scripts(proxy: &Proxy, lock: &str) -> usize {
    let log = proxy.log();
    let sent = log.iter().filter(|one| one.name == "EVALSHA");
    sent.filter(|one| one.args.iter().any(|arg| arg == lock.as_bytes()))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_acknowledgements_reached_are_on_the_guard() -> Result<()> {
    let world = World::new(lease())?;
    let client = world.client(Any).await?;
    for (policy, needed) in [
        (Off, None),
        (Any, Some(1)),
        (Majority, Some(1)),
        (All, Some(2)),
    ] {
        let lock = client.lock("till").fenced();
        let guard = within(SOON, "a grant", lock.acquire_with(patient(policy))).await??;
        let seen = guard.acknowledged();
        ensure!(seen.map(|seen| seen.needed) == needed, "{policy}: {seen:?}");
        ensure!(seen.is_none_or(|seen| (seen.needed..=2).contains(&seen.reached)));
        guard.release().await?;
    }
    // Without an explicit policy, the client's own one applies.
    let guard = client.lock("till").acquire().await?;
    ensure!(guard.acknowledged().is_some_and(|seen| seen.needed == 1));
    let strict = world.client(All).await?;
    let other = strict.lock("other").acquire().await?;
    ensure!(other.acknowledged().is_some_and(|seen| seen.reached == 2));
    Ok(())
}

/// One of two replicas is frozen. `all` fails with an error and leaves no lock. The other policies are not affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_a_frozen_replica_does_not_acknowledge_is_undone() -> Result<()> {
    let world = World::new(long() * 10)?;
    let client = world.client_within(Any, long()).await?;
    let lock = client.lock("till");
    lock.acquire_with(patient(All)).await?.release().await?;
    world.all.nodes()[2].freeze()?;
    let start = Instant::now();
    let error = lock.acquire_with(once(All)).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("1 of 2 replicas"), "{error}");
    ensure!(
        start.elapsed() >= long(),
        "not before the replicas had their time"
    );
    ensure!(world.is_free("till")?, "the grant is undone");
    for policy in [Any, Majority] {
        let start = Instant::now();
        let guard = lock.acquire_with(patient(policy)).await?;
        ensure!(
            start.elapsed() < long(),
            "{policy} took {:?}",
            start.elapsed()
        );
        ensure!(guard.acknowledged().is_some_and(|seen| seen.reached == 1));
        guard.release().await?;
    }
    let before = scripts(&world.proxy, "till");
    let waiting = tokio::spawn(lock.acquire_with(patient(All)));
    // The first attempt and its undo, and the second attempt.
    let again = |proxy: &Proxy| scripts(proxy, "till") >= before + 3;
    within(SOON, "the next try", world.proxy.until(again)).await?;
    ensure!(
        !waiting.is_finished(),
        "nothing is granted without the replica"
    );
    world.all.nodes()[2].thaw()?;
    let guard = within(SOON, "a grant once the replica is back", waiting).await???;
    ensure!(guard.acknowledged().is_some_and(|seen| seen.reached == 2));
    guard.release().await?;
    ensure!(world.is_free("till")?);
    Ok(())
}

/// The answer to the release of such a grant says that others wait. It is undone all the same: no request of it can
/// arrive any more, so there is no tombstone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_without_acknowledgement_is_undone_while_others_wait() -> Result<()> {
    let world = World::of(1, long() * 10)?;
    let client = world.client_within(All, long()).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    let primary = world.all.primary();
    // It listens as a waiter does, and takes nothing.
    let mut waiter = TcpStream::connect(primary.addr())?;
    waiter.write_all(b"SUBSCRIBE redisson_lock__channel:{till}\r\n")?;
    eventually("it listens", || {
        let channel = "redisson_lock__channel:{till}";
        let (_, count): (String, u64) = primary.query(&["PUBSUB", "NUMSUB", channel])?;
        Ok(count == 1)
    })?;
    world.all.nodes()[1].freeze()?;
    let error = lock.acquire_with(once(All)).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("0 of 1 replicas"), "{error}");
    ensure!(world.is_free("till")?, "the grant is undone");
    let keys = primary.keys()?;
    let is_tombstone = |key: &String| key.starts_with("tidelock:withdrawn:");
    ensure!(!keys.iter().any(is_tombstone), "{keys:?}");
    Ok(())
}

/// A grant without acknowledgement is released again. We delay that release until the lock has been granted after all:
/// the late release must not end the newer hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_undo_ends_no_later_grant() -> Result<()> {
    let world = World::of(1, lease())?;
    let client = world.client(All).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    let release: String =
        (world.all.primary()).query(&["SCRIPT", "LOAD", redis_scripts::release()])?;
    let when = When::command("EVALSHA", release);
    let undo = world.proxy.on(when, Then::Hold);
    world.all.nodes()[1].freeze()?;
    let waiting = tokio::spawn(lock.acquire_with(patient(All)));
    within(SOON, "the undo is on its way", undo.fired()).await?;
    world.all.nodes()[1].thaw()?;
    let guard = within(SOON, "a grant after all", waiting).await???;
    let before = world.calls("evalsha")?;
    undo.release();
    eventually("the undo arrives", || Ok(world.calls("evalsha")? > before))?;
    let primary = world.all.primary();
    ensure!(
        World::holder(primary, "till")? == Some(guard.owner_id()),
        "the holder's own lock was ended"
    );
    guard.release().await?;
    Ok(())
}

/// The only replica is frozen. `any` needs one acknowledging replica, so nothing is granted, and a holder learns of the
/// loss before its lease ends. With two replicas, the other one would suffice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_that_is_the_only_one_stops_grants_and_is_told() -> Result<()> {
    let world = World::of(1, lease())?;
    let client = world.client_within(Any, long()).await?;
    let held = client.lock("held").acquire().await?;
    let off = client.lock("off").acquire_with(patient(Off)).await?;
    let told = listen(&held);
    world.all.nodes()[1].freeze()?;
    let error = client
        .lock("till")
        .acquire_with(once(Any).expires_after(long() * 10))
        .await
        .unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("0 of 1 replicas"), "{error}");
    ensure!(world.is_free("till")?, "the grant is undone");
    let reason = told.told().await?.1;
    ensure!(reason == tidelock::LostReason::Expired, "{reason}");
    ensure!(off.is_held(), "a hold that asks no replica goes on");
    world.all.nodes()[1].thaw()?;
    client
        .lock("till")
        .acquire_with(patient(Any))
        .await?
        .release()
        .await?;
    Ok(())
}

/// A replica that has just disconnected may be about to replace its primary, and the primary cannot know. So it still
/// counts for `all`. Weaker policies continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_has_just_gone_is_still_one_of_all() -> Result<()> {
    let world = World::new(lease())?;
    let client = world.client_within(Any, long()).await?;
    let lock = client.lock("till");
    let kept = lock.acquire_with(patient(All)).await?;
    world.all.nodes()[2].kill()?;
    eventually("the primary has noticed", || {
        Ok(world.all.primary().info("connected_slaves")? == "1")
    })?;
    let error = client
        .lock("other")
        .acquire_with(once(All).expires_after(long() * 10))
        .await
        .unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("1 of 2 replicas"), "{error}");
    ensure!(world.is_free("other")?, "the grant is undone");
    let other = client.lock("other").acquire_with(patient(Any)).await?;
    ensure!(other.acknowledged().is_some_and(|seen| seen.reached == 1));
    let told = listen(&kept).told().await?.1;
    ensure!(told == tidelock::LostReason::Expired, "{told}");
    Ok(())
}

/// While `all` waits for a frozen replica, nobody else is blocked: releases and other policies are not, and a refusal
/// takes no longer than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_holds_up_nobody_else() -> Result<()> {
    let limit = long() * 3;
    // A `WAIT` for the frozen replica has just begun. A client that waited for its end would wait for nearly the whole limit.
    let at_once = limit / 2;
    let world = World::new(limit * 10)?;
    let client = world.client_within(Any, limit).await?;
    let held = client.lock("held").acquire().await?;
    world.all.nodes()[2].freeze()?;
    let hanging: Vec<_> = (0..20)
        .map(|n| client.lock(&format!("hanging {n}")))
        .map(|lock| tokio::spawn(lock.acquire_with(patient(All))))
        .collect();
    let hangs = |proxy: &Proxy| scripts(proxy, "hanging 0") > 0;
    within(SOON, "the first try", world.proxy.until(hangs)).await?;
    for _ in 0..20 {
        let start = Instant::now();
        client.lock("free").acquire().await?.release().await?;
        ensure!(start.elapsed() < at_once, "took {:?}", start.elapsed());
        let start = Instant::now();
        ensure!(client.lock("held").try_acquire().await?.is_none());
        ensure!(
            start.elapsed() < at_once,
            "a refusal took {:?}",
            start.elapsed()
        );
    }
    for hanging in &hanging {
        ensure!(!hanging.is_finished());
        hanging.abort();
    }
    let start = Instant::now();
    held.release().await?;
    ensure!(
        start.elapsed() < at_once,
        "a release took {:?}",
        start.elapsed()
    );
    Ok(())
}

/// An attempt with `all` on a lock that another client holds is refused at once, also while the `WAIT` of a third
/// request hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_wait_for_replicas() -> Result<()> {
    let world = World::new(long() * 10)?;
    let client = world.client_within(All, long()).await?;
    let held = client.lock("held").acquire().await?;
    world.all.nodes()[2].freeze()?;
    let hanging = tokio::spawn(client.lock("hanging").acquire());
    for tries in 1..=3 {
        // Each of the tries before has sent a script, and another one for its undo.
        let hangs = |proxy: &Proxy| scripts(proxy, "hanging") >= 2 * tries - 1;
        within(SOON, "the next try", world.proxy.until(hangs)).await?;
        let start = Instant::now();
        ensure!(client.lock("held").try_acquire().await?.is_none());
        // Its own `WAIT`, and the rest of the one that has just begun, take longer.
        let took = start.elapsed();
        ensure!(took < long() * 3 / 4, "took {took:?}");
    }
    hanging.abort();
    drop(held);
    Ok(())
}

/// Two holds with different policies, renewed in one batch: each is checked against its own policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_are_judged_by_their_own_policy() -> Result<()> {
    let lease = ms(2400);
    let world = World::new(lease)?;
    let client = world.client(Any).await?;
    let strict = client.lock("strict").acquire_with(patient(All)).await?;
    let easy = client.lock("easy").acquire().await?;
    let off = client.lock("off").acquire_with(patient(Off)).await?;
    let told = listen(&strict);
    world.all.nodes()[2].freeze()?;
    told.told().await?;
    tokio::time::sleep(lease).await;
    ensure!(
        easy.is_held() && off.is_held(),
        "one replica goes on acknowledging"
    );
    easy.release().await?;
    off.release().await?;
    Ok(())
}

/// A single server: every policy is met, and no extra command is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_replicas_nothing_more_is_sent() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = Client::builder().publish_process_info(false);
    let client = client.connect(&proxy.url()).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    proxy.reset_counts();
    for policy in [Off, Any, Majority, All] {
        let guard = lock.acquire_with(patient(policy)).await?;
        ensure!(guard.acknowledged().is_none());
        guard.release().await?;
    }
    let counts = proxy.counts();
    // A policy that can need more than one replica asks for the number of replicas each time, in the same round trip.
    let asked = [("EVALSHA".to_owned(), 8), ("INFO".to_owned(), 2)];
    ensure!(counts == asked.into(), "{counts:?}");
    ensure!(proxy.accepted() == 1, "no connection of its own");
    Ok(())
}

/// A replica that is attached later is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_comes_later_is_noticed() -> Result<()> {
    let primary = RedisServer::start()?;
    let client = Client::connect(&primary.url()).await?;
    let lock = client.lock("till");
    ensure!(lock.acquire().await?.acknowledged().is_none());
    let port = primary.port().to_string();
    let _replica = RedisServer::builder()
        .args([
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-diskless-sync-delay",
            "0",
        ])
        .start()?;
    let noticed = async {
        loop {
            let guard = lock.acquire().await?;
            if let Some(seen) = guard.acknowledged() {
                return anyhow::Ok(seen);
            }
            guard.release().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let seen = within(SOON * 2, "the replica is asked", noticed).await??;
    ensure!((seen.needed, seen.reached) == (1, 1), "{seen:?}");
    Ok(())
}

/// A replica connects to a server that had none, and the reply that would show it is lost. The last status is no reason
/// to grant a lock of which the replica knows nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_number_of_replicas_is_not_none() -> Result<()> {
    let primary = RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0"])
        .start()?;
    let proxy = Proxy::start(primary.addr())?;
    let client = Client::builder()
        .lease(SOON * 3)
        .response_timeout(SOON / 2)
        .publish_process_info(false)
        .acknowledge(All);
    let client = client.connect(&proxy.url()).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    let port = primary.port().to_string();
    let _replica = RedisServer::builder()
        .args(["--replicaof", "127.0.0.1", &port])
        .start()?;
    eventually("the primary has a replica", || {
        Ok(primary.info("connected_slaves")? == "1")
    })?;
    let lost = proxy.on(When::command("INFO", "replication"), Then::DropReply);
    // The attempt whose question has no answer is given back, and the next one asks the replica.
    let guard = lock.acquire_with(patient(All)).await?;
    ensure!(lost.count() == 1, "{}", lost.count());
    ensure!(guard.acknowledged().is_some_and(|seen| seen.reached == 1));
    guard.release().await?;
    Ok(())
}

/// A runtime that runs its tasks only while a thread blocks on it.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The runtime of the first acquisition is kept and not driven. What waits for the replicas does not run on it.
#[test]
fn a_runtime_that_nobody_drives_stops_no_acknowledgement() -> Result<()> {
    let world = World::of(1, SOON * 3)?;
    let (first, second) = (runtime()?, runtime()?);
    let client = first.block_on(world.client(Any))?;
    first.block_on(async {
        let guard = client.lock("till").acquire().await?;
        ensure!(guard.acknowledged().is_some());
        anyhow::Ok(guard.release().await?)
    })?;
    second.block_on(async {
        let guard = client.lock("stock").acquire_timeout(SOON).await?;
        ensure!(guard.acknowledged().is_some());
        Ok(())
    })
}

/// Stores without replicas accept every policy.
#[tokio::test]
async fn stores_of_one_place_fulfil_every_policy() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = format!("sqlite:{}", dir.path().join("locks.db").display());
    for url in ["memory:", &file] {
        let client = Client::builder().acknowledge(All).connect(url).await?;
        let guard = client
            .lock("till")
            .acquire()
            .await
            .context(url.to_owned())?;
        ensure!(guard.acknowledged().is_none());
        guard.release().await?;
    }
    Ok(())
}
