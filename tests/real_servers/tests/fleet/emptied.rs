//! A server that is replaced by an empty one: it has forgotten the marks, the locks and the tokens.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::within;
use testkit::servers::{EtcdServer, RedisServer};
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
