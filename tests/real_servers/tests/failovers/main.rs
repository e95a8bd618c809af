//! Failovers one after another while locks are held and handed over: the guarantees of each acknowledgement policy.
//!
//! `cargo xtask full` makes two hundred of them.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod crowd;
mod ledger;
mod servers;

use anyhow::{Context, Result, ensure};
use tidelock::ReplicaAck;

use crowd::Crowd;
use servers::{ENDS, Servers};

/// Logs the clients' events, so that a failed test shows them: a rare failure is hard to reproduce.
fn show_logs() {
    // An error means that another test of this process has installed the subscriber already.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_test_writer()
        .with_ansi(false)
        .try_init();
}

/// Runs this number of failovers under load with one policy.
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
        // In a cluster these names lie on several shards.
        let name = crowd::kept(number);
        let limit = crowd::LEASE * 2;
        let met = tokio::task::block_in_place(|| servers.meet(end, &name, limit));
        let outage = met.with_context(story)?;
        tracing::info!("{}: another one after {outage:?}", story());
        // The last renewal may be a third of a lease old, so a lease is sure to survive only an outage shorter than the
        // rest. Half a lease leaves a margin.
        let outlasted = outage < crowd::LEASE / 2;
        settled = Some((testkit::process::boot_time(), outlasted));
        crowd.moves_on(periods).await.with_context(story)?;
        long += usize::from(!outlasted);
        crowd
            .check(servers, outlasted)
            .await
            .with_context(|| format!("{}, without a primary for {outage:?}", story()))?;
    }
    // We allow one long failover in any run: sentinels choose at random which candidate they vote for first.
    ensure!(
        long <= 1 + failovers / 10,
        "{long} of {failovers} failovers took so long that they show nothing"
    );
    let periods = crowd.periods();
    ensure!(periods > failovers * 10, "only {periods} locks were taken");
    crowd.disperse().await
}

/// With `all` a single failover loses no granted lock: each holder keeps its hold, and no other client gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_no_granted_lock_is_lost_by_a_failover() -> Result<()> {
    survive(Servers::sentinels()?, ReplicaAck::All, ENDS.len()).await
}

/// With `any` a failover may lose a granted lock, but its holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_any_every_loss_by_a_failover_is_told() -> Result<()> {
    survive(Servers::sentinels()?, ReplicaAck::Any, ENDS.len()).await
}

/// The same with two hundred failovers, on four sets of servers in parallel.
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

/// Sixty failovers in clusters, one cluster per policy. They run one after another, because a cluster is nine servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes some minutes; `cargo xtask full` runs it"]
async fn sixty_failovers_of_shards() -> Result<()> {
    for policy in [ReplicaAck::All, ReplicaAck::Any, ReplicaAck::Majority] {
        survive(Servers::cluster()?, policy, 20).await?;
    }
    Ok(())
}
