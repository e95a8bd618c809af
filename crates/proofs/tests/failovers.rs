//! Failovers one after another while locks are held and handed on: what each policy of acknowledgement is worth.
//!
//! `cargo xtask full` makes two hundred of them.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

#[path = "failovers/crowd.rs"]
mod crowd;
#[path = "failovers/ledger.rs"]
mod ledger;
#[path = "failovers/servers.rs"]
mod servers;

use anyhow::{Context, Result, ensure};
use tidelock::ReplicaAck;

use crowd::Crowd;
use servers::{ENDS, Servers};

/// What the clients say is shown with a test that fails: what is rare is not easily had again.
fn show_logs() {
    // An error means that another test of this process has come first.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_test_writer()
        .with_ansi(false)
        .try_init();
}

/// That many failovers under a crowd of one policy.
async fn survive(servers: Servers, policy: ReplicaAck, failovers: usize) -> Result<()> {
    show_logs();
    let survived = one_after_another(&servers, policy, failovers).await;
    survived.with_context(|| servers.logs())
}

async fn one_after_another(servers: &Servers, policy: ReplicaAck, failovers: usize) -> Result<()> {
    let mut crowd = Crowd::gather(servers, policy).await?;
    let (mut long, mut settled) = (0, None);
    for number in 0..failovers {
        let end = ENDS[number % ENDS.len()];
        let story = || format!("failover {number}, the primary {end:?}, {policy}");
        if let Some((settled, outlasted)) = settled {
            let renewed = crowd.renewed_since(settled, outlasted).await;
            renewed.with_context(|| format!("before {}", story()))?;
        }
        crowd.holds_all().await.with_context(story)?;
        let periods = crowd.periods();
        // In a cluster these lie on several shards.
        let name = crowd::kept(number);
        let limit = crowd::LEASE * 2;
        let met = tokio::task::block_in_place(|| servers.meet(end, &name, limit));
        let outage = met.with_context(story)?;
        tracing::info!("{}: another one after {outage:?}", story());
        // The last renewal may have been a third of a lease before it: no lease outlasts more than the rest.
        let outlasted = outage < crowd::LEASE / 2;
        settled = Some((proofs::boot_time(), outlasted));
        crowd.moves_on(periods).await.with_context(story)?;
        long += usize::from(!outlasted);
        crowd
            .check(servers, outlasted)
            .await
            .with_context(|| format!("{}, without a primary for {outage:?}", story()))?;
    }
    // One may be in any run: sentinels choose at random whom they vote for first.
    ensure!(
        long <= 1 + failovers / 10,
        "{long} of {failovers} failovers took so long that they show nothing"
    );
    let periods = crowd.periods();
    ensure!(periods > failovers * 10, "only {periods} locks were taken");
    crowd.disperse().await
}

/// With `all` a single failover loses no lock that was granted: whoever holds goes on holding, and nobody else gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_no_granted_lock_is_lost_by_a_failover() -> Result<()> {
    survive(Servers::sentinels()?, ReplicaAck::All, ENDS.len()).await
}

/// With `any` a failover may lose what was granted. Its holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_any_every_loss_by_a_failover_is_told() -> Result<()> {
    survive(Servers::sentinels()?, ReplicaAck::Any, ENDS.len()).await
}

/// The same two hundred times, over four sets of servers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes some minutes; `cargo xtask full` runs it"]
async fn two_hundred_failovers() -> Result<()> {
    let policies = [
        ReplicaAck::All,
        ReplicaAck::Any,
        ReplicaAck::All,
        ReplicaAck::Majority,
    ];
    let sets = policies.map(|policy| {
        tokio::spawn(async move { survive(Servers::sentinels()?, policy, 50).await })
    });
    for set in sets {
        set.await??;
    }
    Ok(())
}

/// Sixty in clusters, over one of them for each policy, one after the other: a cluster is nine servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes some minutes; `cargo xtask full` runs it"]
async fn sixty_failovers_of_shards() -> Result<()> {
    for policy in [ReplicaAck::All, ReplicaAck::Any, ReplicaAck::Majority] {
        survive(Servers::cluster()?, policy, 20).await?;
    }
    Ok(())
}
