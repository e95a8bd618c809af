//! The cost of waiting, and the time of a hand-over.

use std::time::Duration;

use anyhow::Result;
use real_servers::waiting::{A_MINUTE, A_WHILE, are_woken, cost_next_to_nothing};
use testkit::servers::EtcdServer;
use tidelock::Client;

use crate::world::client;

/// The time from the release in one client until a waiter in another client has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_waiter() -> Result<()> {
    let server = EtcdServer::start()?;
    let (one, other) = (
        Client::connect(&server.url()).await?,
        Client::connect(&server.url()).await?,
    );
    are_woken(&one, &other).await
}

/// A hundred tasks, alone in their process: one of them waits for the store, the others in its local queue.
async fn a_hundred_waiters_for(window: Duration) -> Result<()> {
    let server = EtcdServer::start()?;
    let held = client(&server.url()).await.lock("till").acquire().await?;
    // The count covers the holder too, which renews a few times.
    let peer = (env!("CARGO_BIN_EXE_peer"), &*server.url());
    cost_next_to_nothing(peer, held, window, || server.requests()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_cost_next_to_nothing() -> Result<()> {
    a_hundred_waiters_for(A_WHILE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    a_hundred_waiters_for(A_MINUTE).await
}
