//! One process of the bench: `bench-peer KIND URL`, then orders on stdin.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::THREADS;
use bench::raw::{Raw, Turns};
use bench::w2_hot::Floor;
use load::{Contender, Side, serve};
use metrics_exporter_prometheus::PrometheusBuilder;
use tidelock::{Client, Guard, HandOff, Lock};
use tokio::sync::{Mutex, OwnedMutexGuard};

fn main() -> Result<()> {
    let threads = std::env::var(THREADS).map_or(Ok(2), |threads| threads.parse())?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?
        .block_on(run())
}

async fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("KIND URL");
    let (kind, url) = (next()?, next()?);
    match &*kind {
        "tidelock" => serve(Tidelock(Client::connect(&url).await?)).await,
        "tidelock-recorded" => {
            record()?;
            serve(Tidelock(Client::connect(&url).await?)).await
        }
        "tidelock-fair" => serve(Fair(Client::connect(&url).await?)).await,
        "tidelock-no-hand-off" => {
            let client = Client::builder().hand_off(HandOff::OFF);
            serve(Tidelock(client.connect(&url).await?)).await
        }
        "raw" => serve(Raw::connect(&url).await?).await,
        "redisson-scripts" => serve(Raw::connect_redisson(&url).await?).await,
        "turns" => serve(Turns::connect(&url, Floor::Turns.lock()).await?).await,
        "turns-apart" => serve(Turns::connect_apart(&url, Floor::Apart.lock()).await?).await,
        "mutex" => serve(Local(Arc::default())).await,
        _ => bail!(
            "{kind} is none of tidelock, tidelock-recorded, tidelock-fair, tidelock-no-hand-off, raw, redisson-scripts, turns, turns-apart, mutex"
        ),
    }
}

/// The bounds of the histograms, in seconds, as in the example of the library.
const SECONDS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0,
];

/// Installs a recorder, as a service does. It comes before the client: a handle that was registered without one stays silent.
fn record() -> Result<()> {
    let built = PrometheusBuilder::new().set_buckets(&SECONDS)?;
    let recorder = built.install_recorder()?;
    // A scrape does it in a service. Otherwise each figure would be kept until the end.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            recorder.run_upkeep();
        }
    });
    Ok(())
}

struct Tidelock(Client);

struct Ours(Lock);

impl Side for Tidelock {
    type Contender = Ours;

    fn contender(&self, name: &str) -> Result<Ours> {
        Ok(Ours(self.0.lock(name)))
    }
}

/// The fair lock.
struct Fair(Client);

impl Side for Fair {
    type Contender = Ours;

    fn contender(&self, name: &str) -> Result<Ours> {
        Ok(Ours(self.0.fair_lock(name)))
    }
}

impl Contender for Ours {
    type Held = Guard;

    async fn acquire(&mut self) -> Result<Guard> {
        Ok(self.0.acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<()> {
        Ok(guard.release().await?)
    }
}

/// One mutex of the runtime for all names: the cost of the same load without a store.
struct Local(Arc<Mutex<()>>);

impl Side for Local {
    type Contender = LocalTask;

    fn contender(&self, _: &str) -> Result<LocalTask> {
        Ok(LocalTask(Arc::clone(&self.0)))
    }
}

struct LocalTask(Arc<Mutex<()>>);

impl Contender for LocalTask {
    type Held = OwnedMutexGuard<()>;

    async fn acquire(&mut self) -> Result<Self::Held> {
        Ok(Arc::clone(&self.0).lock_owned().await)
    }

    async fn release(&mut self, held: Self::Held) -> Result<()> {
        drop(held);
        Ok(())
    }
}
