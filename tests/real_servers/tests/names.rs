//! Growth in names: a service that locks each order, file or user once uses millions of names through one client. No
//! name leaves anything in the process, and none leaves anything on the server that does not expire.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::process::rss_bytes;
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Names before the first measurement: connections, buffers and statements have their size by then, and the maps that are
/// swept have been swept.
const WARM: u64 = 10_000;

/// Names between the two measurements. A leak of 40 bytes for each would exceed [`SWING`].
const NAMES: u64 = 50_000;

/// The same for a file, whose every write waits for the disk; a leak of 100 bytes for each would exceed half of [`SWING`].
const NAMES_IN_A_FILE: u64 = 10_000;

/// How often the names are used and measured, until the process has not grown.
const ROUNDS: usize = 3;

/// The variation of the allocator, in bytes.
const SWING: u64 = 2 << 20;

/// Tasks at the same time, each with a name of its own.
const TASKS: u64 = 32;

/// Tombstones of the last minutes.
const MOST_TOMBSTONES: u32 = 8_000;

/// How many minutes the long run takes; `cargo xtask full --minutes` sets it.
const MINUTES: &str = "TIDELOCK_MINUTES";

/// How long a subscription lingers after its last waiter, and some time for a busy machine.
const QUIET: Duration = Duration::from_secs(15);

/// The memory is that of the whole process, so only one of these tests runs at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Two clients of one store. They wait for each other's locks.
struct Pair {
    one: Client,
    two: Client,
}

impl Pair {
    async fn connect(url: &str) -> Result<Self> {
        let connect = || Client::builder().connect(url);
        let (one, two) = (connect().await?, connect().await?);
        Ok(Self { one, two })
    }

    /// Uses a name once, in one of the ways in which a service does.
    async fn use_name(&self, number: u64) -> Result<()> {
        let name = format!("order {number}");
        let (here, there) = (self.one.lock(&name), self.two.lock(&name));
        let soon = AcquireOptions::new().wait(Duration::from_millis(1));
        match number % 32 {
            0 => {
                let held = here.acquire().await?;
                let waiting = tokio::spawn(there.acquire());
                tokio::task::yield_now().await;
                held.release().await?;
                waiting.await??.release().await?;
            }
            1 => {
                let held = here.acquire().await?;
                ensure!(there.acquire_with(soon).await.is_err(), "it is held");
                held.release().await?;
            }
            2 => {
                let held = here.acquire().await?;
                let waiting = tokio::spawn(there.acquire());
                tokio::task::yield_now().await;
                waiting.abort();
                held.release().await?;
                // The grant may have come before the end of the task.
                drop(waiting.await);
            }
            3 => {
                let held = here.acquire().await?;
                let waiting = tokio::spawn(here.acquire());
                tokio::task::yield_now().await;
                held.release().await?;
                waiting.await??.release().await?;
            }
            4 => {
                let lock = self.one.fair_lock(&name);
                let held = lock.acquire().await?;
                let waiting = tokio::spawn(self.two.fair_lock(&name).acquire());
                tokio::task::yield_now().await;
                held.release().await?;
                waiting.await??.release().await?;
            }
            5 => {
                let lock = self.one.read_write_lock(&name);
                let (first, second) = (lock.read().acquire().await?, lock.read().acquire().await?);
                first.release().await?;
                second.release().await?;
                lock.write().acquire().await?.release().await?;
            }
            6 => drop(here.acquire().await?),
            7 => {
                let held = here.acquire().await?;
                ensure!(there.try_acquire().await?.is_none(), "it is held");
                ensure!(there.inspect().await?.is_locked(), "it is held");
                held.release().await?;
            }
            _ => here.acquire().await?.release().await?,
        }
        Ok(())
    }

    /// Uses names from `first` on, as long as `goes_on` says. Returns the next number.
    async fn use_names(
        self: &Arc<Self>,
        first: u64,
        goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
    ) -> Result<u64> {
        let next = Arc::new(AtomicU64::new(first));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (pair, next, goes_on) = (Arc::clone(self), Arc::clone(&next), goes_on.clone());
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(number) {
                        return anyhow::Ok(());
                    }
                    pair.use_name(number)
                        .await
                        .with_context(|| format!("order {number}"))?;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok(next.load(Ordering::Relaxed))
    }
}

/// Waits until nothing is left of the names that were used.
async fn quiet(left: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
    let end = Instant::now() + QUIET;
    loop {
        let found = left()?;
        if found.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "left behind: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a test measures: the store, how many names are used, by how many bytes this process may grow, and what the names
/// have left in the store.
struct Growth<'a> {
    url: &'a str,
    names: u64,
    swing: u64,
    left: &'a dyn Fn() -> Result<Vec<String>>,
}

impl Growth<'_> {
    async fn memory(&self) -> Result<u64> {
        quiet(self.left).await?;
        rss_bytes(std::process::id())
    }

    /// Uses many names, and checks that the process is then as large as before. The allocator may take a few pages more
    /// once or twice; names that left something would do it each time.
    async fn stays_flat(&self) -> Result<()> {
        let _alone = ALONE.lock().await;
        let pair = Arc::new(Pair::connect(self.url).await?);
        let mut next = pair.use_names(0, |number| number < WARM).await?;
        let mut sizes = vec![self.memory().await?];
        for _ in 0..ROUNDS {
            let (last, begun) = (next + self.names, Instant::now());
            next = pair.use_names(next, move |number| number < last).await?;
            let (before, after) = (sizes[sizes.len() - 1], self.memory().await?);
            sizes.push(after);
            println!(
                "{}: {} names in {:.1?}, {before} and then {after} bytes",
                self.url.split(':').next().unwrap_or_default(),
                self.names,
                begun.elapsed()
            );
            if after <= before + self.swing {
                return Ok(());
            }
        }
        bail!("it grows with each {} names: {sizes:?} bytes", self.names)
    }

    /// The same for as long as the environment says. Checks the memory after each twelfth of that time, and prints a
    /// figure for the page.
    async fn stays_flat_for_long(&self) -> Result<()> {
        let _alone = ALONE.lock().await;
        let minutes: u64 = std::env::var(MINUTES).map_or(Ok(60), |text| text.parse())?;
        let slice = Duration::from_secs(minutes * 5);
        let pair = Arc::new(Pair::connect(self.url).await?);
        let (mut next, mut before) = (0, None);
        for _ in 0..12 {
            let end = Instant::now() + slice;
            next = pair.use_names(next, move |_| Instant::now() < end).await?;
            let now = self.memory().await?;
            let first = *before.get_or_insert(now);
            println!("{next} names, {now} bytes");
            ensure!(
                now <= first + 2 * self.swing,
                "{first} and then {now} bytes"
            );
        }
        let store = self.url.split(':').next().unwrap_or_default();
        let last = self.memory().await?;
        let first = before.unwrap_or(last);
        println!(
            "figure: names through one client of {store} in {minutes} min = {next}; resident memory {:.1} MiB after a twelfth of that time, {:.1} MiB at the end",
            mib(first),
            mib(last)
        );
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss, reason = "printed with one digit")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Lists the keys of the server that never expire, and its channels, which linger for a while.
fn left_on_redis(server: &RedisServer) -> Result<Vec<String>> {
    let mut found: Vec<String> = server.query(&["PUBSUB", "CHANNELS"])?;
    let keyspace: String = server.query(&["INFO", "KEYSPACE"])?;
    let fields = keyspace.lines().find_map(|line| line.strip_prefix("db0:"));
    let field = |name: &str| -> Option<u64> {
        let mut fields = fields?.split(',');
        fields.find_map(|field| field.strip_prefix(name)?.parse().ok())
    };
    if field("keys=") != field("expires=") {
        found.push(keyspace);
    }
    found.truncate(10);
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_leave_nothing_in_memory() -> Result<()> {
    let left = || Ok(Vec::new());
    let growth = Growth {
        url: "memory:names",
        names: NAMES,
        swing: SWING,
        left: &left,
    };
    growth.stays_flat().await
}

/// The rows that names have left in the file. Tombstones expire, and are removed later.
fn left_in_file(path: &Path) -> Result<Vec<String>> {
    let file = rusqlite::Connection::open(path)?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = file
        .prepare(tables)?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    ensure!(tables.iter().any(|table| table == "locks"), "{tables:?}");
    let mut found = Vec::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM \"{table}\"");
        let count: u32 = file.query_row(&count, [], |row| row.get(0))?;
        let most = match &*table {
            "withdrawn" => MOST_TOMBSTONES,
            // The two clients and their records.
            "clients" | "marks" => 2,
            // One row of each, whatever was locked.
            "counter" | "format" => 1,
            _ => 0,
        };
        if count > most {
            found.push(format!("{count} rows of {table}"));
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_leave_nothing_in_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("locks.db");
    let (url, left) = (format!("sqlite:{}", path.display()), || left_in_file(&path));
    let growth = Growth {
        url: &url,
        names: NAMES_IN_A_FILE,
        swing: SWING / 2,
        left: &left,
    };
    growth.stays_flat().await?;
    let size = std::fs::metadata(&path)?.len();
    ensure!(size < 8 << 20, "the file has {size} bytes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_leave_nothing_on_redis() -> Result<()> {
    let server = RedisServer::start()?;
    let (url, left) = (server.url(), || left_on_redis(&server));
    let growth = Growth {
        url: &url,
        names: NAMES,
        swing: SWING,
        left: &left,
    };
    growth.stays_flat().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "an hour: `cargo xtask full` runs it"]
async fn names_leave_nothing_for_an_hour_on_redis() -> Result<()> {
    let server = RedisServer::start()?;
    let (url, left) = (server.url(), || left_on_redis(&server));
    let growth = Growth {
        url: &url,
        names: NAMES,
        swing: SWING,
        left: &left,
    };
    growth.stays_flat_for_long().await
}
