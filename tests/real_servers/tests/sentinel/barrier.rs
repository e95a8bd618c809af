//! A barrier whose primary dies in the middle of a use.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use real_servers::{SOON, builder, within};
use testkit::servers::Sentinels;
use tidelock::{Barrier, ErrorKind, ReplicaAck};

use crate::failover::ELECTION;

/// Longer than an election usually takes.
const LEASE: Duration = Duration::from_secs(20);

/// The two that are inside stay inside, because all replicas knew it, and leave together. One that waits is let in, or told; the next
/// two enter in any case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t78_a_failover_in_the_middle_of_a_use_hangs_nobody() -> Result<()> {
    let sentinels = Sentinels::start()?;
    let client = async || {
        let settings = builder(LEASE).acknowledge(ReplicaAck::All);
        settings.connect(&sentinels.url()).await
    };
    let clients = [client().await?, client().await?];
    let [one, other] = clients.each_ref().map(|client| client.barrier("solver", 2));
    let (first, second) = within(SOON, "both enter", enter(&one, &other)).await??;
    let waiting = one.clone();
    let waits = tokio::spawn(async move { waiting.enter().await });
    let waiting = async {
        while one.members().await?.waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        anyhow::Ok(())
    };
    within(SOON, "it waits", waiting).await??;
    let (old, begun) = (sentinels.primary()?, Instant::now());
    old.kill()?;
    sentinels.await_primary_other_than(old.addr(), ELECTION)?;
    // Sentinels that split their votes need longer than the lease.
    let is_quick = begun.elapsed() < LEASE / 2;
    let left = async { tokio::join!(first.leave(), second.leave()) };
    let (first, second) = within(LEASE * 2, "both leave", left).await?;
    let left = first.and(second);
    let is_lost = left
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::Lost);
    if is_quick || !is_lost {
        left.context("all replicas knew that they were inside")?;
    }
    let fourth = other.enter_timeout(LEASE * 2);
    let (third, fourth) =
        within(LEASE * 3, "both end", async { tokio::join!(waits, fourth) }).await?;
    match (third?, fourth) {
        (Ok(third), Ok(fourth)) => ensure!(third.together() == fourth.together()),
        (third, fourth) => {
            let kinds = [third.err(), fourth.err()].map(|error| error.map(|error| error.kind()));
            let told = [ErrorKind::Lost, ErrorKind::Unavailable, ErrorKind::TimedOut];
            ensure!(
                kinds.iter().flatten().all(|kind| told.contains(kind)),
                "{kinds:?}"
            );
        }
    }
    let (first, second) = within(LEASE * 3, "both enter again", enter(&one, &other)).await??;
    let left = async { tokio::join!(first.leave(), second.leave()) };
    let (first, second) = within(LEASE * 2, "both leave", left).await?;
    Ok(first.and(second)?)
}

async fn enter(
    one: &Barrier,
    other: &Barrier,
) -> tidelock::Result<(tidelock::BarrierGuard, tidelock::BarrierGuard)> {
    let (first, second) = tokio::join!(one.enter(), other.enter());
    Ok((first?, second?))
}
