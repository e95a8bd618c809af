//! One tidelock process: it takes locks, reports its claims to the witness, and releases in every way the API offers.

mod bad;
mod hold;

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tidelock::Client;
use tidelock::testing::{AnyGuard, AnyLock};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::plan::{FAST, FAST_TASKS, Job, LEASE, RESPONSE_TIMEOUT, SLOW, SLOW_TASKS, name};
use crate::witness::Desk;
use bad::Bad;

/// Waits longer than this, in milliseconds, are listed in the report.
const LONG_WAIT: u64 = 15_000;

/// The state shared by all tasks of the process.
#[derive(Debug)]
pub(crate) struct World {
    client: Client,
    desk: Desk,
    stopping: AtomicBool,
    /// The longest wait for a lock so far, in milliseconds.
    longest: AtomicU64,
    bad: Bad,
}

/// Works until stdin ends.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(job: &Job) -> Result<()> {
    let client = connect(&job.url).await;
    let world = Arc::new(World {
        client,
        desk: Desk::open(&job.witness, &job.enter, &job.leave, job.slot).await?,
        stopping: AtomicBool::new(false),
        longest: AtomicU64::new(0),
        bad: Bad::new(job.broken),
    });
    let mut tasks = JoinSet::new();
    let all = FAST_TASKS + SLOW_TASKS;
    for task in 0..all {
        let rng = Rng::with_seed(job.seed ^ (task as u64) << 32);
        tasks.spawn(work(Arc::clone(&world), task < FAST_TASKS, rng));
    }
    let told = Arc::clone(&world);
    std::thread::spawn(move || {
        // End of file or an error: either way no command will follow, so the process stops.
        let _ = std::io::stdin().read(&mut [0]);
        told.stopping.store(true, Ordering::Relaxed);
    });
    while !tasks.is_empty() {
        world.report().await?;
        let second = tokio::time::sleep(Duration::from_secs(1));
        tokio::select! {
            () = second => {}
            Some(done) = tasks.join_next() => done??,
        }
    }
    world.client.close(Duration::from_secs(1)).await;
    println!("served all");
    Ok(())
}

/// Connects, and retries for as long as an outage lasts: the process may start in the middle of one.
async fn connect(url: &str) -> Client {
    loop {
        let client = Client::builder()
            .lease(LEASE)
            .response_timeout(RESPONSE_TIMEOUT);
        if let Ok(client) = client.connect(url).await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl World {
    async fn report(&self) -> Result<()> {
        let tasks = Handle::current().metrics().num_alive_tasks();
        self.desk.put("tasks", tasks as u64).await?;
        let longest = self.longest.load(Ordering::Relaxed);
        self.desk.put("longest", longest).await
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// A random lock of this kind, fenced three times out of four. Fenced and plain locks of one name exclude each
    /// other, and Redisson's.
    fn lock(&self, fast: bool, rng: &mut Rng) -> AnyLock {
        let number = rng.usize(..if fast { FAST } else { SLOW });
        let lock = self.client.lock(&name(fast, number));
        AnyLock::new(lock, rng.u8(..4) > 0)
    }
}

async fn work(world: Arc<World>, fast: bool, mut rng: Rng) -> Result<()> {
    while !world.stopping() {
        let lock = world.lock(fast, &mut rng);
        world.bad.enter(&world.desk, lock.name(), fast).await?;
        if let Some(guard) = acquire(&world, &lock, &mut rng).await? {
            hold::hold(&world, guard, fast, &mut rng).await?;
        }
        world.bad.leak()?;
    }
    Ok(())
}

/// Waits for the lock through any number of outages. One call in fifty drops the acquire at a random moment instead.
async fn acquire(world: &World, lock: &AnyLock, rng: &mut Rng) -> Result<Option<AnyGuard>> {
    if rng.u8(..50) == 0 {
        let moment = Duration::from_micros(rng.u64(..20_000));
        return match tokio::time::timeout(moment, lock.acquire()).await {
            Ok(Ok(guard)) => Ok(Some(guard)),
            Ok(Err(error)) => count(world, &error).await.map(|()| None),
            Err(_) => world
                .desk
                .count("counts", "acquires dropped")
                .await
                .map(|()| None),
        };
    }
    let asked = Instant::now();
    let mut errors = 0;
    loop {
        match lock.acquire().await {
            Ok(guard) => {
                let waited = u64::try_from(asked.elapsed().as_millis())?;
                world.longest.fetch_max(waited, Ordering::Relaxed);
                if waited > LONG_WAIT {
                    let story = format!("{} {waited} ms, {errors} errors", lock.name());
                    world.desk.waited(lock.name(), &story).await?;
                }
                return Ok(Some(guard));
            }
            // The outage lasted longer than the acquire retries. We pause, because an immediate retry would fail in the
            // same way.
            Err(error) => {
                errors += 1;
                count(world, &error).await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn count(world: &World, error: &tidelock::Error) -> Result<()> {
    let kind = format!("{:?}", error.kind());
    world.desk.count("errors", &kind).await
}
