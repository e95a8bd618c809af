//! The cost of waiting, and the time until a waiter is woken.

use std::time::Duration;

use anyhow::{Result, ensure};
use real_servers::requests::{Protocol, RequestCounter};
use real_servers::waiting::{A_MINUTE, A_WHILE, are_woken, cost_next_to_nothing};

use tidelock::Client;

use crate::{client, server, soon, until};

/// The time from the release in one client until a waiter in another client has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_waiter() -> Result<()> {
    let server = server();
    let (one, other) = (
        Client::connect(&server.url()).await?,
        Client::connect(&server.url()).await?,
    );
    are_woken(&one, &other).await
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

/// A client that sends nothing by itself for a while.
async fn quiet(url: &str) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false);
    Ok(builder.connect(url).await?)
}

/// A free fair lock costs one request and one, as a lock without a queue does. A turn of a waiter costs two, because it
/// is told: one that confirms the grant, and one that releases the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_a_fair_lock_costs_two_requests() -> Result<()> {
    let server = server();
    let counter = RequestCounter::before(server.addr(), Protocol::Postgres).await?;
    let watched = quiet(&server.url_at(counter.addr)).await?;
    let (watched, other) = (
        watched.fair_lock("till"),
        quiet(&server.url()).await?.fair_lock("till"),
    );
    watched.acquire().await?.release().await?;
    counter.spent();
    let guard = watched.acquire().await?;
    assert_eq!(counter.spent(), 1, "acquire");
    guard.release().await?;
    assert_eq!(counter.spent(), 1, "release");
    // A beat may come at any moment, so the fewest requests of several turns count.
    let (mut fewest_waits, mut fewest_turns) = (u64::MAX, u64::MAX);
    for _ in 0..10 {
        let held = other.acquire().await?;
        let waiting = tokio::spawn(watched.acquire());
        until(&server, "SELECT count(*) FROM tidelock_locks_waiters", "1").await;
        soon("a look", async {
            while counter.total() < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        fewest_waits = fewest_waits.min(counter.spent());
        held.release().await?;
        soon("the turn", waiting).await??.release().await?;
        fewest_turns = fewest_turns.min(counter.spent());
    }
    ensure!(
        fewest_waits == 3,
        "{fewest_waits}: a try, a place and a look"
    );
    ensure!(fewest_turns == 2, "{fewest_turns}");
    Ok(())
}

/// A release asks about the queue in its own statement. Only where somebody waits in it does it need a second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_beside_an_empty_queue_costs_one_request() -> Result<()> {
    let server = server();
    let counter = RequestCounter::before(server.addr(), Protocol::Postgres).await?;
    let watched = quiet(&server.url_at(counter.addr)).await?;
    let other = quiet(&server.url()).await?.fair_lock("till");
    other.acquire().await?.release().await?;
    let plain = watched.lock("till");
    for _ in 0..2 {
        // The first use of a statement on a connection prepares it in the same round trip.
        plain.acquire().await?.release().await?;
    }
    for _ in 0..3 {
        let guard = plain.acquire().await?;
        counter.spent();
        guard.release().await?;
        assert_eq!(counter.spent(), 1);
    }
    let guard = plain.acquire().await?;
    let waiting = tokio::spawn(other.acquire());
    until(&server, "SELECT count(*) FROM tidelock_locks_waiters", "1").await;
    counter.spent();
    guard.release().await?;
    assert_eq!(counter.spent(), 2);
    soon("the turn", waiting).await??.release().await?;
    Ok(())
}
