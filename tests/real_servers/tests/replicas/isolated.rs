//! A primary that responds, but whose replicas receive nothing from it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::process::boot_time;
use testkit::servers::RedisServer;
use tidelock::LostReason;
use tidelock::ReplicaAck::{Any, Off};

use crate::world::{World, eventually, listen, once};

/// The holder learns of the loss before a replica with its last acknowledged renewal could grant the lock to another
/// client. The isolated primary grants nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_primary_keeps_no_holder_confident() -> Result<()> {
    let lease = Duration::from_millis(1500);
    let world = World::new(lease)?;
    let client = world.client(Any).await?;
    let guard = client.lock("till").acquire().await?;
    let careless = client.lock("off").acquire_with(once(Off)).await?;
    let told = listen(&guard);
    tokio::time::sleep(lease).await;
    ensure!(told.is_quiet(), "renewals are acknowledged");
    for i in [1, 2] {
        world.all.stall(i);
    }
    let replica = &world.all.nodes()[1];
    let left: u64 = replica.query(&["PTTL", "till"])?;
    let ends_there = boot_time() + Duration::from_millis(left + 1);
    let (at, reason) = told.told().await?;
    ensure!(
        at < ends_there,
        "told {:?} after another may have it",
        at - ends_there
    );
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
    let world = World::new(Duration::from_secs(3))?;
    let client = world.client(Any).await?;
    let guard = client.lock("till").acquire().await?;
    for i in [1, 2] {
        world.all.stall(i);
    }
    let error = guard.extend(Duration::from_secs(60)).await.unwrap_err();
    ensure!(error.is_retryable(), "{error}");
    ensure!(guard.valid_for() < Duration::from_secs(3));
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
    let world = World::new(Duration::from_millis(1500))?;
    let client = world.client(Any).await?;
    let guard = client.lock("till").acquire().await?;
    let told = listen(&guard);
    tokio::time::sleep(world.lease).await;
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
    let (at, _) = told.told().await?;
    ensure!(
        at < ends_there,
        "told {:?} after another may have it",
        at - ends_there
    );
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
