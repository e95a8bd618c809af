//! `cargo xtask test`: all checks that a change must pass.

mod api;
mod consumers;
mod failures;
mod manifests;
mod packages;
mod parts;
mod side_by_side;
mod tally;
mod web_service;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use parts::{ON_DEMAND, Part};
pub(crate) use parts::{
    PARTS, SERVER_PACKAGES, binaries, build_command, feature_names, features_of_the_command,
    newer_etcd, stories, tests, whole_family,
};
pub(crate) use tally::Tally;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only this part; may be given more than once
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Lists the parts and does nothing else
    #[arg(long)]
    list: bool,
}

/// The result of one part.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) time: Duration,
    pub(crate) tally: Tally,
    pub(crate) error: Option<String>,
}

/// All parts, also the one that runs only if it is named.
fn all() -> impl Iterator<Item = &'static Part> {
    PARTS.iter().chain([&ON_DEMAND])
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for part in all() {
            println!("{:<14} {}", part.name, part.about);
        }
        return Ok(());
    }
    if let Some(unknown) = args
        .only
        .iter()
        .find(|name| all().all(|part| part.name != **name))
    {
        bail!("no part is called {unknown}; `cargo xtask test --list` names them");
    }
    let chosen = all().filter(|part| {
        let named = args.only.iter().any(|name| name == part.name);
        named || (args.only.is_empty() && part.name != ON_DEMAND.name)
    });
    let outcomes: Vec<Outcome> = chosen.map(|part| perform(part.name, part.run)).collect();
    finish(&outcomes)
}

/// Runs one part and prints the result. Never fails, so that the other parts run too.
pub(crate) fn perform(name: &str, part: impl FnOnce(&mut Tally) -> Result<()>) -> Outcome {
    println!("== {name}");
    let start = Instant::now();
    let mut tally = Tally::default();
    let error = part(&mut tally).err().map(|error| format!("{error:#}"));
    let time = start.elapsed();
    match &error {
        Some(error) => println!(
            "== {name} FAILED after {:.1} s: {error}",
            time.as_secs_f64()
        ),
        None => println!("== {name} {} in {:.1} s", tally.ok(), time.as_secs_f64()),
    }
    Outcome {
        name: name.to_owned(),
        time,
        tally,
        error,
    }
}

/// Prints the failures once more, the table, and the totals as the last line.
pub(crate) fn finish(outcomes: &[Outcome]) -> Result<()> {
    println!();
    for outcome in outcomes.iter().filter(|one| one.error.is_some()) {
        println!(
            "== {} failed: {}\n{}",
            outcome.name,
            outcome.error.as_deref().unwrap_or_default(),
            outcome.tally.failures
        );
    }
    let mut total = Tally::default();
    for Outcome {
        name,
        time,
        tally,
        error,
    } in outcomes
    {
        let verdict = match error {
            Some(_) => "FAILED".to_owned(),
            None => tally.ok(),
        };
        println!(
            "{name:<24} {:>7.1} s  {verdict:<6}  {}",
            time.as_secs_f64(),
            tally.or_nothing()
        );
        total.add(tally);
    }
    let time: Duration = outcomes.iter().map(|outcome| outcome.time).sum();
    println!("{:<24} {:>7.1} s", "all", time.as_secs_f64());
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|one| one.error.is_some())
        .map(|one| one.name.as_str())
        .collect();
    if !failed.is_empty() {
        println!("failed parts: {}", failed.join(", "));
    }
    println!("{total}");
    // The totals must be the last line, so we exit without an error message.
    if failed.is_empty() {
        Ok(())
    } else {
        std::process::exit(1)
    }
}
