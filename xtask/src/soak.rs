//! `cargo xtask soak`: processes of tidelock and of Redisson on the same locks, with faults, for a long time.

use anyhow::Result;

use crate::sh::{self, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the soak: --minutes M, --acquisitions N, --seed N, --write FILE, --workers N, --java
    /// both|newest|none
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Uses the debug build, because its assertions are wanted. The exit code is 1 if anything is broken.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut soak = cargo(&["run", "--quiet", "-p", "soak", "--"]);
    soak.args(&args.rest);
    sh::run(soak)
}
