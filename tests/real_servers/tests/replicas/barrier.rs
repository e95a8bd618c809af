//! Members of a barrier that want replicas to know that they have entered.

use std::time::Duration;

use anyhow::{Result, ensure};
use tidelock::ReplicaAck::{self, All, Any, Majority, Off};
use tidelock::{Barrier, BarrierGuard};
use tokio::task::JoinHandle;

use crate::world::{SOON, World, within};

/// Long, so that no renewal is due while the replicas hear nothing.
const LEASE: Duration = Duration::from_secs(30);

/// A member that waits for a second one.
async fn waits(
    world: &World,
    policy: ReplicaAck,
) -> Result<JoinHandle<tidelock::Result<BarrierGuard>>> {
    let barrier = world.client(policy).await?.barrier("solver", 2);
    let seen = barrier.clone();
    let waiter = tokio::spawn(async move { barrier.enter().await });
    until(&seen, (0, 1)).await?;
    Ok(waiter)
}

async fn until(barrier: &Barrier, wanted: (usize, usize)) -> Result<()> {
    let reached = async {
        loop {
            let now = barrier.members().await?;
            if (now.inside.len(), now.waiting.len()) == wanted {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    within(SOON, "the members", reached).await?
}

/// Another member, which asks for no acknowledgement, lets this one in while the replicas hear nothing. With `majority` or `all`
/// this one has entered only when they know it, and then it stays inside after a failover. With `any` it does not wait: no failover
/// is promised to keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t78_a_member_that_wants_replicas_has_entered_when_they_know_it() -> Result<()> {
    for policy in [Any, Majority, All] {
        let world = World::new(LEASE)?;
        let first = waits(&world, policy).await?;
        world.in_sync(1)?;
        world.in_sync(2)?;
        for i in [1, 2] {
            world.all.stall(i);
        }
        let careless = world.client(Off).await?.barrier("solver", 2);
        let second = within(SOON, "the last member", careless.enter()).await??;
        until(&careless, (2, 0)).await?;
        if policy == Any {
            let first = within(SOON, "it does not wait", first).await???;
            ensure!(first.together() == second.together());
            continue;
        }
        // Much longer than a request and its repetitions take.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        ensure!(
            !first.is_finished(),
            "{policy}: inside, and only the primary knows it"
        );
        for i in [1, 2] {
            world.all.resume(i);
        }
        let first = within(SOON * 2, "the replicas know it", first).await???;
        ensure!(first.together() == second.together());
        world.in_sync(1)?; // one of the two is enough for a majority
        world.all.primary().kill()?;
        world.lead_to(world.all.promote(1)?);
        let seen = world.client(Off).await?.barrier("solver", 2);
        let now = within(SOON, "the new primary", seen.members()).await??;
        ensure!(now.inside.contains(&first.owner_id()), "{policy}: {now:?}");
    }
    Ok(())
}
