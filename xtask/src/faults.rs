//! `cargo xtask faults`: every fault of the catalogue on every store.

use anyhow::Result;

use crate::sh::{self, cargo, command};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For the matrix: --store S, --row Tnn, --seed N, --minutes M, --jobs N, --no-tests, --write FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Started by itself: it builds the tests with a cargo of its own, and starts itself again for each process of a run.
    sh::run(cargo(&["build", "--quiet", "-p", "faults"]))?;
    let mut matrix = command("target/debug/faults", &[]);
    matrix.args(&args.rest);
    sh::run(matrix)
}
