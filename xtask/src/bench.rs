//! `cargo xtask bench`: what a lock costs, compared with its bare scripts and with other libraries.

use anyhow::Result;

use crate::sh::{self, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // We build both programs: the bench starts the other one many times.
    sh::run(cargo(&[
        "build",
        "--profile",
        "bench",
        "--quiet",
        "-p",
        "bench",
        "--bins",
    ]))?;
    let run = ["run", "--profile", "bench", "--quiet", "-p", "bench", "--"];
    let mut bench = cargo(&run);
    bench.args(&args.rest);
    sh::run(bench)
}
