//! `cargo xtask bench`: what a lock costs beside its two bare scripts, and how soon a waiter is woken.

use anyhow::Result;

use crate::sh::{self, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For the bench: --rounds N, --wakes N, --no-java, --json, --write FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut bench = cargo(&[
        "bench", "--quiet", "-p", "proofs", "--bench", "latency", "--",
    ]);
    bench.args(&args.rest);
    sh::run(bench)
}
