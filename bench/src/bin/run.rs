//! The program that `cargo xtask bench` runs.

use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    bench::run(bench::args::Args::parse())
}
