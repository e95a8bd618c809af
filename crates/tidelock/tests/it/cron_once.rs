//! The job of `examples/cron_once.rs`, on machines whose clocks differ.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::once::{Begun, Once, Slot};
use tidelock::store::{Backend, BoxFuture, Name};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, Snapshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[path = "../../examples/cron_once.rs"]
#[allow(dead_code, reason = "its `main` is for the program")]
mod program;

use program::nightly;

/// When the machines start, by the same clock.
const SKEWS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
];
const SHORT: Duration = Duration::from_millis(20);
const NIGHT: Duration = Duration::from_secs(24 * 3600);

async fn machine(store: &str) -> Client {
    let builder = Client::builder().simulated_time();
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

async fn run(client: &Client, runs: Arc<AtomicUsize>) -> Once<(), Infallible> {
    let nightly = nightly(client);
    nightly.run(|_| job(runs).map_ok()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_short_job_runs_once_though_the_clocks_differ() {
    let ran = runs("memory:cron_once", async |client, runs| {
        run(&client, runs).await;
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
    for night in 1..=3 {
        let runs = Arc::<AtomicUsize>::default();
        for _ in 0..2 {
            run(&client, Arc::clone(&runs)).await;
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "night {night}");
        sleep(NIGHT).await;
    }
    let history = nightly(&client).history(10).await.unwrap();
    let slots: Vec<&str> = history.iter().map(|mark| &*mark.slot).collect();
    assert_eq!(slots[2], "2026-01-01T00:00:00Z", "{slots:?}");
}

/// The job is dropped in the middle, as by the end of its process.
#[tokio::test(start_paused = true)]
async fn a_night_whose_machine_died_is_run_by_the_next_one() {
    let (dead, next) = (
        machine("memory:cron_dead").await,
        machine("memory:cron_dead").await,
    );
    let (first, second) = (nightly(&dead), nightly(&next).wait(NIGHT));
    let endless = first.run(|_| pending::<Result<(), Infallible>>());
    assert!(timeout(SHORT, endless).await.is_err(), "it was dropped");
    let ran = second.run(|run| async move { Ok::<_, Infallible>(run.attempt()) });
    assert_eq!(ran.await.unwrap(), Once::Ran(2));
}

/// The holder of a lock goes as soon as somebody asks who it is.
#[derive(Debug)]
struct GoneWhenSeen;

impl Twist for GoneWhenSeen {
    fn inspect<'a>(
        &'a self,
        inner: &'a dyn Backend,
        name: &'a Name,
    ) -> BoxFuture<'a, tidelock::Result<Snapshot>> {
        Box::pin(async move {
            inner.force_release(name, None).await?;
            inner.inspect(name).await
        })
    }
}

/// The machine that ran the night dies between the request for its lock and the question who holds it. Nobody has succeeded,
/// and no other call may come in this night.
#[tokio::test(start_paused = true)]
async fn a_call_whose_holder_has_just_gone_runs_the_slot() {
    let url = "memory:cron_just_gone";
    let (first, builder) = (machine(url).await, Client::builder().simulated_time());
    let next = builder.connect_to(async |env| {
        let store = tidelock::testing::open(url, env).await?;
        Ok(Twisted::wrap(store, GoneWhenSeen))
    });
    let next = next.await.unwrap();
    let begun = nightly(&first).begin().await.unwrap();
    assert!(matches!(begun, Begun::Attempt(_)), "{begun:?}");
    let second = nightly(&next);
    let ran = second.run(|run| async move { Ok::<_, Infallible>(run.attempt()) });
    assert_eq!(ran.await.unwrap(), Once::Ran(2));
}

/// Tickers that fire once per slot, each at a phase of its own: every slot is run exactly once.
#[tokio::test(start_paused = true)]
async fn shifted_tickers_run_each_slot_exactly_once() {
    const TICK: Duration = Duration::from_secs(1);
    const SLOTS: usize = 200;
    let runs = Arc::<AtomicUsize>::default();
    let mut processes = JoinSet::new();
    for process in 0..5_u32 {
        let client = machine("memory:tickers").await;
        let runs = Arc::clone(&runs);
        processes.spawn(async move {
            let poll = client.once("tick").slot(Slot::every(TICK));
            sleep(TICK * (2 * process + 1) / 10).await;
            for _ in 0..SLOTS {
                let ran = poll.run(|_| job(Arc::clone(&runs)).map_ok());
                ran.await.unwrap();
                sleep(TICK * 99 / 100).await;
            }
        });
    }
    while let Some(ended) = processes.join_next().await {
        ended.unwrap();
    }
    let client = machine("memory:tickers").await;
    let marks = client.once("tick").history(10_000).await.unwrap();
    assert_eq!(
        runs.load(Ordering::SeqCst),
        marks.len(),
        "one run for each slot"
    );
    assert!(marks.len() >= SLOTS * 98 / 100, "{}", marks.len());
    assert!(marks.iter().all(|mark| mark.attempt == 1));
}

/// Makes a future a job that cannot fail.
trait MapOk: Future + Sized {
    async fn map_ok(self) -> Result<Self::Output, Infallible> {
        Ok(self.await)
    }
}

impl<F: Future> MapOk for F {}

/// Asked every six hours, a monthly job runs once a month, although a mark is kept for a week.
#[tokio::test(start_paused = true)]
async fn a_monthly_job_runs_once_a_month() {
    let builder = Client::builder().simulated_time();
    let builder = builder.publish_process_info(false); // each write of it would be one more stop of the clock
    let client = builder.connect("memory:").await.unwrap();
    let report = client
        .once("report")
        .slot(Slot::cron("0 3 1 * *", "Europe/Berlin"));
    let (mut runs, mut slots) = (0, std::collections::HashSet::new());
    for _ in 0..4 * 70 {
        let ran = report.run(|run| async move { Ok::<_, Infallible>(run.slot().to_owned()) });
        if let Once::Ran(slot) = ran.await.unwrap() {
            runs += 1;
            slots.insert(slot);
        }
        sleep(NIGHT / 4).await;
    }
    assert_eq!(runs, slots.len());
    assert!(runs > 2);
}
