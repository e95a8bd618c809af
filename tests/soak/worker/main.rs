//! One process of `cargo xtask soak-everywhere`: its tasks use every kind of lock that its store has, and tell the judge.
//!
//! It is compiled twice, with the library of today and with one of some days ago, so it uses nothing but the public API
//! and its own files. What the older library lacks is behind a feature.
#![allow(clippy::print_stdout, reason = "the driver reads its lines")]

mod bad;
mod bench;
mod hold;
mod kinds;
mod record;

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use fastrand::Rng;
use tidelock::{Client, ErrorKind, Lock, RedLock};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use bad::{Bad, Broken};
use bench::Bench;
use kinds::TASKS;
use record::{Kind, Record, What};

/// How far a task may be behind its pace. It may have waited for the lease of a process that was killed.
const MOST_BEHIND: Duration = Duration::from_secs(10);

/// The arguments of one process.
#[derive(Debug, Parser)]
struct Job {
    /// The store; several are the servers of a majority lock
    #[arg(long = "url", required = true)]
    urls: Vec<String>,
    /// The pipe of the judge
    #[arg(long)]
    judge: PathBuf,
    #[arg(long)]
    slot: u16,
    #[arg(long)]
    generation: u32,
    #[arg(long)]
    seed: u64,
    /// The lease in milliseconds
    #[arg(long)]
    lease: u64,
    /// The mean pause between two rounds of a task, in microseconds
    #[arg(long)]
    pause: u64,
    /// This process is never killed, so it may use permits that nobody gives back for the dead
    #[arg(long)]
    stays: bool,
    /// A kind that this process leaves out
    #[arg(long, value_name = "KIND")]
    without: Option<String>,
    #[arg(long, value_enum)]
    broken: Option<Broken>,
}

/// What a process works with.
#[derive(Debug)]
pub(crate) enum Store {
    One(Client),
    Majority(RedLock, Vec<Client>),
}

impl Store {
    async fn open(job: &Job) -> Result<Self> {
        let lease = Duration::from_millis(job.lease);
        let mut clients = Vec::new();
        for url in &job.urls {
            let builder = Client::builder()
                .lease(lease)
                .connect_within(Duration::from_secs(300));
            clients.push(builder.connect(url).await?);
        }
        if clients.len() > 1 {
            // The servers are new. Without this the first acquire would wait for the longest lease that anybody may have.
            let majority = RedLock::builder(clients.clone()).longest_lease(lease);
            return Ok(Self::Majority(majority.build()?, clients));
        }
        let one = clients.pop().context("no store")?;
        Ok(Self::One(one))
    }

    /// Everything but a plain lock is of one store.
    pub(crate) fn one(&self) -> Option<&Client> {
        match self {
            Self::One(client) => Some(client),
            Self::Majority(..) => None,
        }
    }

    pub(crate) fn lock(&self, name: &str) -> Lock {
        match self {
            Self::One(client) => client.lock(name),
            Self::Majority(majority, _) => majority.lock(name),
        }
    }

    fn clients(&self) -> &[Client] {
        match self {
            Self::One(client) => std::slice::from_ref(client),
            Self::Majority(_, clients) => clients,
        }
    }
}

/// Works until stdin ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let job = Job::parse();
    let store = Store::open(&job).await?;
    let bench = Bench::open(&job.judge, job.slot, job.generation)?;
    let world = Arc::new(World {
        in_memory: job.urls.iter().any(|url| url.starts_with("memory:")),
        urls: job.urls.clone(),
        store,
        bench,
        stays: job.stays,
        stopping: AtomicBool::new(false),
        pause: job.pause,
        lease: Duration::from_millis(job.lease),
        bad: Bad::new(job.broken),
    });
    kinds::prepare(&world).await?;
    let mut tasks = JoinSet::new();
    let left_out = |kind: &Kind| job.without.as_deref() == Some(kind.title());
    for (kind, count) in TASKS.into_iter().filter(|(kind, _)| !left_out(kind)) {
        for number in 0..count {
            let rng = Rng::with_seed(job.seed ^ (kind as u64) << 48 ^ number << 32);
            tasks.spawn(work(Arc::clone(&world), kind, rng));
        }
    }
    let told = Arc::clone(&world);
    std::thread::spawn(move || {
        // End of file or an error: either way no command will follow, so the process stops.
        let _ = std::io::stdin().read(&mut [0]);
        told.stopping.store(true, Ordering::Relaxed);
    });
    while !tasks.is_empty() {
        world.report()?;
        let second = tokio::time::sleep(Duration::from_secs(1));
        tokio::select! {
            () = second => {}
            Some(done) = tasks.join_next() => done??,
        }
    }
    world.close().await?;
    println!("served all");
    Ok(())
}

/// The state shared by all tasks of the process.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    in_memory: bool,
    urls: Vec<String>,
    pub(crate) bench: Bench,
    pub(crate) stays: bool,
    stopping: AtomicBool,
    pause: u64,
    pub(crate) lease: Duration,
    pub(crate) bad: Bad,
}

impl World {
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn report(&self) -> Result<()> {
        let (longest, kind) = self.bench.longest();
        let mut record = Record::new(What::Reports, kind);
        record.token = Handle::current().metrics().num_alive_tasks() as u64;
        record.mark = longest;
        self.bench.tell(record)
    }

    /// Ends the clients.
    async fn close(&self) -> Result<()> {
        if self.in_memory {
            // Nobody else can look into this store.
            self.is_empty().await?;
        }
        for client in self.store.clients() {
            client.close(Duration::from_secs(5)).await;
        }
        Ok(())
    }

    /// Fails if a lock is still held a moment after the last round. Releases of dropped guards may still be under way.
    async fn is_empty(&self) -> Result<()> {
        let client = self.store.clients().first().context("no store")?;
        for _ in 0..100 {
            if client.list("*").limit(10).await?.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let held = client.list("*").limit(10).await?;
        ensure!(
            held.is_empty(),
            "nobody holds them, and they are held: {held:?}"
        );
        Ok(())
    }
}

/// One task: rounds of one kind, until the process stops or the store refuses the kind.
async fn work(world: Arc<World>, kind: Kind, mut rng: Rng) -> Result<()> {
    if kind == Kind::Counted && !world.stays {
        // Nobody gives back the permits of a process that was killed.
        return Ok(());
    }
    if !kinds::is_possible(&world, kind) {
        return world.bench.tell(Record::new(What::Refuses, kind));
    }
    let mut due = Instant::now();
    while !world.stopping() {
        if let Err(error) = kinds::round(&world, kind, &mut rng).await {
            match error.downcast::<tidelock::Error>() {
                Ok(error) if error.kind() == ErrorKind::Unsupported => {
                    return world.bench.tell(Record::new(What::Refuses, kind));
                }
                Ok(error) => {
                    println!("error {} {:?} {error}", kind.title(), error.kind());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error),
            }
        }
        world.bad.leak(world.store.clients(), &world.urls).await?;
        // A busy machine delays a round; the task makes up for it, so that the pace is what was asked for.
        let pause = Duration::from_micros(rng.u64(..=world.pause * 2));
        due = (due + pause).max(Instant::now() - MOST_BEHIND);
        tokio::time::sleep_until(due).await;
    }
    Ok(())
}
