//! Hours of ordinary life with faults: processes of tidelock and of Redisson take the same locks while everything around
//! them is killed, frozen, cut, delayed and deleted. `cargo xtask soak` runs it.
//!
//! Each holder tells a second server, to which nothing is done, from when until when it is sure to have the lock; that
//! server finds those who are sure of the same moment, and tokens that do not grow. Memory, descriptors, threads, tasks
//! and keys of the last third are held against those of the first.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

mod agenda;
mod crew;
mod faults;
mod forgotten;
mod page;
mod plan;
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
        None => crew::soak(&soak),
    }
}
