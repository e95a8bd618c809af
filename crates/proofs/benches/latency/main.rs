//! What a lock costs beside its two bare scripts, and how soon a waiter is woken.
//!
//! `cargo xtask bench` runs it. Absolute times belong to one machine and one moment; what can be compared are the
//! ratios, because both sides take turns in the same run. Nothing here asserts anything.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

mod awake;
mod figures;
mod machine;
mod majority;
mod pairs;
mod raw;
mod report;
mod wakes;

use anyhow::{Context, Result};
use testkit::servers::RedisServer;

use report::Report;

/// What to measure, and where to write it.
struct Plan {
    rounds: usize,
    wakes: usize,
    java: bool,
    json: bool,
    write: Option<String>,
}

impl Plan {
    fn from_args() -> Result<Self> {
        let mut plan = Self {
            rounds: 9,
            wakes: 300,
            java: true,
            json: false,
            write: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                // What cargo tells a bench.
                "--bench" => {}
                "--rounds" => plan.rounds = value()?.parse()?,
                "--wakes" => plan.wakes = value()?.parse()?,
                "--no-java" => plan.java = false,
                "--json" => plan.json = true,
                "--write" => plan.write = Some(value()?),
                _ => anyhow::bail!(
                    "{arg} is unknown; there are --rounds N, --wakes N, --no-java, --json, --write FILE"
                ),
            }
        }
        Ok(plan)
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let server = RedisServer::start()?;
    let mut report = Report::new(machine::describe(&server)?, plan.rounds);
    report.pairs = runtime.block_on(pairs::measure(&server, plan.rounds))?;
    report.majority = Some(runtime.block_on(majority::measure(plan.rounds))?);
    if plan.wakes > 0 {
        report.wakes = runtime.block_on(wakes::measure(&server, plan.wakes, plan.java))?;
    }
    if plan.json {
        println!("{}", report.json());
    } else {
        println!("{}", report.table());
    }
    if let Some(file) = plan.write {
        let path = testkit::workspace().join(file);
        std::fs::write(&path, report.page()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
