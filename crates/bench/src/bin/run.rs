//! `cargo xtask bench` runs this.

use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    bench::run(bench::args::Args::parse())
}
