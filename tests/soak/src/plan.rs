//! The command line, and the sizes of a run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::everywhere::Everywhere;

/// The lease of every lock, and Redisson's watchdog timeout. It is short, so that faults often last longer.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// The time a client waits for an answer before it drops the connection.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of locks held for a moment (`FAST`) and for up to two leases (`SLOW`).
pub(crate) const FAST: usize = 48;
pub(crate) const SLOW: usize = 4;

/// The number of tasks or threads in each process for each kind of lock.
pub(crate) const FAST_TASKS: usize = 8;
pub(crate) const SLOW_TASKS: usize = 1;
pub(crate) const FAST_THREADS: u32 = 4;
pub(crate) const SLOW_THREADS: u32 = 1;

/// The number of tidelock processes that are never killed, so that a leak in their memory has the whole run to show.
pub(crate) const VETERANS: usize = 2;

/// The name of a lock.
pub(crate) fn name(fast: bool, number: usize) -> String {
    format!("{} {number}", if fast { "fast" } else { "slow" })
}

/// The names of all locks.
pub(crate) fn names() -> Vec<String> {
    let fast = (0..FAST).map(|number| name(true, number));
    fast.chain((0..SLOW).map(|number| name(false, number)))
        .collect()
}

/// Mixed faults on one Redis, with processes of tidelock and of Redisson.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak", args_conflicts_with_subcommands = true)]
pub(crate) struct Plan {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) soak: Soak,
}

#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// Length of the run in minutes
    #[arg(long, default_value_t = 2.0)]
    pub(crate) minutes: f64,
    /// Continues, up to twice the time, until this many acquisitions have happened
    #[arg(long, default_value_t = 0)]
    pub(crate) acquisitions: u64,
    /// Seed of the fault schedule; without it a random one, which is printed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Writes the result as a page to this path, relative to the workspace root
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Number of tidelock processes
    #[arg(long, default_value_t = 6)]
    pub(crate) workers: usize,
    /// Redisson versions that take part
    #[arg(long, value_enum, default_value_t = Java::Both)]
    pub(crate) java: Java,
    /// The bug to build into the first tidelock process
    #[arg(long, value_enum, hide = true)]
    pub(crate) broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Java {
    Both,
    Newest,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Broken {
    /// Sometimes enters without the lock
    Enters,
    /// Sometimes reports an old token
    Tokens,
    /// Leaks open files
    Descriptors,
    /// Leaks memory
    Memory,
    /// Leaks tasks
    Tasks,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs one of the tidelock processes
    #[command(hide = true)]
    Worker(Job),
    /// Uses every kind of lock on every store, while processes of two builds take each other's places
    Everywhere(Everywhere),
}

/// The arguments of one tidelock process.
#[derive(Debug, Clone, Args)]
pub(crate) struct Job {
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) witness: String,
    #[arg(long)]
    pub(crate) enter: String,
    #[arg(long)]
    pub(crate) leave: String,
    #[arg(long)]
    pub(crate) slot: usize,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long, value_enum)]
    pub(crate) broken: Option<Broken>,
}
