//! Soak test: for hours, processes of tidelock and of Redisson take the same locks while a scheduler kills, freezes,
//! cuts, delays and deletes things around them. `cargo xtask soak` runs it.
//!
//! Each holder reports the period in which it is sure to have the lock to a second server, which has no faults. That
//! server detects overlapping periods and tokens that do not grow. The run also compares memory, descriptors, threads,
//! tasks and keys in its last third with those in its first.
//!
//! `everywhere` is a second run, on all stores, without faults but with upgrades of its processes:
//! `cargo xtask soak-everywhere`.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

mod agenda;
mod crew;
mod everywhere;
mod faults;
mod forgotten;
mod machine;
mod page;
mod plan;
// Also a part of the worker, which is compiled without this crate.
#[path = "../worker/record.rs"]
mod record;
mod samples;
mod thirds;
mod verdict;
mod witness;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use plan::{Command, Plan};

fn main() -> Result<ExitCode> {
    let Plan { command, soak } = Plan::parse();
    match command {
        Some(Command::Worker(job)) => worker::run(&job).map(|()| ExitCode::SUCCESS),
        Some(Command::Everywhere(plan)) => everywhere::run(&plan),
        None => crew::soak(&soak),
    }
}
