//! `cargo xtask storm`: all stores at once, and on each one random fault after another.

use std::path::Path;

use anyhow::Result;

use crate::sh::{self, cargo, command};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the storm: --minutes M, --store S, --seed FIRST, --fault F, --lease MS, --write FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
    with(&rest)
}

/// A storm of this length, for `cargo xtask full`.
pub(crate) fn long(minutes: u32) -> Result<()> {
    with(&[
        "--minutes",
        &minutes.to_string(),
        "--write",
        "docs/storms.md",
    ])
}

fn with(args: &[&str]) -> Result<()> {
    // In a release build: thirteen stores with three processes each share the processors. Not by `cargo run`: the program
    // starts itself again for each process.
    sh::run(cargo(&[
        "build",
        "--quiet",
        "--release",
        "-p",
        "fault_matrix",
    ]))?;
    let mut storm = command("target/release/fault_matrix", &["storm"]);
    storm.args(args);
    // In memory, where there is such a file system: other programs keep the disk busy, now and then for longer than a lease.
    let in_memory = Path::new("/dev/shm");
    if in_memory.is_dir() {
        storm.env("TMPDIR", in_memory);
    }
    sh::run(storm)
}
