//! A server that is replaced by an empty one: it has forgotten the marks, the locks and the tokens.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::within;
use testkit::servers::{EtcdServer, RedisServer, ZooKeeperServer};
use tidelock::once::{Begun, Once, OnceJob, Slot};
use tidelock::{Client, ErrorKind};

use crate::election::PATIENCE;

const LEASE: Duration = Duration::from_secs(3);

async fn run(job: &OnceJob) -> Result<Once<u32, Infallible>> {
    let ran = job.run(|run| async move { Ok::<_, Infallible>(run.attempt()) });
    Ok(within(PATIENCE, "the run", ran).await??)
}

/// Whoever runs a slot, or leads, is told, and its mark is refused. Slots that have been run are run again, because the
/// store has no mark of them. Elections go on.
async fn promise(url: &str, empty: impl FnOnce() -> Result<()>) -> Result<()> {
    let client = || Client::builder().lease(LEASE).connect(url);
    let (old, other) = (client().await?, client().await?);
    let monday = |client: &Client| {
        client
            .once("report")
            .slot(Slot::id("Monday"))
            .wait(PATIENCE)
    };
    let import = |client: &Client| client.once("import").slot(Slot::id("a.csv")).wait(PATIENCE);
    ensure!(run(&monday(&old)).await? == Once::Ran(1));
    let Begun::Attempt(attempt) = import(&old).begin().await? else {
        anyhow::bail!("it is a new slot");
    };
    let election = old.election("billing").identity("web-1");
    let leadership = election.campaign().await?;
    empty()?;
    let refused = within(PATIENCE, "the mark is refused", attempt.succeed()).await?;
    let kind = refused.err().context("the store has no mark of it")?.kind();
    ensure!(
        matches!(kind, ErrorKind::Lost | ErrorKind::OutcomeUnknown),
        "{kind:?}"
    );
    within(PATIENCE, "the leader is told", leadership.lost()).await?;
    ensure!(!election.is_leader());
    drop(leadership);
    ensure!(run(&import(&other)).await? == Once::Ran(1));
    ensure!(run(&monday(&other)).await? == Once::Ran(1));
    let marks = within(PATIENCE, "the history", import(&old).history(10)).await??;
    ensure!(marks.len() == 1, "{marks:?}");
    real_servers::leads(&other, "billing").await?;
    real_servers::leads(&old, "billing").await
}

/// Members that wait, and those that are inside, are told and do not hang. One that has left already waits no longer. The next
/// members enter.
async fn barriers_go_on(url: &str, empty: impl FnOnce() -> Result<()>) -> Result<()> {
    let client = || Client::builder().lease(LEASE).connect(url);
    let (one, other) = (client().await?, client().await?);
    let enter = async |name: &str| {
        let both = [one.barrier(name, 2), other.barrier(name, 2)];
        let both = async { tokio::join!(both[0].enter(), both[1].enter()) };
        let (first, second) = within(PATIENCE, "both enter", both).await?;
        anyhow::Ok((first?, second?))
    };
    let (inside, leaves) = enter("solver").await?;
    let (has_left, stays) = enter("left").await?;
    let lonely = one.barrier("lonely", 2);
    let waits = lonely.clone();
    let waits = tokio::spawn(async move { waits.enter().await });
    let has_left = tokio::spawn(has_left.leave());
    let begun = std::time::Instant::now();
    loop {
        let present = (
            lonely.members().await?,
            one.barrier("left", 2).members().await?,
        );
        if (present.0.waiting.len(), present.1.inside.len()) == (1, 1) {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "{present:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    empty()?;
    for member in [&inside, &leaves, &stays] {
        within(PATIENCE, "a member is told", member.lost()).await?;
        ensure!(!member.is_held());
    }
    let ended = within(PATIENCE, "the one that waits is told", waits).await??;
    let kind = ended.err().context("it was alone")?.kind();
    ensure!(
        matches!(kind, ErrorKind::Lost | ErrorKind::Unavailable),
        "{kind:?}"
    );
    for member in [inside, stays] {
        let left = within(PATIENCE, "it leaves", member.leave()).await?;
        let kind = left.err().context("it was lost")?.kind();
        ensure!(kind == ErrorKind::Lost, "{kind:?}");
    }
    drop(leaves);
    // The store was away for less than a lease, or for longer.
    if let Err(error) = within(PATIENCE, "it waits no longer", has_left).await?? {
        ensure!(error.is_retryable(), "{error}");
    }
    for name in ["solver", "lonely", "left"] {
        let (first, second) = enter(name).await?;
        let left = async { tokio::join!(first.leave(), second.leave()) };
        let (first, second) = within(PATIENCE, "both leave", left).await?;
        first.and(second)?;
    }
    Ok(())
}

mod t78_members_of_a_store_that_was_emptied_are_told_and_barriers_go_on {
    use super::{EtcdServer, RedisServer, Result, ZooKeeperServer, barriers_go_on};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redis() -> Result<()> {
        let server = RedisServer::start()?;
        barriers_go_on(&server.url(), || server.restart_empty()).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn etcd() -> Result<()> {
        let server = EtcdServer::start()?;
        barriers_go_on(&server.url(), || server.restart_empty()).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn zookeeper() -> Result<()> {
        let server = ZooKeeperServer::start()?;
        barriers_go_on(&server.url(), || server.restart_empty()).await
    }
}

mod a_store_that_was_emptied_tells_and_goes_on {
    use super::{EtcdServer, RedisServer, Result, promise};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redis() -> Result<()> {
        let server = RedisServer::start()?;
        promise(&server.url(), || server.restart_empty()).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn etcd() -> Result<()> {
        let server = EtcdServer::start()?;
        promise(&server.url(), || server.restart_empty()).await
    }
}
