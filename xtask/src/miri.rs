//! `cargo xtask miri`: runs the tests of the engine's concurrent parts under Miri, and writes a part of docs/schedules.md.

mod bugs;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::sh::{command, first_line, root, show, tee_within};
use crate::test::Tally;
use crate::{page, planted, schedules, tools};
use bugs::{BUGS, Bug};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds. Each chooses other switches between threads, and other values where the memory model allows several
    #[arg(long, value_name = "N", default_value_t = 8)]
    seeds: u32,
    /// Only these tests, whose path begins so; writes no page
    #[arg(long, value_name = "PATH")]
    only: Option<String>,
    /// Looks for the planted bugs only, and writes no page
    #[arg(long, conflicts_with = "only")]
    bugs: bool,
}

/// The parts of the engine that several threads use, and what of them the page says.
const PARTS: [(&str, &str); 5] = [
    ("engine::tests", "three threads use one client"),
    ("engine::local_queue", "local queue, hand-off, leader terms"),
    ("engine::lease", "lease table, hold, steward"),
    (
        "engine::runtime",
        "signals, events, timers, counter of operations in flight",
    ),
    ("engine::waiting_calls", "the acquisitions that wait"),
];

/// Bounds one part with one seed.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// How Miri begins to say what is wrong with the program. A build that fails has errors too.
const SEEN: [&str; 2] = ["the evaluated program deadlocked", "Undefined Behavior"];

/// With how many seeds a planted bug may stay hidden.
const LONGEST_HUNT: u32 = 32;

pub(crate) fn run(args: &Args) -> Result<()> {
    tools::miri()?;
    let found = match &args.only {
        Some(_) => String::new(),
        None => hunt()?,
    };
    if args.bugs {
        return Ok(());
    }
    let chosen = PARTS.iter().filter(|(part, _)| {
        let only = args.only.as_deref().unwrap_or_default();
        part.starts_with(only) || only.starts_with(part)
    });
    let mut table = String::from(
        "| part | what it is | tests | seeds | seconds | failed |\n| --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    for (part, about) in chosen {
        let (start, mut tally) = (Instant::now(), Tally::default());
        for seed in 0..args.seeds {
            one(args.only.as_deref().unwrap_or(part), seed, &mut tally)?;
        }
        ensure!(tally.ran(), "{part} has no tests");
        let (passed, seconds) = (
            tally.passed() / u64::from(args.seeds),
            start.elapsed().as_secs(),
        );
        // A failure would have ended the command.
        let _ = writeln!(
            table,
            "| `{part}` | {about} | {passed} | {} | {seconds} | 0 |",
            args.seeds
        );
    }
    print!("{table}");
    if args.only.is_some() {
        return Ok(());
    }
    let written = format!(
        "Written by `cargo xtask miri`, {}, {}.",
        page::today()?,
        first_line("rustc", &["+nightly", "--version"])
    );
    page::rewrite(
        schedules::PAGE,
        "Miri",
        &format!("{written}\n\n{table}\n{found}"),
    )
}

/// Looks for each planted bug. Returns the table of the page.
fn hunt() -> Result<String> {
    let mut table = String::from(
        "| planted bug | test | found by seed | what Miri saw |\n| --- | --- | ---: | --- |\n",
    );
    let folder = root().join("target/planted-miri");
    for Bug {
        name,
        test,
        changes,
    } in BUGS
    {
        planted::plant(&folder, &["crates/tidelock"], changes)?;
        let (seed, why) = found(&folder, test)?
            .with_context(|| format!("{name}: not found with {LONGEST_HUNT} seeds"))?;
        println!("{name}: found by seed {seed}: {why}");
        let (_, test) = test.rsplit_once("::").context("the path of a test")?;
        let _ = writeln!(table, "| {name} | `{test}` | {seed} | {why} |");
    }
    Ok(table)
}

/// The first seed with which Miri ends a test of that workspace, and why.
fn found(workspace: &Path, test: &str) -> Result<Option<(u32, String)>> {
    for seed in 0..LONGEST_HUNT {
        let output = miri(workspace, test, seed).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            let ran = String::from_utf8_lossy(&output.stdout).contains("\nrunning 1 test");
            ensure!(ran, "there is no test {test}");
            continue;
        }
        let mut errors = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("error: "));
        let why = errors.find(|error| SEEN.iter().any(|seen| error.starts_with(seen)));
        let why =
            why.with_context(|| format!("seed {seed}: {test} failed in another way: {said}"))?;
        return Ok(Some((seed, why.to_owned())));
    }
    Ok(None)
}

/// Runs the tests of one part with one seed.
fn one(part: &str, seed: u32, tally: &mut Tally) -> Result<()> {
    let test = miri(&root(), part, seed);
    let shown = show(&test);
    let passed = tee_within(LONGEST, test, |line| tally.read(line)).context("cargo miri")?;
    if !passed {
        bail!("seed {seed}: {shown} failed");
    }
    Ok(())
}

/// The tests of a part of a workspace. Each workspace has a build of its own, as with the schedules.
fn miri(workspace: &Path, part: &str, seed: u32) -> Command {
    let mut test = command(
        "cargo",
        &["miri", "test", "--quiet", "-p", "tidelock", "--lib"],
    );
    // Without the features of stores, whose drivers are large and are not used here.
    test.args(["--no-default-features", "--", part])
        .current_dir(workspace)
        // The clock of leases is that of the machine.
        .env(
            "MIRIFLAGS",
            format!("-Zmiri-disable-isolation -Zmiri-seed={seed}"),
        )
        // A test with a waker that panics would print a backtrace for minutes.
        .env("RUST_BACKTRACE", "0")
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("CARGO_TARGET_DIR", workspace.join("target/miri"));
    test
}
