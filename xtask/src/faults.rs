//! `cargo xtask faults`: every fault of the catalogue on every store.

use anyhow::Result;

use crate::sh::{self, cargo, command};
use crate::test::build_command;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the fault matrix: --store S, --row Tnn, --seed N, --minutes M, --jobs N, --no-tests, --write FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Some tests start the command, and need every store in it. The stories do not start it.
    if !args.rest.iter().any(|it| it == "--no-tests") {
        build_command()?;
    }
    // Not by `cargo run`: the matrix calls cargo itself to build the tests, and starts itself again for each process of
    // a run.
    sh::run(cargo(&["build", "--quiet", "-p", "fault_matrix"]))?;
    let mut matrix = command("target/debug/fault_matrix", &[]);
    matrix.args(&args.rest);
    sh::run(matrix)
}
