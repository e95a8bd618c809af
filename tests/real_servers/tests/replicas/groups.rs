//! The cost of acknowledgement.

use std::time::Duration;

use anyhow::{Result, ensure};
use tidelock::ReplicaAck::{All, Any, Majority};
use tokio::task::JoinSet;

use crate::world::{SOON, World, once, patient, within};
use real_servers::secs;

const LEASE: Duration = Duration::from_secs(30);

/// One script and one `WAIT`, sent together on a separate connection. The release uses the ordinary connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_costs_one_pipeline() -> Result<()> {
    let world = World::new(LEASE)?;
    // A grant that is not acknowledged in time is undone and repeated, which costs more.
    let client = world.client_within(Any, LEASE / 6).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    world.proxy.reset_counts();
    lock.acquire().await?.release().await?;
    // A grant asks for the number of replicas too, if the last answer is older than a second.
    let log = world.proxy.log();
    let asked = log.iter().filter(|logged| logged.name == "INFO").count();
    ensure!(asked <= 1, "asked {asked} times for the replicas");
    let log: Vec<_> = log.iter().filter(|logged| logged.name != "INFO").collect();
    let names: Vec<&str> = log.iter().map(|logged| &*logged.name).collect();
    ensure!(names == ["EVALSHA", "WAIT", "EVALSHA"], "{names:?}");
    ensure!(log[0].connection == log[1].connection);
    ensure!(
        log[0].connection != log[2].connection,
        "a release waits for nobody's replicas"
    );
    Ok(())
}

/// All requests that arrive while a `WAIT` is in flight share the next `WAIT`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_its_waits() -> Result<()> {
    const CROWD: u64 = 64;
    let world = World::new(LEASE)?;
    let client = world.client_within(Any, LEASE / 6).await?;
    client.lock("warm").acquire().await?.release().await?;
    let before = world.calls("wait")?;
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let lock = client.lock(&format!("lock {n}"));
        crowd.spawn(async move { lock.acquire().await });
    }
    let guards = within(SOON, "64 grants", crowd.join_all()).await?;
    let waits = world.calls("wait")? - before;
    ensure!(waits <= CROWD / 4, "{waits} WAITs for {CROWD} acquires");
    for guard in guards {
        ensure!(guard?.acknowledged().is_some_and(|seen| seen.reached >= 1));
    }
    Ok(())
}

/// A batch of renewals costs one `WAIT`, on a connection that releases do not use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_renewals_costs_one_wait() -> Result<()> {
    const LOCKS: usize = 50;
    let world = World::new(secs(3))?;
    let client = world.client(Any).await?;
    let mut guards = Vec::new();
    for n in 0..LOCKS {
        guards.push(client.lock(&format!("lock {n}")).acquire().await?);
    }
    // We skip the first renewals: they are spread out, as the acquires were.
    let renewed = |times| world.proxy.until(move |proxy| proxy.count("WAIT") >= times);
    within(SOON, "a period", renewed(LOCKS as u64 + 1)).await?;
    tokio::time::sleep(world.lease / 3).await;
    world.proxy.reset_counts();
    within(SOON, "two periods", renewed(2)).await?;
    let scripts = world.proxy.count("EVALSHA");
    ensure!(scripts <= 3, "{scripts} scripts for two batches");
    ensure!(guards.iter().all(tidelock::Guard::is_held));
    Ok(())
}

/// After `SCRIPT FLUSH` the client loads the scripts again, and the grant is still acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_the_server_forgot_is_acknowledged_too() -> Result<()> {
    let world = World::new(LEASE)?;
    let client = world.client(Any).await?;
    let lock = client.lock("till");
    lock.acquire().await?.release().await?;
    world.all.primary().admin(&["SCRIPT", "FLUSH"])?;
    for replica in &world.all.nodes()[1..] {
        replica.freeze()?;
    }
    let refused = lock.acquire_with(once(Any)).await;
    ensure!(
        refused.is_err_and(|error| error.is_retryable()),
        "nobody has it"
    );
    for replica in &world.all.nodes()[1..] {
        replica.thaw()?;
    }
    world.all.primary().admin(&["SCRIPT", "FLUSH"])?;
    let guard = within(SOON, "a grant", lock.acquire()).await??;
    ensure!(guard.acknowledged().is_some_and(|seen| seen.reached >= 1));
    Ok(())
}

/// Closing the client closes the connections that are reserved for `WAIT`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_connection() -> Result<()> {
    let world = World::new(secs(2))?;
    let client = world.client(Any).await?;
    for policy in [Any, Majority, All] {
        let guard = client.lock("till").acquire_with(patient(policy)).await?;
        let waits = world.proxy.count("WAIT");
        let renewed = world.proxy.until(|proxy| proxy.count("WAIT") > waits);
        within(SOON, "a renewal", renewed).await?;
        guard.release().await?;
    }
    ensure!(world.proxy.connections() > 4);
    let dropped = world.client(All).await?;
    drop(dropped.lock("other").acquire().await?);
    drop(dropped);
    client.close(Duration::ZERO).await;
    let ended = world.proxy.until(|proxy| proxy.connections() == 0);
    within(SOON, "every connection ends", ended).await
}
