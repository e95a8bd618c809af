//! A waiter for a fair lock that stays, among many that come and leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidelock::{AcquireOptions, Client};
use tokio::task::JoinSet;

/// How many tasks come and leave.
const LEAVERS: usize = 48;

/// Acquires a fair lock some times, while tasks of both clients wait for it for a moment and leave, or have it for a
/// moment with or without a queue. Returns how long each wait took.
pub async fn waits_among_leavers(a: &Client, b: &Client, turns: usize) -> Result<Vec<Duration>> {
    let (over, had) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut leavers = JoinSet::new();
    for number in 0..LEAVERS {
        let client = if number % 2 == 0 { a } else { b };
        // A few use the lock without a queue, and stay.
        let (lock, longest) = if number % 8 < 7 {
            (client.fair_lock("till"), 32_000)
        } else {
            (client.lock("till"), 30_000_000)
        };
        let (over, had, client) = (Arc::clone(&over), Arc::clone(&had), client.clone());
        leavers.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let patience = Duration::from_micros(fastrand::u64(..longest));
                let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await else {
                    // The next wait begins after the store has answered. Otherwise, on a busy machine, waits would begin faster
                    // than they can be withdrawn, and the backlog would grow until nothing is answered in time.
                    client.ping().await?;
                    continue;
                };
                let guard = guard?;
                had.fetch_add(1, Ordering::SeqCst);
                if fastrand::bool() {
                    guard.release().await?;
                }
            }
            Ok::<(), tidelock::Error>(())
        });
    }
    let mut waits = Vec::new();
    for turn in 0..turns {
        let begun = Instant::now();
        let soon = AcquireOptions::new().wait(Duration::from_secs(30));
        let stayer = if turn % 2 == 0 { a } else { b };
        let guard = stayer.fair_lock("till").acquire_with(soon).await;
        let guard = guard.with_context(|| format!("turn {turn}"))?;
        waits.push(begun.elapsed());
        guard.release().await?;
    }
    over.store(true, Ordering::SeqCst);
    for leaver in leavers.join_all().await {
        leaver.context("a task that comes and leaves")?;
    }
    println!("waits {waits:?}; others had it {had:?} times");
    Ok(waits)
}
