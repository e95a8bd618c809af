//! `cargo xtask partitions`: every partition of a network on every topology, each server on a host of its own.

use anyhow::Result;

use crate::sh::{self, cargo, command};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the runs: --seeds N, --seed FIRST, --topology T, --kind K, --minutes M, --jobs N, --redisson,
    /// --write FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
    with(&rest)
}

/// Two runs of each pair of topology and kind, and one of Redisson, for `cargo xtask full`.
pub(crate) fn many() -> Result<()> {
    with(&[
        "--seeds",
        "246",
        "--redisson",
        "--write",
        "docs/partitions.md",
    ])
}

fn with(args: &[&str]) -> Result<()> {
    // Not by `cargo run`: the program starts itself again for each process of a run.
    sh::run(cargo(&["build", "--quiet", "-p", "fault_matrix"]))?;
    let mut partitions = command("target/debug/fault_matrix", &["partitions"]);
    partitions.args(args);
    sh::run(partitions)
}
