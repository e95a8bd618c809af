//! What users of other libraries have reported about jobs that are to run once, as promises of this one.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;

use crate::client::Client;
use crate::once::{Once, OnceJob, Slot};
use crate::testing::candidates::patience;
use crate::testing::fixture::{Fixture, unique, within};

async fn clients(fixture: &Fixture) -> [Client; 3] {
    [
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    ]
}

/// Runs a job that ends at once. Returns the slot, if it was run.
async fn run(job: &OnceJob) -> Option<String> {
    let run = job.run(|run| async move { Ok::<_, Infallible>(run.slot().to_owned()) });
    match run.await.expect("the store answers") {
        Once::Ran(slot) => Some(slot),
        Once::Done(_) | Once::Running(_) => None,
        Once::Failed(never) => match never {},
    }
}

/// `ShedLock` #1596, #606, #151: a job that takes longer than its lock lasts was run by a second instance. Here the lease
/// is renewed while the job runs.
pub async fn a_job_longer_than_its_lock_runs_once(fixture: &Fixture) {
    let name = unique("report");
    let runs = Arc::<AtomicU32>::default();
    let mut callers = JoinSet::new();
    for client in clients(fixture).await {
        let job = client.once(&name).slot(Slot::id("today"));
        let (job, runs) = (job.wait(patience(fixture)), Arc::clone(&runs));
        let long = fixture.lease() * 2;
        callers.spawn(async move {
            let ran = job.run(|_| async {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(long).await;
                Ok::<_, Infallible>(())
            });
            ran.await.expect("the store answers")
        });
    }
    let all = within("their ends", patience(fixture), callers.join_all());
    let ran = all.await.iter().filter(|it| **it == Once::Ran(())).count();
    assert_eq!((ran, runs.load(Ordering::SeqCst)), (1, 1));
}

/// `ShedLock` #1542, #1461, #2031 (and #6): "lock at least for" was read as a window in which the job is not run again. Here
/// the slot says so, and not how long ago the last run was: a short job is not run again in its slot, and is run at once
/// in the next one.
pub async fn at_least_for_is_the_slot_and_no_window(fixture: &Fixture) {
    let name = unique("report");
    let clients = clients(fixture).await;
    for slot in ["Monday", "Tuesday"] {
        let mut ran = Vec::new();
        for client in clients.iter().chain(&clients) {
            let job = client.once(&name).slot(Slot::id(slot));
            ran.extend(run(&job.wait(patience(fixture))).await);
        }
        assert_eq!(ran, [slot]);
    }
}

/// gocron #841: a fast job whose tickers are shifted against each other was run by every instance, because each of them
/// found the lock free. Here the mark of the slot is still there.
pub async fn a_fast_job_with_shifted_tickers_runs_on_one_instance(fixture: &Fixture) {
    let name = unique("report");
    let period = fixture.lease() / 2;
    let mut tickers = JoinSet::new();
    for (number, client) in (0..).zip(clients(fixture).await) {
        let job = client.once(&name).slot(Slot::every(period));
        let job = job.wait(patience(fixture));
        tickers.spawn(async move {
            let mut ran = Vec::new();
            tokio::time::sleep(period * number / 3).await;
            for _ in 0..4 {
                ran.extend(run(&job).await);
                tokio::time::sleep(period).await;
            }
            ran
        });
    }
    let all = within("their ends", patience(fixture), tickers.join_all());
    let mut slots: Vec<String> = all.await.concat();
    slots.sort_unstable();
    let runs = slots.len();
    slots.dedup();
    assert!(runs == slots.len() && runs >= 3, "{runs} runs of {slots:?}");
    let [client, ..] = clients(fixture).await;
    let marks = client.once(&name).history(100).await.expect("readable");
    assert!(marks.iter().all(|mark| mark.attempt == 1), "{marks:?}");
}
