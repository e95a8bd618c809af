//! What waiting costs, and how soon a waiter has its turn.

use anyhow::Result;
use proofs::waiting::{are_woken, cost_next_to_nothing};
use testkit::process::Spawned;

use crate::{client, server};

/// From the release in one client to the lock in the hands of a waiter in another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_milliseconds() -> Result<()> {
    let server = server();
    are_woken(&client(&server.url()).await, &client(&server.url()).await).await
}

/// A hundred tasks in a process that does nothing else: one of them waits for the store, the others behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_cost_next_to_nothing() -> Result<()> {
    let server = server();
    let held = client(&server.url()).await.lock("till").acquire().await?;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peer"));
    command.args([&server.url(), "30000"]);
    cost_next_to_nothing(Spawned::start(command)?, held).await
}
