//! The marks of a job's slots: a slot is done only when the replicas know it.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Result, ensure};
use tidelock::ErrorKind;
use tidelock::ReplicaAck::{All, Any};
use tidelock::once::{Once, Slot};
use tokio::sync::Notify;

use crate::world::{SOON, World, within};

/// Long, so that the store repeats the write of a mark while the lock is still held.
const LEASE: Duration = Duration::from_secs(4);

/// A replica hangs while the job runs, and the mark stays on the primary alone. A failover would lose it, so the caller
/// is told that the slot may be run again. The write is repeated meanwhile, and no repetition counts as acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_acknowledgements_is_not_done() -> Result<()> {
    for policy in [Any, All] {
        let world = World::of(1, LEASE)?;
        let client = world.client(policy).await?;
        let replica = &world.all.nodes()[1];
        let job = client.once("close the books").slot(Slot::id("2026-11"));
        let run = job.run(|_| async { replica.freeze() });
        match within(SOON * 2, "an answer", run).await? {
            Err(error) => ensure!(error.kind() == ErrorKind::OutcomeUnknown, "{error}"),
            Ok(done) => anyhow::bail!("{policy}: no replica has the mark of {done:?}"),
        }
        replica.thaw()?;
    }
    Ok(())
}

/// The replica hangs only for a moment. The write is repeated until the replica has acknowledged it, and then the slot
/// is done, also after the primary has died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_done_when_a_repeated_write_is_acknowledged() -> Result<()> {
    let world = World::of(1, LEASE)?;
    let client = world.client(All).await?;
    let replica = &world.all.nodes()[1];
    let slot = || Slot::id("2026-11");
    let job = client.once("close the books").slot(slot());
    let frozen = Notify::new();
    let run = job.run(|_| async {
        replica.freeze()?;
        frozen.notify_one();
        anyhow::Ok(())
    });
    let thaw = async {
        frozen.notified().await;
        let before = world.calls("wait")?;
        // The first write waits in vain. Each later one has a new connection, which asks first whether it may wait.
        while world.calls("wait")? < before + 3 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        replica.thaw()
    };
    let both = Box::pin(async { tokio::join!(run, thaw) });
    let (ran, thawed) = within(SOON, "an answer", both).await?;
    thawed?;
    ensure!(matches!(ran?, Once::Ran(())), "it was to run here");
    world.all.primary().kill()?;
    replica.admin(&["REPLICAOF", "NO", "ONE"])?;
    world.lead_to(replica);
    let other = world.client(Any).await?;
    let again = other.once("close the books").slot(slot());
    let again = within(
        SOON,
        "an answer",
        again.run(|_| async { Ok::<_, Infallible>(()) }),
    );
    let again = again.await??;
    ensure!(matches!(again, Once::Done(_)), "run again: {again:?}");
    Ok(())
}
