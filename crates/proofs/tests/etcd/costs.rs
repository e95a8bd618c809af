//! What waiting costs, and how soon a waiter has its turn.

use anyhow::Result;
use proofs::waiting::{are_woken, cost_next_to_nothing};
use testkit::process::Spawned;
use testkit::servers::EtcdServer;

use crate::world::client;

/// From the release in one client to the lock in the hands of a waiter in another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_milliseconds() -> Result<()> {
    let server = EtcdServer::start()?;
    are_woken(&client(&server.url()).await, &client(&server.url()).await).await
}

/// A hundred tasks in a process that does nothing else: each has a place in the queue and watches the one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_cost_next_to_nothing() -> Result<()> {
    let server = EtcdServer::start()?;
    let held = client(&server.url()).await.lock("till").acquire().await?;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peer"));
    command.args([&server.url(), "30000"]);
    cost_next_to_nothing(Spawned::start(command)?, held).await
}
