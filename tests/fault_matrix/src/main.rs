//! The fault matrix: runs every fault of a catalogue on every store, with several processes, and checks their
//! histories.

#![allow(clippy::similar_names, reason = "a story is played on a store")]

mod acquisition;
#[cfg(test)]
mod broken;
mod catalogue;
mod check;
mod crew;
mod history;
mod matrix;
mod named;
mod notes;
mod partitions;
#[cfg(test)]
mod planted;
mod report;
mod role;
mod shared;
mod stage;
mod store;
mod stories;
mod storm;
mod worker;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use store::Store;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask faults", about = "Every fault on every store")]
struct Args {
    #[command(subcommand)]
    inner: Option<Inner>,
    /// Only this store; may be given more than once
    #[arg(long)]
    store: Vec<Store>,
    /// Only this row, as T07; may be given more than once
    #[arg(long)]
    row: Vec<String>,
    /// The seed of all random choices; the default comes from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Repeat the stories with other seeds for this many minutes
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Number of stores to run in parallel
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Run only the stories, not the named tests
    #[arg(long)]
    no_tests: bool,
    /// Write the report page to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Inner {
    /// Run as one worker process of a run
    #[command(hide = true)]
    Worker(worker::Plan),
    /// Lists the locks that servers hold
    #[command(hide = true)]
    Held {
        /// Prefix of the names
        base: String,
        /// Addresses of the servers
        urls: Vec<String>,
    },
    /// Servers and processes on hosts of their own, and a network that is parted
    Partitions(partitions::Args),
    /// All stores at once, and one random fault after another
    Storm(storm::Args),
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    match args.inner {
        Some(Inner::Worker(plan)) => {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build()?.block_on(worker::main(plan))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Inner::Held { base, urls }) => {
            let held = world::held(&urls, None, &base)?;
            for name in held {
                println!("{name}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Inner::Partitions(args)) => partitions::run(&args),
        Some(Inner::Storm(args)) => storm::run(&args),
        None => matrix::run(&args),
    }
}
