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

use anyhow::{Context, Result, ensure};
use testkit::servers::Sentinels;
use tidelock::Acknowledge;

use crowd::Crowd;

/// How the primary goes.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Frozen,
    Planned,
}

const ENDS: [End; 3] = [End::Killed, End::Frozen, End::Planned];

impl End {
    /// Another primary is there when this returns, and the old one follows it.
    fn meets(self, sentinels: &Sentinels) -> Result<()> {
        let old = sentinels.primary()?;
        match self {
            Self::Killed => old.kill()?,
            Self::Frozen => old.freeze()?,
            Self::Planned => drop(sentinels.failover()?),
        }
        sentinels.await_primary_other_than(old.addr(), crowd::LEASE)?;
        match self {
            Self::Killed => old.restart()?,
            Self::Frozen => old.thaw()?,
            Self::Planned => {}
        }
        sentinels.await_ok()
    }
}

/// That many failovers under a crowd of one policy.
async fn survive(policy: Acknowledge, failovers: usize) -> Result<()> {
    let sentinels = Sentinels::start()?;
    let mut crowd = Crowd::gather(&sentinels, policy).await?;
    for number in 0..failovers {
        let end = ENDS[number % ENDS.len()];
        let story = || format!("failover {number}, the primary {end:?}, {policy}");
        crowd.holds_all().await.with_context(story)?;
        let periods = crowd.periods();
        tokio::task::block_in_place(|| end.meets(&sentinels)).with_context(story)?;
        crowd.moves_on(periods).await.with_context(story)?;
        crowd.check(&sentinels).await.with_context(story)?;
    }
    let periods = crowd.periods();
    ensure!(periods > failovers * 10, "only {periods} locks were taken");
    crowd.disperse().await
}

/// With `all` a single failover loses no lock that was granted: whoever holds goes on holding, and nobody else gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_no_granted_lock_is_lost_by_a_failover() -> Result<()> {
    survive(Acknowledge::All, ENDS.len()).await
}

/// With `any` a failover may lose what was granted. Its holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_any_every_loss_by_a_failover_is_told() -> Result<()> {
    survive(Acknowledge::Any, ENDS.len()).await
}

/// The same two hundred times, over four sets of servers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes some minutes; `cargo xtask full` runs it"]
async fn two_hundred_failovers() -> Result<()> {
    let policies = [
        Acknowledge::All,
        Acknowledge::Any,
        Acknowledge::All,
        Acknowledge::Majority,
    ];
    let sets = policies.map(|policy| tokio::spawn(survive(policy, 50)));
    for set in sets {
        set.await??;
    }
    Ok(())
}
