//! A primary that responds, but whose replicas receive nothing from it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::process::boot_time;
use testkit::servers::RedisServer;
use tidelock::ReplicaAck::{Any, Off};
use tidelock::{Client, Guard, LostReason};

use crate::world::{SOON, Told, World, eventually, listen, once};
use real_servers::secs;

fn lease() -> Duration {
    secs(3)
}

/// The share of the lease that these clients do not rely on. A busy machine may be late to tell a holder, and must not be
/// later than the lease lasts on a replica.
const DRIFT: f64 = 0.25;

async fn wary_client(world: &World) -> Result<Client> {
    let builder = world.builder().acknowledge(Any);
    let builder = builder.drift(DRIFT, Duration::ZERO);
    Ok(builder
        .connect_within(SOON)
        .connect(&world.proxy.url())
        .await?)
}

/// Waits for the loss, and returns its reason. Fails unless it was told before the lease ends on the replicas, and unless the
/// guard counted only renewals that they have.
async fn told_in_time(guard: &Guard, told: Told, ends_there: Duration) -> Result<LostReason> {
    let told = told.told();
    tokio::pin!(told);
    let mut claimed = Duration::ZERO;
    let (at, reason) = loop {
        // We read the clock first, so that a pause between the two makes the claim no later.
        let (now, left) = (boot_time(), guard.valid_for());
        if !left.is_zero() {
            claimed = claimed.max(now + left);
        }
        tokio::select! {
            told = &mut told => break told?,
            () = tokio::time::sleep(lease() / 100) => {}
        }
    };
    let allowed = ends_there - lease().mul_f64(DRIFT);
    ensure!(
        claimed <= allowed,
        "claimed for {:?} too long",
        claimed - allowed
    );
    ensure!(
        at < ends_there,
        "told {:?} after another may have it",
        at - ends_there
    );
    Ok(reason)
}

/// The holder learns of the loss before a replica with its last acknowledged renewal could grant the lock to another
/// client. The isolated primary grants nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_primary_keeps_no_holder_confident() -> Result<()> {
    let world = World::new(lease())?;
    let client = wary_client(&world).await?;
    let guard = client.lock("till").acquire().await?;
    let careless = client.lock("off").acquire_with(once(Off)).await?;
    let told = listen(&guard);
    tokio::time::sleep(lease()).await;
    ensure!(told.is_quiet(), "renewals are acknowledged");
    for i in [1, 2] {
        world.all.stall(i);
    }
    // A renewal that came between the two stalls has been acknowledged by the second replica alone.
    let mut ends_there = Duration::ZERO;
    for replica in &world.all.nodes()[1..] {
        let left: u64 = replica.query(&["PTTL", "till"])?;
        ends_there = ends_there.max(boot_time() + Duration::from_millis(left + 1));
    }
    let reason = told_in_time(&guard, told, ends_there).await?;
    ensure!(reason == LostReason::Expired, "{reason}");
    let primary = world.all.primary();
    let left: i64 = primary.query(&["PTTL", "till"])?;
    ensure!(left > 0, "the primary still says yes");
    ensure!(careless.is_held(), "who does not ask is not told");
    let error = client
        .lock("other")
        .acquire_with(once(Any))
        .await
        .unwrap_err();
    ensure!(error.is_retryable(), "{error}");
    ensure!(world.is_free("other")?);
    Ok(())
}

/// An extension needs acknowledgement, as a renewal does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_nobody_acknowledges_proves_nothing() -> Result<()> {
    let world = World::new(secs(6))?;
    let client = world.client(Any).await?;
    let guard = client.lock("till").acquire().await?;
    for i in [1, 2] {
        world.all.stall(i);
    }
    let error = guard.extend(Duration::from_secs(60)).await.unwrap_err();
    ensure!(error.is_retryable(), "{error}");
    ensure!(guard.valid_for() < world.lease);
    for i in [1, 2] {
        world.all.resume(i);
    }
    guard.extend(Duration::from_secs(60)).await?;
    ensure!(guard.valid_for() > Duration::from_secs(50));
    // The unacknowledged lease on the primary is longer than the requested one. The extension must still ask the
    // replicas.
    for i in [1, 2] {
        world.all.stall(i);
    }
    let error = guard.extend(Duration::from_secs(6)).await.unwrap_err();
    ensure!(error.is_retryable(), "{error}");
    Ok(())
}

/// The replicas now follow another primary, and the old one has seen them disconnect: by its own count it is a server
/// without replicas. Its holder must still learn of the loss before the new primary can grant the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_has_lost_its_replicas_keeps_no_holder_confident() -> Result<()> {
    let world = World::new(lease())?;
    let client = wary_client(&world).await?;
    let guard = client.lock("till").acquire().await?;
    let told = listen(&guard);
    tokio::time::sleep(lease()).await;
    let old = world.all.primary();
    let [_, new, third] = world.all.nodes() else {
        bail!("three servers");
    };
    // The old primary gets no message about the change. The order matters: what a replica acknowledges to the old primary
    // must be on the new one. So the third replica leaves first, and the new primary then receives what the third one may
    // have acknowledged.
    third.admin(&["REPLICAOF", "127.0.0.1", &new.port().to_string()])?;
    let sent = offset(old, "master_repl_offset")?;
    eventually("it has what the old primary has sent", || {
        Ok(offset(new, "slave_repl_offset")? >= sent)
    })?;
    new.admin(&["REPLICAOF", "NO", "ONE"])?;
    let left: u64 = new.query(&["PTTL", "till"])?;
    let ends_there = boot_time() + Duration::from_millis(left + 1);
    eventually("it has none left", || {
        let info: String = old.query(&["INFO", "replication"])?;
        Ok(info.contains("role:master") && info.contains("connected_slaves:0"))
    })?;
    told_in_time(&guard, told, ends_there).await?;
    Ok(())
}

/// A count of bytes in a server's own description of its replication.
fn offset(server: &RedisServer, field: &str) -> Result<u64> {
    let info: String = server.query(&["INFO", "replication"])?;
    let line = info.lines().find_map(|line| line.strip_prefix(field));
    let count = line.and_then(|rest| rest.strip_prefix(':'));
    Ok(count
        .with_context(|| format!("no {field}"))?
        .trim()
        .parse()?)
}
