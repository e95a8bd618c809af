//! `cargo xtask compatibility`: the tests beside real Redisson, and the page that says what they show.

mod cells;
mod page;

use std::fs;

use anyhow::{Context, Result, ensure};

use self::cells::Cell;
use self::page::{Answers, Run};
use crate::sh::{self, cargo, root};
use crate::test::Tally;

const PAGE: &str = "docs/compatibility.md";
const TESTS: [&str; 5] = ["test", "-p", "real_servers", "--test", "interop"];

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Runs only the tests whose names contain this, and keeps what the page says of the others; may be given more than
    /// once
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Runs only the tests that every change runs: two versions of Redisson, and no long load
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut tally = Tally::default();
    let result = write(args, &mut tally);
    println!("{tally}");
    result
}

/// Tests that measure how long a waiter waits, or print figures: two on one machine would measure each other.
const ONE_AT_A_TIME: [&str; 2] = ["fair_load", "loads"];

/// Runs the tests and writes the page after each group of them, also if some fail: the page says which.
pub(crate) fn write(args: &Args, tally: &mut Tally) -> Result<()> {
    let cells = all_tests()?
        .iter()
        .map(|test| Cell::of(test))
        .collect::<Result<Vec<Cell>>>()?;
    let path = root().join(PAGE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut answers = Answers::new();
    let mut red = Vec::new();
    for group in groups(&cells, args) {
        let (passed, seen) = run_group(&cells, &group, args, tally)?;
        if !passed {
            red.push(group);
        }
        answers.extend(seen);
        let run = Run {
            what: said(args),
            tests: answers.values().flatten().count(),
            is_whole: args.only.is_empty() && !args.quick,
            // They stand on this page, and not on that of a long run that this is a part of.
            figures: &tally.figures,
        };
        fs::write(&path, page::render(&cells, &answers, &before, &run))
            .with_context(|| PAGE.to_owned())?;
    }
    tally.figures.clear();
    ensure!(red.is_empty(), "tests failed in {}", red.join(", "));
    Ok(())
}

/// The command that was run, as the page names it.
fn said(args: &Args) -> String {
    let only = args.only.iter().map(|text| format!(" --only {text}"));
    let quick = if args.quick { " --quick" } else { "" };
    format!(
        "cargo xtask compatibility{}{quick}",
        only.collect::<String>()
    )
}

/// The names of all tests, also of those that only a long run executes.
fn all_tests() -> Result<Vec<String>> {
    let mut list = cargo(&TESTS);
    list.args(["--quiet", "--", "--list"]);
    let said = sh::quiet(list)?;
    let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// The groups that have a test to run. Each has a run of cargo of its own: one run of all would exceed the bound of
/// [`sh::tee`].
fn groups(cells: &[Cell], args: &Args) -> Vec<String> {
    let chosen = cells.iter().filter(|cell| is_chosen(cell, args));
    let mut groups: Vec<String> = chosen.map(|cell| cell.group().to_owned()).collect();
    groups.dedup();
    groups
}

fn is_chosen(cell: &Cell, args: &Args) -> bool {
    args.only.is_empty() || args.only.iter().any(|text| cell.test.contains(&**text))
}

fn run_group(
    cells: &[Cell],
    group: &str,
    args: &Args,
    tally: &mut Tally,
) -> Result<(bool, Answers)> {
    let mut tests = cargo(&TESTS);
    tests.args(["--no-fail-fast", "--", "--show-output", "--exact"]);
    if ONE_AT_A_TIME.contains(&group.split("::").next().unwrap_or_default()) {
        tests.args(["--test-threads", "1"]);
    }
    tests.args((!args.quick).then_some("--include-ignored"));
    let own = cells.iter().filter(|cell| cell.group() == group);
    let chosen = own.filter(|cell| is_chosen(cell, args));
    let chosen: Vec<&str> = chosen.map(|cell| &*cell.test).collect();
    tests.args(&chosen);
    let mut heard = page::Heard::default();
    let passed = sh::tee(tests, |line| {
        tally.read(line);
        heard.read(line);
    })?;
    // A quick run leaves out those that are ignored.
    let answers = heard.answers(chosen.into_iter(), !args.quick);
    Ok((passed, answers))
}
