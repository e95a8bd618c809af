//! Growth in names: a service that locks each order, file or user once uses millions of names through one client. No
//! name leaves anything in the process, and none leaves anything on the server that does not expire.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::process::{cpu_time, rss_bytes};
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
const ROUNDS: u64 = 3;

/// The variation of the allocator, in bytes.
const SWING: u64 = 2 << 20;

/// Tasks at the same time, each with a name of its own.
const TASKS: u64 = 32;

/// Tombstones of the last minutes.
const MOST_TOMBSTONES: u32 = 8_000;

/// How many minutes the long run takes on Redis; `cargo xtask full --minutes` sets it. Elsewhere it takes [`A_SIXTH`] of
/// that time.
const MINUTES: &str = "TIDELOCK_MINUTES";

/// The share of the hour that a long run takes on the other stores. They run one after the other, because the memory is
/// that of the whole process.
const A_SIXTH: u32 = 6;

/// How many names an hour of the long run uses.
const NAMES_AN_HOUR: u64 = 10_000_000;

/// The same in a file, whose writers wait for the disk.
const NAMES_AN_HOUR_IN_A_FILE: u64 = 1_000_000;

/// The time between two groups of names of the long run. The names of a group are used at the same time, as the requests
/// of a service come: their requests share writes, and the process sleeps in between.
const GROUP: Duration = Duration::from_millis(50);

/// How often the long run measures the memory.
const MEASUREMENTS: u32 = 4;

/// Each of the ways to use a name that need waiters has one name out of so many.
const OFTEN: u64 = 32;

/// The same for the long run: an hour of waiters would measure how fast the machine passes a lock between two clients.
/// Of ten million names 39,000 go each way, and a leak of 110 bytes for each would exceed twice [`SWING`].
const SOMETIMES: u64 = 256;

/// How long a subscription lingers after its last waiter, and some time for a busy machine.
const QUIET: Duration = Duration::from_secs(15);

/// The memory is that of the whole process, so only one of these tests runs at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Two clients of one store. They wait for each other's locks.
struct Pair {
    one: Client,
    two: Client,
    /// [`OFTEN`] or [`SOMETIMES`].
    cycle: u64,
}

impl Pair {
    async fn connect(url: &str, cycle: u64) -> Result<Self> {
        let connect = || Client::builder().connect(url);
        let (one, two) = (connect().await?, connect().await?);
        Ok(Self { one, two, cycle })
    }

    /// Uses a name once, in one of the ways in which a service does.
    async fn use_name(&self, number: u64) -> Result<()> {
        let name = format!("order {number}");
        let (here, there) = (self.one.lock(&name), self.two.lock(&name));
        let soon = AcquireOptions::new().wait(Duration::from_millis(1));
        match number % self.cycle {
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

    /// Uses each of these names once, some of them at the same time.
    async fn use_names(self: &Arc<Self>, numbers: Range<u64>) -> Result<()> {
        let next = Arc::new(AtomicU64::new(numbers.start));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (pair, next, end) = (Arc::clone(self), Arc::clone(&next), numbers.end);
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
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
        Ok(())
    }

    /// The same, spread evenly over this time. A group that begins late is followed at once by those that are due.
    async fn use_names_in(self: &Arc<Self>, numbers: Range<u64>, time: Duration) -> Result<()> {
        let groups = (time.as_nanos() / GROUP.as_nanos()).max(1);
        let groups = u64::try_from(groups)?;
        let mut due = tokio::time::interval(GROUP);
        let first = |group: u64| numbers.start + (numbers.end - numbers.start) * group / groups;
        for group in 0..groups {
            due.tick().await;
            self.use_names(first(group)..first(group + 1)).await?;
        }
        Ok(())
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
        let pair = Arc::new(Pair::connect(self.url, OFTEN).await?);
        pair.use_names(0..WARM).await?;
        let mut sizes = vec![self.memory().await?];
        for round in 0..ROUNDS {
            let (first, begun) = (WARM + round * self.names, Instant::now());
            pair.use_names(first..first + self.names).await?;
            let (before, after) = (sizes[sizes.len() - 1], self.memory().await?);
            sizes.push(after);
            println!(
                "{}: {} names in {:.1?}, {before} and then {after} bytes",
                self.store(),
                self.names,
                begun.elapsed()
            );
            if after <= before + self.swing {
                return Ok(());
            }
        }
        bail!("it grows with each {} names: {sizes:?} bytes", self.names)
    }

    /// Uses so many names an hour, for a part of the time that the environment says. Checks the memory after each quarter
    /// of it, and prints a figure for the page. `keys` counts the keys or rows in the store that expire; others fail the
    /// test.
    async fn stays_flat_for_long(
        &self,
        an_hour: u64,
        part: u32,
        keys: impl Fn() -> Result<u64>,
    ) -> Result<()> {
        let _alone = ALONE.lock().await;
        let minutes: u32 = std::env::var(MINUTES).map_or(Ok(60), |text| text.parse())?;
        let time = Duration::from_secs(60) * minutes / part;
        let quarter = an_hour * time.as_secs() / 3600 / u64::from(MEASUREMENTS);
        let pair = Arc::new(Pair::connect(self.url, SOMETIMES).await?);
        let (begun, cpu) = (Instant::now(), cpu_time(std::process::id())?);
        let mut sizes = Vec::new();
        for round in 0..u64::from(MEASUREMENTS) {
            let numbers = round * quarter..(round + 1) * quarter;
            pair.use_names_in(numbers.clone(), time / MEASUREMENTS)
                .await?;
            let (now, keys) = (self.memory().await?, keys()?);
            sizes.push(now);
            println!(
                "{}: {} names, {now} bytes, {keys} keys",
                self.store(),
                numbers.end
            );
            ensure!(
                now <= sizes[0] + 2 * self.swing,
                "it grows: {sizes:?} bytes"
            );
        }
        let (took, cpu) = (
            begun.elapsed(),
            cpu_time(std::process::id())?.saturating_sub(cpu),
        );
        let (a_quarter, half, end) = (mib(sizes[0]), mib(sizes[1]), mib(sizes[sizes.len() - 1]));
        println!(
            "figure: names through one client of {} in {:.0} min = {}; resident memory {a_quarter:.1} MiB after a quarter of that time, {half:.1} MiB after half, {end:.1} MiB at the end; {:.0} % of a core; keys left: {} that expire, 0 others",
            self.store(),
            time.as_secs_f64() / 60.0,
            quarter * u64::from(MEASUREMENTS),
            100.0 * cpu.as_secs_f64() / took.as_secs_f64(),
            keys()?,
        );
        Ok(())
    }

    fn store(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
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

/// Counts the rows of each table of the file.
fn rows_in_file(path: &Path) -> Result<Vec<(String, u32)>> {
    let file = rusqlite::Connection::open(path)?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = file
        .prepare(tables)?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    ensure!(tables.iter().any(|table| table == "locks"), "{tables:?}");
    let count = |table: String| {
        let count = format!("SELECT count(*) FROM \"{table}\"");
        let count = file.query_row(&count, [], |row| row.get(0))?;
        Ok((table, count))
    };
    tables.into_iter().map(count).collect()
}

/// The rows that names have left in the file. Tombstones expire, and are removed later.
fn left_in_file(path: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (table, count) in rows_in_file(path)? {
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
    let keys = || server.query(&["DBSIZE"]);
    growth.stays_flat_for_long(NAMES_AN_HOUR, 1, keys).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten minutes: `cargo xtask full` runs it"]
async fn names_leave_nothing_for_ten_minutes_in_memory() -> Result<()> {
    let left = || Ok(Vec::new());
    let growth = Growth {
        url: "memory:names-for-long",
        names: NAMES,
        swing: SWING,
        left: &left,
    };
    growth
        .stays_flat_for_long(NAMES_AN_HOUR, A_SIXTH, || Ok(0))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten minutes: `cargo xtask full` runs it"]
async fn names_leave_nothing_for_ten_minutes_in_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("locks.db");
    let (url, left) = (format!("sqlite:{}", path.display()), || left_in_file(&path));
    let growth = Growth {
        url: &url,
        names: NAMES_IN_A_FILE,
        swing: SWING,
        left: &left,
    };
    let rows = || {
        let rows = rows_in_file(&path)?;
        let expire = rows.iter().filter(|(table, _)| table == "withdrawn");
        Ok(expire.map(|(_, count)| u64::from(*count)).sum())
    };
    growth
        .stays_flat_for_long(NAMES_AN_HOUR_IN_A_FILE, A_SIXTH, rows)
        .await
}
