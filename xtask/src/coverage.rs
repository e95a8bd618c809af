//! `cargo xtask coverage`: counts the lines of the library that its tests reach, by room, and writes docs/coverage.md.

mod counted;
mod lines;
mod report;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::rooms::{OWN_TESTS, ROOMS, server_tests};
use crate::sh::{TESTS_AT_ONCE, command, first_line, root, run as run_command, show, tee_within};
use crate::test::Tally;
use crate::{page, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only the tests that need no server, and writes no page
    #[arg(long)]
    without_servers: bool,
    /// Lists the places of this room that the last run has not reached, the longest first, and runs nothing
    #[arg(long, value_name = "ROOM", value_parser = ROOMS)]
    show: Option<String>,
}

/// The page with the results.
const PAGE: &str = "docs/coverage.md";

/// What cargo-llvm-cov has counted, kept for `--show`.
const COUNTS: &str = "target/coverage.lcov";

/// Bounds the build and the tests.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// The rooms whose tests on servers run too.
const WITH_SERVERS: [&str; 2] = ["redis", "set"];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(room) = &args.show {
        print!("{}", report::unreached(&counted()?, room));
        return Ok(());
    }
    let start = Instant::now();
    let tally = measure(args)?;
    let table = report::table(&counted()?);
    print!("{table}");
    if args.without_servers {
        return Ok(());
    }
    let written = format!(
        "Written by `cargo xtask coverage`, {}, {}. Tests: {tally}; with the build, {} min.",
        page::today()?,
        first_line("rustc", &["--version"]),
        start.elapsed().as_secs().div_ceil(60),
    );
    page::rewrite(PAGE, "Results", &format!("{written}\n\n{table}"))
}

fn counted() -> Result<Vec<lines::File>> {
    let counts = fs::read_to_string(root().join(COUNTS))?;
    lines::files(&counts, &counted::Counted::read()?)
}

/// Runs the tests, and keeps what they have reached. A test that fails does not void it: the page says how many did.
fn measure(args: &Args) -> Result<Tally> {
    let home = home();
    // Of a run that was ended half-way its build stays, and its counts must not.
    run_command(llvm_cov(&["clean", "--profraw-only"])?)?;
    let mut test = llvm_cov(&[
        "test",
        "--no-cfg-coverage",
        "--no-report",
        "--no-fail-fast",
        "--all-features",
    ])?;
    test.args(["-p", "tidelock", "-p", "tidelock-cli", "--lib"]);
    // These build the command, which other tests start.
    test.args(["--test", "cli"]);
    test.args(OWN_TESTS.iter().flat_map(|name| ["--test", name]));
    if !args.without_servers {
        test.args(["-p", "real_servers"]);
        let tests = WITH_SERVERS.into_iter().flat_map(server_tests);
        test.args(tests.flat_map(|name| ["--test", name]));
    }
    test.env("TIDELOCK_REQUIRE", "1")
        .env("RUST_TEST_THREADS", TESTS_AT_ONCE)
        .env("TIDELOCK_BIN", home.join("debug/tidelock"));
    let shown = show(&test);
    let mut tally = Tally::default();
    let passed = tee_within(LONGEST, test, |line| tally.read(line))?;
    if !passed {
        println!("{shown} failed:\n{}", tally.failures);
    }
    ensure!(tally.ran(), "no test has run");
    let mut report = llvm_cov(&["report", "--lcov", "--output-path"])?;
    report.arg(root().join(COUNTS));
    run_command(report)?;
    // Some gigabytes.
    fs::remove_dir_all(home)?;
    Ok(tally)
}

/// Where the build is: with other compiler flags cargo would build everything again, and so would the next command.
fn home() -> PathBuf {
    root().join("target/coverage")
}

fn llvm_cov(args: &[&str]) -> Result<Command> {
    let program = tools::cargo_llvm_cov()?;
    let mut llvm_cov = command(&program.to_string_lossy(), &["llvm-cov"]);
    llvm_cov
        .args(args)
        .env("CARGO_LLVM_COV_TARGET_DIR", home())
        .env("CARGO_INCREMENTAL", "0")
        // Processes share a few files. Some tests start hundreds, and a file of each would fill the disk.
        .env("LLVM_PROFILE_FILE_NAME", "tidelock-%4m.profraw");
    Ok(llvm_cov)
}
