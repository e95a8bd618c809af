//! What processes that wait for one name cost a store that wakes nobody, and what each of them needs itself. For
//! docs/scale.md.
//!
//! `cargo run --profile bench -p bench --example pollers [-- SECONDS]`: looks at each crowd for so long, 60 s unless told.
//! It needs `cargo build --release -p tidelock-cli --all-features`.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::process::{Spawned, children, cpu_time};
use testkit::servers::{MariaDb, MemcachedServer, RedisServer};

const NAME: &str = "nightly-report";
const CROWDS: [usize; 3] = [1, 10, 100];
const SECONDS: u64 = 60;
/// After this time all of them are connected, and poll as slowly as they ever do.
const SETTLE: Duration = Duration::from_secs(15);

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1);
    let seconds = seconds.map_or(Ok(SECONDS), |seconds| seconds.parse())?;
    let time = Duration::from_secs(seconds);
    println!("| store | processes | server, of a core | each process, of a core |");
    println!("| --- | ---: | ---: | ---: |");
    let mariadb = MariaDb::start()?;
    measure("MariaDB", &mariadb.url(), Some(mariadb.pid()?), time)?;
    let redis = RedisServer::start()?;
    let plain = format!("{}?locks=plain", redis.url());
    measure("Redis, `?locks=plain`", &plain, Some(redis.pid()?), time)?;
    let memcached = MemcachedServer::start()?;
    measure("memcached", &memcached.url(), Some(memcached.pid()?), time)?;
    let dir = tempfile::tempdir()?;
    let file = format!("sqlite:{}", dir.path().join("locks.db").display());
    measure("`sqlite:`", &file, None, time)
}

/// Prints a row for each crowd.
fn measure(store: &str, url: &str, server: Option<u32>, time: Duration) -> Result<()> {
    let _holder = run(url, "holds")?;
    for crowd in CROWDS {
        let mut waiters = Vec::new();
        for _ in 0..crowd {
            waiters.push(begin(url, "waited")?);
        }
        thread::sleep(SETTLE);
        let of_server = || server.map(cpu_time).transpose();
        let before = (of_server()?, of_all(&waiters)?);
        thread::sleep(time);
        let share = |from: Duration, to: Duration| {
            100.0 * to.saturating_sub(from).as_secs_f64() / time.as_secs_f64()
        };
        let its = match (before.0, of_server()?) {
            (Some(from), Some(to)) => format!("{:.1} %", share(from, to)),
            _ => "no server".to_owned(),
        };
        let each = share(before.1, of_all(&waiters)?) / f64::from(u32::try_from(crowd)?);
        println!("| {store} | {crowd} | {its} | {each:.2} % |");
    }
    Ok(())
}

/// A process that has the lock.
fn run(url: &str, says: &str) -> Result<Spawned> {
    let mut holder = begin(url, says)?;
    holder.wait_line(says, Duration::from_secs(30))?;
    Ok(holder)
}

/// A process that acquires the lock, says so, and keeps it.
fn begin(url: &str, says: &str) -> Result<Spawned> {
    let mut command = Command::new(testkit::tidelock_bin()?);
    command.args(["--store", url, "run", NAME, "--"]);
    command.args(["sh", "-c", &format!("echo {says}; exec sleep 3600")]);
    Spawned::start(command).context("tidelock run")
}

/// The processor time of these processes and their children.
fn of_all(processes: &[Spawned]) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for process in processes {
        sum += cpu_time(process.pid())?;
        for child in children(process.pid())? {
            sum += cpu_time(child)?;
        }
    }
    Ok(sum)
}
