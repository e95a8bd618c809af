//! The number of allocations that a lock costs on the caller's side. Every request pays for an extra one, and only a
//! test makes it visible.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use testkit::servers::RedisServer;
use tidelock::{Client, HandOff, Lock};
use tokio::task::JoinSet;

const ROUNDS: u64 = 500;

/// One for the call of `acquire`, one for its future, two for the owner's name, one for each of the two futures behind
/// `dyn Backend`, three for the hold, its guard and the local queue of its name, and one for the future that
/// releases. The pipeline itself needs none, and the script derives the other names from the key.
const PAIR: u64 = 10;

/// Allocations per round on this thread. The connection runs on this thread too, the steward does not.
fn allocations<F: Future>(runtime: &tokio::runtime::Runtime, mut round: impl FnMut() -> F) -> u64 {
    let mut some = |rounds| {
        runtime.block_on(async {
            for _ in 0..rounds {
                round().await;
            }
        });
    };
    some(ROUNDS);
    let counted = allocation_counter::measure(|| some(ROUNDS));
    counted.count_total.div_ceil(ROUNDS)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?)
}

#[test]
fn a_pair_allocates_what_a_profile_excuses() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = runtime()?;
    let client = runtime.block_on(
        Client::builder()
            .publish_process_info(false)
            .connect(&server.url()),
    )?;
    let lock = client.lock("a");
    // The least of five: a busy machine may make some rounds cost more, but none less.
    let measure = || {
        allocations(&runtime, || async {
            lock.acquire().await.unwrap().release().await.unwrap();
        })
    };
    let pair = (0..5).map(|_| measure()).min().unwrap();
    assert_eq!(pair, PAIR, "allocations for each acquire and release");
    Ok(())
}

/// The attempt itself. The ticket in the local queue, the hold and its status are reused from the previous holder.
const HAND_OVER: u64 = 1;

#[test]
fn a_hand_over_within_the_process_allocates_what_is_asked_for() -> Result<()> {
    const TASKS: u64 = 8;
    let runtime = runtime()?;
    let endless = HandOff::default()
        .times(1_000_000)
        .within(Duration::from_secs(60));
    let builder = Client::builder()
        .publish_process_info(false)
        .hand_off(endless);
    let lock = runtime.block_on(builder.connect("memory:"))?.lock("a");
    let turns = || {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let lock = lock.clone();
            let turns = async move {
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().await.unwrap();
                    tokio::task::yield_now().await; // gives the other tasks the time to queue up
                    guard.release().await.unwrap();
                }
            };
            tasks.spawn_on(turns, runtime.handle());
        }
        runtime.block_on(tasks.join_all());
    };
    turns();
    let counted = allocation_counter::measure(turns);
    // The tasks themselves and the one acquisition in the store amount to less than one allocation per turn, so the
    // integer division drops them.
    let each = counted.count_total / (TASKS * ROUNDS);
    assert_eq!(each, HAND_OVER, "{} in all", counted.count_total);
    Ok(())
}

const MANY: usize = 1_000;

/// The average number of bytes that each thing `make` returns keeps allocated on this thread, and the things
/// themselves.
fn bytes_each<T>(make: impl FnOnce() -> Vec<T>) -> (i64, Vec<T>) {
    let mut kept = Vec::new();
    let counted = allocation_counter::measure(|| kept = make());
    let many = i64::try_from(MANY).unwrap();
    assert_eq!(kept.len(), MANY);
    (counted.bytes_current / many, kept)
}

#[test]
fn a_held_lock_takes_less_than_a_kibibyte() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = runtime()?;
    let client = runtime.block_on(
        Client::builder()
            .publish_process_info(false)
            .connect(&server.url()),
    )?;
    let names = (0..MANY).map(|number| format!("shop:item:{number}"));
    let (bytes, _guards) = bytes_each(|| {
        let acquire = |name: String| runtime.block_on(client.lock(&name).acquire()).unwrap();
        names.map(acquire).collect()
    });
    assert!(bytes < 1024, "{bytes} bytes for each lock that is held");
    Ok(())
}

/// The limit includes the memory that the executor keeps for the task.
#[test]
fn a_waiting_task_takes_less_than_two_kibibytes() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = runtime()?;
    let client = runtime.block_on(
        Client::builder()
            .publish_process_info(false)
            .connect(&server.url()),
    )?;
    let lock = client.lock("a");
    let guard = runtime.block_on(lock.acquire())?;
    let (bytes, tasks) = bytes_each(|| {
        let begun = Arc::new(AtomicUsize::new(0));
        let wait = |lock: Lock, begun: Arc<AtomicUsize>| async move {
            begun.fetch_add(1, Ordering::SeqCst);
            lock.acquire().await.map(drop)
        };
        let spawn = |_| runtime.spawn(wait(lock.clone(), Arc::clone(&begun)));
        let tasks = (0..MANY).map(spawn).collect();
        // A task enters the local queue at its first poll.
        runtime.block_on(async {
            while begun.load(Ordering::SeqCst) < MANY {
                tokio::task::yield_now().await;
            }
        });
        tasks
    });
    assert!(bytes < 2048, "{bytes} bytes for each task that waits");
    drop(guard);
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok(())
}
