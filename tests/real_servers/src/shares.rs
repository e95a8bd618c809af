//! Measures how processes share the turns at one lock.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::java::{JavaPeer, RedissonVersion, TurnsPlan, TurnsReport};
use testkit::process::Spawned;

/// The length of each measurement.
const TIME: Duration = Duration::from_secs(8);
const HOLD: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time. Otherwise two of them would compete for the processors.
static ALONE: Mutex<()> = Mutex::new(());

/// A Rust process: the number of its tasks, and their mode (see the program `turns`).
#[derive(Debug, Clone, Copy)]
pub struct Rust(pub u32, pub &'static str);

/// A Java process: its Redisson version and the number of its threads.
pub type Java = (RedissonVersion, u32);

/// The reports of all processes.
#[derive(Debug)]
pub struct Shares {
    /// In the order of the arguments.
    pub rust: Vec<TurnsReport>,
    /// In the order of the arguments.
    pub java: Vec<TurnsReport>,
}

impl Shares {
    /// The share of all turns that these processes had.
    pub fn of(&self, reports: &[TurnsReport]) -> f64 {
        total(reports) / (total(&self.rust) + total(&self.java))
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "some thousand turns, for a share"
)]
fn total(reports: &[TurnsReport]) -> f64 {
    reports.iter().map(TurnsReport::total).sum::<u64>() as f64
}

/// Runs all processes at the same time. `program` is the path of `turns`.
///
/// # Errors
/// Fails if a process does not start, or ends without a report.
pub fn take_turns(program: &Path, url: &str, rust: &[Rust], java: &[Java]) -> Result<Shares> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut peers = Vec::new();
    for (version, threads) in java {
        peers.push((JavaPeer::start(*version, url)?, *threads));
    }
    let mut processes = Vec::new();
    for one in rust {
        processes.push(start(program, url, *one)?);
    }
    for process in &mut processes {
        process.wait_line("ready", PATIENCE)?;
    }
    let mut pending = Vec::new();
    for (peer, threads) in &peers {
        let plan = TurnsPlan {
            threads: *threads,
            time: TIME,
            hold: HOLD,
        };
        pending.push(peer.lock("turns", "hot").begin_turns(plan)?);
    }
    for process in &mut processes {
        process.write_line("")?;
    }
    let mut shares = Shares {
        rust: Vec::new(),
        java: Vec::new(),
    };
    for mut process in processes {
        let line = process.wait_line("longest_ns", PATIENCE)?;
        let report = serde_json::from_str(&line).context("a report of `turns`")?;
        shares.rust.push(report);
    }
    for one in pending {
        shares.java.push(one.value()?);
    }
    println!("{}", line("rust", &shares.rust));
    println!("{}", line("java", &shares.java));
    println!("java has {:.1} %", shares.of(&shares.java) * 100.0);
    Ok(shares)
}

fn start(program: &Path, url: &str, Rust(tasks, how): Rust) -> Result<Spawned> {
    let mut command = Command::new(program);
    command.args([url, "hot"]).arg(tasks.to_string());
    command.arg(TIME.as_millis().to_string());
    command.arg(HOLD.as_micros().to_string()).arg(how);
    Spawned::start(command)
}

fn line(name: &str, reports: &[TurnsReport]) -> String {
    let each = reports.iter().map(|one| {
        let longest = Duration::from_nanos(one.longest_ns).as_millis();
        format!("{} (longest {longest} ms)", one.total())
    });
    format!("{name}: {}", each.collect::<Vec<_>>().join(", "))
}
