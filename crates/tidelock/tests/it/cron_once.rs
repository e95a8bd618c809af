//! The program `examples/cron_once.rs`, on machines whose clocks differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

#[path = "../../examples/cron_once.rs"]
#[allow(dead_code, reason = "its `main` is for the program")]
mod program;

use program::{SPREAD, once};

/// When the machines start, by the same clock.
const SKEWS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
];
const SHORT: Duration = Duration::from_millis(20);

async fn machine(store: &str) -> Client {
    let builder = Client::builder().simulated_time().lease(SPREAD * 2);
    builder.connect(store).await.unwrap()
}

/// How many of three machines run a short job, each by `run`.
async fn runs<F>(store: &str, run: impl Fn(Client, Arc<AtomicUsize>) -> F) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let runs = Arc::<AtomicUsize>::default();
    let mut machines = JoinSet::new();
    for skew in SKEWS {
        let run = run(machine(store).await, Arc::clone(&runs));
        machines.spawn(async move {
            sleep(skew).await;
            run.await;
        });
    }
    while let Some(ended) = machines.join_next().await {
        ended.unwrap();
    }
    runs.load(Ordering::SeqCst)
}

async fn job(runs: Arc<AtomicUsize>) {
    runs.fetch_add(1, Ordering::SeqCst);
    sleep(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_job_runs_once_though_the_clocks_differ() {
    let ran = runs("memory:cron_once", async |client, runs| {
        once(&client, job(runs)).await.unwrap();
    });
    assert_eq!(ran.await, 1);
}

/// What the lock alone does not promise.
#[tokio::test(start_paused = true)]
async fn a_short_job_under_a_lock_that_is_released_at_once_runs_on_each_machine() {
    let ran = runs("memory:cron_each", async |client, runs| {
        let guard = client.lock("nightly-report").try_acquire().await.unwrap();
        guard.unwrap().while_held(job(runs)).await.unwrap();
    });
    assert_eq!(ran.await, 3);
}

#[tokio::test(start_paused = true)]
async fn the_next_night_runs_again() {
    let client = machine("memory:cron_nights").await;
    for _ in 0..2 {
        assert!(once(&client, async {}).await.unwrap());
    }
}

/// The process dies after the job, before the release: nobody renews the lease.
#[tokio::test(start_paused = true)]
async fn a_machine_that_dies_after_the_job_still_keeps_the_others_out() {
    let dead = machine("memory:cron_dead").await;
    let lock = dead.lock("nightly-report");
    // Renewed last a third of the lease ago: what is left is the least that a dead process leaves.
    let options = tidelock::AcquireOptions::new().expires_after(SPREAD * 2);
    let guard = lock.acquire_with(options).await.unwrap();
    sleep(SPREAD * 2 / 3).await;
    std::mem::forget(guard);
    sleep(SPREAD * 59 / 60).await;
    let late = machine("memory:cron_dead").await;
    assert!(!once(&late, async {}).await.unwrap());
}
