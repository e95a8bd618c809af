//! One process of the bench: `bench-peer KIND URL`, then orders on stdin.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bench::THREADS;
use bench::raw::{Raw, Turns};
use bench::w2_hot::Floor;
use load::{Contender, Side, serve};
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
            "{kind} is none of tidelock, tidelock-fair, tidelock-no-hand-off, raw, redisson-scripts, turns, turns-apart, mutex"
        ),
    }
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
