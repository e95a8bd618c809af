//! `cargo xtask schedules`: runs the engine in very many orders of its tasks, finds planted bugs, and writes
//! docs/schedules.md.

mod bugs;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::page;
use crate::planted;
use crate::sh::{cargo, command, quiet, root};
use bugs::{BUGS, Bug, SWITCH};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many schedules in all, spread evenly over the stories
    #[arg(long, value_name = "N", default_value_t = MILLION)]
    schedules: usize,
    /// Looks for the planted bugs only, and writes no page
    #[arg(long)]
    bugs: bool,
}

/// The page with the results; `cargo xtask miri` writes another part of it.
pub(crate) const PAGE: &str = "docs/schedules.md";

const MILLION: usize = 1_000_000;

/// How many schedules a planted bug may stay hidden.
const LONGEST_HUNT: usize = 100_000;

pub(crate) fn run(args: &Args) -> Result<()> {
    let found = hunt()?;
    if args.bugs {
        return Ok(());
    }
    let explored = explore(&build(&root(), "release")?, args.schedules)?;
    let written = format!("Written by `cargo xtask schedules`, {}.", page::today()?);
    page::rewrite(
        PAGE,
        "Results",
        &format!("{written}\n\n{explored}\n{found}"),
    )
}

/// Some schedules of each story, for `cargo xtask test`. A debug build, because it is ready sooner.
pub(crate) fn some() -> Result<()> {
    print!("{}", explore(&build(&root(), "dev")?, 4000)?);
    Ok(())
}

/// As `cargo xtask schedules`, for `cargo xtask full`.
pub(crate) fn all() -> Result<()> {
    run(&Args {
        schedules: MILLION,
        bugs: false,
    })
}

/// Runs the stories in that many schedules. Returns the table of the page.
fn explore(program: &str, schedules: usize) -> Result<String> {
    let names = quiet(command(program, &["--list"]))?;
    let each = schedules.div_ceil(names.lines().count().max(1)).to_string();
    let said = quiet(command(program, &["--schedules", &each]))?;
    let mut table = String::from(
        "| story | what happens | schedules | seconds | failed |\n| --- | --- | ---: | ---: | ---: |\n",
    );
    for line in said.lines() {
        let mut columns = line.split('\t');
        let mut column = || columns.next().context("a column is missing");
        let (name, about, schedules, seconds) = (column()?, column()?, column()?, column()?);
        // A failure would have ended the search.
        let _ = writeln!(table, "| {name} | {about} | {schedules} | {seconds} | 0 |");
    }
    Ok(table)
}

/// Looks for each planted bug. Returns the table of the page.
fn hunt() -> Result<String> {
    let folder = root().join("target/planted");
    let changes = BUGS.iter().flat_map(|bug| bug.changes);
    planted::plant(
        &folder,
        &["crates/tidelock", "tests/schedules"],
        changes.chain([&SWITCH]),
    )?;
    let program = build(&folder, "release")?;
    let mut table = String::from(
        "| planted bug | story | found after | what the story saw |\n| --- | --- | ---: | --- |\n",
    );
    for Bug { name, story, .. } in &BUGS {
        let most = LONGEST_HUNT.to_string();
        let mut search = command(&program, &["--story", story, "--schedules", &most]);
        let output = search.env("PLANTED", name).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success(),
            "{name}: not found in {most} schedules of the story {story}"
        );
        let failed = said
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("failed: "));
        let (after, why) = failed
            .and_then(|line| line.split_once('\t'))
            .with_context(|| format!("{name}: the search ended in another way: {said}"))?;
        println!("{name}: found after {after} schedules: {why}");
        let _ = writeln!(table, "| {name} | {story} | {after} | {why} |");
    }
    Ok(table)
}

/// Builds the stories of a workspace with a scheduler, and returns the program.
///
/// The folder of the build is its own. With other compiler flags cargo would build everything again, and so would the
/// next command. Nor may the copy with the bugs share it: cargo names a package by its path in the workspace and looks at
/// the time of its files, so it would take the library with the bugs for the one without.
fn build(workspace: &Path, profile: &str) -> Result<String> {
    let target = workspace.join("target/schedules");
    let mut build = cargo(&["build", "--quiet", "-p", "schedules", "--profile", profile]);
    build
        .current_dir(workspace)
        .env("RUSTFLAGS", "--cfg schedules=\"shuttle\"")
        .env("CARGO_TARGET_DIR", &target);
    crate::sh::run(build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let program = target.join(folder).join("schedules");
    Ok(program.to_string_lossy().into_owned())
}
