//! Callers that are dropped at random moments.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use testkit::servers::RedisServer;
use tidelock::{Client, Guard, Lock};
use tokio::task::JoinSet;

use crate::books::{ALONE, Books, few_tasks, quiet};

const TASKS: u64 = 64;
const ACQUIRES: u64 = 4_000;
const NAMES: u64 = 16;

/// A deterministic generator. Its statistical quality does not matter; the moments only have to differ.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// Drops a future that is not done after this number of polls.
async fn polls<F: Future>(future: F, most: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = most;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        Pin::as_mut(&mut future).poll(cx).map(Some)
    })
    .await
}

async fn try_for_a_moment(lock: &Lock, dice: &mut Dice) -> tidelock::Result<Option<Guard>> {
    let acquired = if dice.below(2) == 0 {
        // The drop hits a future that is unpolled, sent, answered or woken: between two polls we wait for a wake-up.
        let limit = Duration::from_millis(20);
        let most = dice.below(4);
        tokio::time::timeout(limit, polls(lock.acquire(), most))
            .await
            .ok()
            .flatten()
    } else {
        let moment = Duration::from_micros(dice.below(25_000));
        tokio::time::timeout(moment, lock.acquire()).await.ok()
    };
    acquired.transpose()
}

/// Releases in one of the ways open to a caller.
async fn part_with(guard: Guard, dice: &mut Dice) -> tidelock::Result<()> {
    match dice.below(4) {
        0 => drop(guard),
        1 => drop(polls(guard.release(), 1).await),
        2 => drop(guard.release()),
        _ => guard.release().await?,
    }
    Ok(())
}

/// Acquires and releases once, both at random moments. False: the attempt was dropped before the grant.
async fn enter(lock: &Lock, inside: &AtomicU32, dice: &mut Dice) -> Result<bool> {
    let Some(guard) = try_for_a_moment(lock, dice).await? else {
        return Ok(false);
    };
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
    for _ in 0..dice.below(20) {
        tokio::task::yield_now().await;
    }
    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
    part_with(guard, dice).await?;
    Ok(true)
}

/// 4,000 acquires by 64 tasks of 2 clients, dropped at random moments: there are never two holders, and no lock,
/// channel or task is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_random_moments() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start()?;
    let clients = [
        Client::connect(&server.url()).await?,
        Client::connect(&server.url()).await?,
    ];
    let before = Books::read(&server)?;
    let inside: Arc<Vec<AtomicU32>> = Arc::new((0..NAMES).map(|_| AtomicU32::new(0)).collect());
    let granted = Arc::new(AtomicU32::new(0));
    let seed = u64::from(std::process::id());
    println!("seed {seed}");

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let which = usize::try_from(task % NAMES)?;
        let lock =
            clients[usize::from(!(task / NAMES).is_multiple_of(2))].lock(&format!("stock {which}"));
        let (inside, granted) = (Arc::clone(&inside), Arc::clone(&granted));
        let mut dice = Dice(seed ^ (task << 32));
        tasks.spawn(async move {
            for _ in 0..ACQUIRES.div_ceil(TASKS) {
                if enter(&lock, &inside[which], &mut dice).await? {
                    granted.fetch_add(1, Ordering::Relaxed);
                }
            }
            anyhow::Ok(())
        });
    }
    tokio::time::timeout(Duration::from_secs(60), async {
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        anyhow::Ok(())
    })
    .await??;

    let granted = granted.load(Ordering::Relaxed);
    assert!(
        granted > 100,
        "only {granted} of {ACQUIRES} were granted: this shows little"
    );
    // Shorter than the lease, so a lock that was left behind would still be there.
    quiet(&server).await?;
    few_tasks(before.tasks).await?;
    let after = Books::read(&server)?;
    println!("{granted} grants\nbefore {before:?}\nafter  {after:?}");
    // Fewer is no leak: the runtime of the test before this one may have ended in between.
    assert!(
        after.threads <= before.threads,
        "threads: {before:?} {after:?}"
    );
    assert!(after.connections <= 6, "three for each client: {after:?}");
    for client in clients {
        assert_eq!(
            client.close(Duration::ZERO).await,
            0,
            "guards are still counted"
        );
    }
    Ok(())
}
