//! Row T19: the server loses its script cache.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;

use crate::looks::{listening, more_scripts, scripts, until};
use crate::setup::{patient, shop_on};
use real_servers::{SOON, listen, secs, within};

fn lease() -> Duration {
    secs(3)
}

/// T19: `SCRIPT FLUSH` before each operation. None of them fails, and each takes effect once: the count in the store is
/// one, and the token grows by one per grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t19_a_forgotten_script_is_sent_again() -> Result<()> {
    let shop = patient(lease()).await?;
    let lock = shop.client.lock("till").fenced();
    let flush = || shop.server.admin(&["SCRIPT", "FLUSH"]);
    for round in 1..=3_u64 {
        flush()?;
        let guard = lock.acquire().await?;
        let token = guard.token().get();
        ensure!(token == round, "token {token} in round {round}");
        shop.held_once(&guard)?;
        flush()?;
        let seen = lock.inspect().await?;
        ensure!(seen.is_locked() && seen.holders[0].holds == 1, "{seen:?}");
        flush()?;
        ensure!(shop.client.lock("till").try_acquire().await?.is_none());
        flush()?;
        guard.extend(lease() * 2).await?;
        ensure!(shop.time_left("till")?.is_some_and(|left| left > lease()));
        flush()?;
        guard.release().await?;
        ensure!(shop.is_free("till")?, "round {round} left it locked");
    }
    let guard = lock.acquire().await?;
    flush()?;
    ensure!(lock.force_release().await?, "it was held");
    ensure!(shop.is_free("till")?);
    drop(guard);
    shop.nothing_left(vec![]).await
}

/// T19 while a lock is held: every renewal, for more than a lease, finds no script on the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t19_renewals_survive_forgotten_scripts() -> Result<()> {
    let shop = patient(lease()).await?;
    let guard = shop.client.lock("till").acquire().await?;
    let told = listen(&guard);
    for _ in 0..4 {
        shop.server.admin(&["SCRIPT", "FLUSH"])?;
        let renewed = more_scripts(&shop.proxy, scripts(&shop.proxy), 2);
        within(lease(), "a renewal, refused and repeated", renewed).await?;
    }
    ensure!(told.is_quiet(), "told of a loss");
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![]).await
}

/// T19 with another server: the connections are cut and then lead to a promoted replica. It has the keys and none of
/// the scripts. The hold continues there, and so do the waiter and its wake-up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t19_a_promoted_replica_without_scripts_goes_on() -> Result<()> {
    let lease = secs(4);
    let at_once = || RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]);
    let replica = at_once().start()?;
    let shop = shop_on(at_once(), lease).await?;
    replica.admin(&["REPLICAOF", "127.0.0.1", &shop.server.port().to_string()])?;
    let waiter = shop.another().await?;
    let guard = shop.client.lock("till").acquire().await?;
    let told = listen(&guard);
    let waiting = tokio::spawn(waiter.lock("till").acquire());
    listening(&shop.server, "till").await?;
    until("the lock is on the replica", || {
        replica.query(&["EXISTS", "till"])
    })
    .await?;
    replica.admin(&["REPLICAOF", "NO", "ONE"])?;
    replica.admin(&["SCRIPT", "FLUSH"])?;
    shop.proxy.set_upstream(replica.addr());
    shop.server.kill()?;
    listening(&replica, "till").await?;
    tokio::time::sleep(lease).await;
    ensure!(told.is_quiet(), "lost to a promoted replica");
    ensure!(!waiting.is_finished(), "two hold it");
    guard.release().await?;
    let next = within(lease / 2, "the wake-up on the new server", waiting).await???;
    let counts: Vec<u64> = replica.query(&["HVALS", "till"])?;
    ensure!(counts == [1], "{counts:?}");
    next.release().await?;
    ensure!(!replica.query::<bool, _>(&["EXISTS", "till"])?);
    for client in [&shop.client, &waiter] {
        within(SOON, "closing", client.close(Duration::ZERO)).await?;
    }
    Ok(())
}
