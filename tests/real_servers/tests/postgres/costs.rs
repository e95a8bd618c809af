//! The cost of waiting, and the time until a waiter is woken.

use std::time::Duration;

use anyhow::Result;
use real_servers::waiting::{A_MINUTE, A_WHILE, are_woken, cost_next_to_nothing};

use crate::{client, server};

/// The time from the release in one client until a waiter in another client has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_milliseconds() -> Result<()> {
    let server = server();
    are_woken(&client(&server.url()).await, &client(&server.url()).await).await
}

/// A hundred waiting tasks in an otherwise idle process: the leader waits for the store, the others wait in the local
/// queue.
async fn a_hundred_waiters_for(window: Duration) -> Result<()> {
    let server = server();
    let held = client(&server.url()).await.lock("till").acquire().await?;
    // The count covers the holder and these questions too, which are a few.
    let asked = || {
        let count = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database";
        Ok(server.query(count)?.trim().parse()?)
    };
    let peer = (env!("CARGO_BIN_EXE_peer"), &*server.url());
    cost_next_to_nothing(peer, held, window, asked).await
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
