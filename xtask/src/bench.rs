//! `cargo xtask bench`: what a lock costs, compared with its bare scripts and with other libraries.

use anyhow::Result;

use crate::sh::{self, cargo};
use crate::test::build_command;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // We build all programs: the bench starts the others many times. Each package by itself: otherwise the processes of
    // `bench` would have every store too.
    let build = ["build", "--profile", "bench", "--quiet", "--bins", "-p"];
    for package in ["bench", "bench_stores"] {
        sh::run(cargo(&[build.as_slice(), &[package]].concat()))?;
    }
    // Users start the command itself.
    build_command()?;
    let run = ["run", "--profile", "bench", "--quiet", "-p", "bench", "--"];
    let mut bench = cargo(&run);
    bench.args(&args.rest);
    sh::run(bench)
}
