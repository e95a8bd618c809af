//! Acquire and release, ours beside the bare scripts, round about.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use testkit::servers::RedisServer;
use tidelock::{Client, Lock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::awake::Awake;
use crate::figures::{median, micros, percentile};
use crate::raw::{Raw, RawLock};

/// How many tasks ask at once, and how many pairs all of them make in a round: about half a second's worth.
const LOADS: [(usize, usize); 2] = [(1, 16_000), (64, 48_000)];

/// One round of one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) per_second: f64,
    /// Microseconds of this process's processors for each pair. Says more than the clock when others use the machine.
    pub(crate) cpu: f64,
}

/// Both sides under one load, round by round.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub(crate) tasks: usize,
    pub(crate) ours: Vec<Sample>,
    pub(crate) raw: Vec<Sample>,
}

impl Pairs {
    /// The median of the ratios of each round, ours to raw: what disturbs the machine disturbs both of them.
    pub(crate) fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        let rounds = self.ours.iter().zip(&self.raw);
        median(rounds.map(|(ours, raw)| figure(ours) / figure(raw)))
    }
}

trait Pair: Send + 'static {
    fn pair(&mut self) -> impl Future<Output = Result<()>> + Send;
}

impl Pair for Lock {
    async fn pair(&mut self) -> Result<()> {
        Ok(self.acquire().await?.release().await?)
    }
}

impl Pair for RawLock {
    async fn pair(&mut self) -> Result<()> {
        RawLock::pair(self).await
    }
}

pub(crate) async fn measure(server: &RedisServer, rounds: usize) -> Result<Vec<Pairs>> {
    let client = Client::connect(&server.url()).await?;
    let raw = Raw::connect(&server.url()).await?;
    let mut all = Vec::new();
    for (tasks, pairs) in LOADS {
        let _awake = (tasks == 1).then(Awake::keep).transpose()?;
        let ours = || (0..tasks).map(|n| client.lock(&format!("ours {n}")));
        let bare = || (0..tasks).map(|n| raw.lock(&format!("bare {n}")));
        let mut both = Pairs {
            tasks,
            ours: Vec::new(),
            raw: Vec::new(),
        };
        // Not counted: caches, the allocator and the server's scripts get warm.
        run(ours(), pairs / 8).await?;
        run(bare(), pairs / 8).await?;
        for round in 0..rounds {
            // Who goes second may find the machine in another state: they take turns.
            if round % 2 == 0 {
                both.ours.push(run(ours(), pairs).await?);
                both.raw.push(run(bare(), pairs).await?);
            } else {
                both.raw.push(run(bare(), pairs).await?);
                both.ours.push(run(ours(), pairs).await?);
            }
        }
        all.push(both);
    }
    Ok(all)
}

async fn run<P: Pair>(sides: impl Iterator<Item = P>, pairs: usize) -> Result<Sample> {
    let sides: Vec<P> = sides.collect();
    let each = pairs / sides.len();
    let ready = Arc::new(Barrier::new(sides.len() + 1));
    let mut tasks = JoinSet::new();
    for mut side in sides {
        let ready = Arc::clone(&ready);
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(each);
            ready.wait().await;
            for _ in 0..each {
                let start = Instant::now();
                side.pair().await?;
                times.push(u64::try_from(start.elapsed().as_nanos())?);
            }
            anyhow::Ok(times)
        });
    }
    ready.wait().await;
    let (start, busy) = (Instant::now(), cpu_time());
    let mut times = Vec::with_capacity(pairs);
    while let Some(task) = tasks.join_next().await {
        times.extend(task??);
    }
    let (took, busy) = (start.elapsed(), cpu_time().saturating_sub(busy));
    times.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "some ten thousand")]
    let count = times.len() as f64;
    Ok(Sample {
        p50: micros(percentile(&times, 0.5)),
        p99: micros(percentile(&times, 0.99)),
        per_second: count / took.as_secs_f64(),
        cpu: busy.as_secs_f64() * 1e6 / count,
    })
}

/// Time on a processor of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
