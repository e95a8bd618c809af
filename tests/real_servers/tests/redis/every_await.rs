//! Every operation is cancelled at each of its await points, on a real server. No lock, no subscription and no key
//! stays behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;
use tidelock::testing::{
    Faults, Fixture, promises::counting, promises::every_await, promises::latch,
};

use crate::{channels, eventually};

/// The subscription of a cancelled wait lingers for a moment, so that the next waiter can reuse it.
const LINGERS: Duration = Duration::from_secs(20);

async fn left(
    promise: impl AsyncFnOnce(&Fixture),
    kind: impl FnOnce(Fixture) -> Fixture,
) -> Result<()> {
    let server = RedisServer::start()?;
    let fixture = kind(Fixture::url(server.url())).through(Faults::pending(2));
    promise(&fixture).await;
    eventually("no channel is left", LINGERS, || {
        Ok(channels(&server)?.is_empty())
    })
    .await?;
    for key in server.keys()? {
        let stays: i64 = server.query(&["PTTL", &key])?;
        ensure!(key.starts_with("tidelock:") && stays != -1, "{key} is left");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downgrade_cancelled_at_every_await_leaves_nothing() -> Result<()> {
    left(
        every_await::downgrade_cancelled_at_every_await_leaves_nothing,
        |fixture| fixture,
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing() -> Result<()> {
    left(
        latch::a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing,
        |fixture| fixture,
    )
    .await
}

/// The number itself stays: a semaphore is not deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing() -> Result<()> {
    let server = RedisServer::start()?;
    let fixture = Fixture::url(server.url()).through(Faults::pending(2));
    counting::an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing(&fixture).await;
    eventually("no channel is left", LINGERS, || {
        Ok(channels(&server)?.is_empty())
    })
    .await?;
    for key in server.keys()? {
        let stays: i64 = server.query(&["PTTL", &key])?;
        let ours = key.starts_with("tidelock:") && stays != -1;
        ensure!(ours || key.contains("slots"), "{key} is left");
    }
    Ok(())
}

macro_rules! left {
    ($($promise:ident)*) => {
        left!(@lock |fixture| fixture; $($promise)*);
        left!(@writer Fixture::as_writer; $($promise)*);
        left!(@fair Fixture::as_fair; $($promise)*);
    };
    (@$kind:ident $of:expr; $($promise:ident)*) => {
        mod $kind {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() -> Result<()> {
                    left(every_await::$promise, $of).await
                }
            )*
        }
    };
}

left! {
    acquire_cancelled_at_every_await_leaves_nothing
    try_acquire_cancelled_at_every_await_leaves_nothing
    wait_cancelled_at_every_await_leaves_nothing
    release_cancelled_at_every_await_still_releases
    extend_cancelled_at_every_await_harms_nothing
    reentry_cancelled_at_every_await_harms_nothing
    force_release_cancelled_at_every_await_leaves_nothing
    close_cancelled_at_every_await_leaves_nothing
}
