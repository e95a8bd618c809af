//! The fault matrix: every fault of a catalogue on every store, in several processes whose histories are checked.

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
mod report;
mod stage;
mod store;
mod stories;
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
    /// What is chosen at random is chosen by this; without it the clock decides
    #[arg(long)]
    seed: Option<u64>,
    /// Goes through the stories again and again, with other seeds, for so long
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Stores at a time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Only the stories, not the named tests
    #[arg(long)]
    no_tests: bool,
    /// Writes the page about it here
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Inner {
    /// One of the processes of a run
    #[command(hide = true)]
    Worker(worker::Plan),
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    match args.inner {
        Some(Inner::Worker(plan)) => {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build()?.block_on(worker::main(plan))?;
            Ok(ExitCode::SUCCESS)
        }
        None => matrix::run(&args),
    }
}
