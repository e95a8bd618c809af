//! What is asked for, and the sizes of things.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Of every lock, Redisson's watchdog included. Short, so that a fault often outlasts it.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How long a server may leave an answer open before the connection is given up.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Locks that are held for a moment, and locks that are held for up to two leases.
pub(crate) const FAST: usize = 48;
pub(crate) const SLOW: usize = 4;

/// Tasks or threads of one process for the one and the other.
pub(crate) const FAST_TASKS: usize = 8;
pub(crate) const SLOW_TASKS: usize = 1;
pub(crate) const FAST_THREADS: u32 = 4;
pub(crate) const SLOW_THREADS: u32 = 1;

/// Processes of tidelock that are never killed: their memory has the whole time to grow.
pub(crate) const VETERANS: usize = 2;

/// The name of a lock.
pub(crate) fn name(fast: bool, number: usize) -> String {
    format!("{} {number}", if fast { "fast" } else { "slow" })
}

/// Every lock there is.
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
    /// How long
    #[arg(long, default_value_t = 2.0)]
    pub(crate) minutes: f64,
    /// Goes on, up to twice the time, until the locks have been acquired so many times
    #[arg(long, default_value_t = 0)]
    pub(crate) acquisitions: u64,
    /// Which faults come when; without it a new one, which is printed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Writes the result as a page, relative to the root of the workspace
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Processes of tidelock
    #[arg(long, default_value_t = 6)]
    pub(crate) workers: usize,
    /// Which Redissons take part
    #[arg(long, value_enum, default_value_t = Java::Both)]
    pub(crate) java: Java,
    /// What the last of the processes does wrong
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
    /// Goes in without the lock now and then
    Enters,
    /// Shows an old token now and then
    Tokens,
    /// Keeps more and more files open
    Descriptors,
    /// Keeps more and more memory
    Memory,
    /// Leaves more and more tasks behind
    Tasks,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One of the processes
    #[command(hide = true)]
    Worker(Job),
}

/// What one process is told.
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
