//! `cargo xtask fuzz`: runs the fuzz targets, which cover all code that reads bytes from outside.

mod corpus;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use crate::sh::{command, quiet, root};
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this target; may be given more than once
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// How many targets run at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    at_once: usize,
}

/// The page with the results.
const PAGE: &str = "docs/fuzz.md";

const HEAD: &str = "\
# Fuzzing

Written by `cargo xtask fuzz`: each thing that reads bytes from outside, given nonsense by libFuzzer with the address
sanitizer. Not only must nothing panic: what each target asserts is in `crates/tidelock/src/fuzz.rs` and in the `fuzz.rs` of
each store. The same functions run on some thousand inputs with every `cargo test` (`crates/tidelock/tests/it/properties.rs`).
What was found is in [bugs.md](bugs.md).

A run begins with the corpus of the last one, which `fuzz/kept` has: inputs that reach different code. The column counts
those that were left after the run, without the ones that reach nothing new.

| target | date | executions | seconds | corpus | crashes |
| --- | --- | ---: | ---: | ---: | ---: |
";

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = targets()?;
    for name in &args.target {
        ensure!(
            all.contains(name),
            "no target {name}; there are {}",
            all.join(", ")
        );
    }
    let chosen = if args.target.is_empty() {
        &all
    } else {
        &args.target
    };
    let tool = tools::cargo_fuzz()?;
    build(&tool, &args.target)?;
    let left = Mutex::new(VecDeque::from(chosen.clone()));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let next = left
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .pop_front();
                    let Some(target) = next else { return };
                    let said = one(&tool, &target, args.minutes);
                    let said = said.and_then(|row| keep(&target, &row).map(|()| row));
                    match said {
                        Ok(row) => {
                            println!("{target}: {} executions, {} crashes", row.runs, row.crashes);
                        }
                        Err(error) => {
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.push(format!("{target}: {error:#}"));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The names of the targets in the manifest.
fn targets() -> Result<Vec<String>> {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml"))?;
    let bins = manifest.split("[[bin]]").skip(1);
    let names = bins.filter_map(|bin| bin.lines().find_map(|line| line.strip_prefix("name = ")));
    Ok(names
        .map(|name| name.trim_matches('"').to_owned())
        .collect())
}

fn cargo_fuzz(tool: &Path, args: &[&str]) -> std::process::Command {
    // cargo-fuzz needs compiler flags that only nightly accepts.
    let mut fuzz = command(&tool.to_string_lossy(), &["fuzz"]);
    fuzz.args(args).env("RUSTUP_TOOLCHAIN", "nightly");
    fuzz
}

/// Builds the requested targets, or all of them, which takes twice as long.
fn build(tool: &Path, wanted: &[String]) -> Result<()> {
    println!("building the targets; some minutes the first time");
    let needs = "it needs `rustup toolchain install nightly`";
    if wanted.is_empty() {
        quiet(cargo_fuzz(tool, &["build"])).context(needs)?;
    }
    for target in wanted {
        quiet(cargo_fuzz(tool, &["build", target])).context(needs)?;
    }
    Ok(())
}

/// The result of one target.
struct Row {
    runs: u64,
    seconds: u64,
    corpus: usize,
    crashes: usize,
}

fn one(tool: &Path, target: &str, minutes: f64) -> Result<Row> {
    corpus::unpack(target)?;
    let log = root().join("fuzz/target").join(format!("{target}.log"));
    let file = fs::File::create(&log)?;
    let seconds = format!("-max_total_time={:.0}", minutes * 60.0);
    let words = [
        "run",
        target,
        "--",
        &seconds,
        "-print_final_stats=1",
        "-timeout=20",
        "-rss_limit_mb=2048",
    ];
    let mut fuzz = cargo_fuzz(tool, &words);
    fuzz.stdout(Stdio::null()).stderr(file);
    let good = fuzz.status()?.success();
    if good {
        corpus::pack(tool, target)?;
    }
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let row = Row {
        runs: stat(&said, "stat::number_of_executed_units:").unwrap_or(0),
        seconds: said
            .rsplit_once(" runs in ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .unwrap_or(0),
        corpus: files(&format!("fuzz/corpus/{target}"), |_| true),
        // The folder also keeps crashes of earlier runs, and inputs that were slow on a busy machine. So we count only
        // after a failure.
        crashes: if good {
            0
        } else {
            files(&format!("fuzz/artifacts/{target}"), |name| {
                !name.starts_with("slow-unit")
            })
        },
    };
    if !good && row.crashes == 0 {
        bail!(
            "it ended without a crash and without success; see {}",
            log.display()
        );
    }
    Ok(row)
}

fn stat(said: &str, name: &str) -> Option<u64> {
    let line = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn files(folder: &str, counted: impl Fn(&str) -> bool) -> usize {
    let all = fs::read_dir(root().join(folder)).into_iter().flatten();
    let names = all.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| counted(&name.to_string_lossy()))
        .count()
}

/// Puts a row into the page, in place of the old one.
fn keep(target: &str, row: &Row) -> Result<()> {
    static PEN: Mutex<()> = Mutex::new(());
    // Several threads update the page. Without the mutex they would overwrite the rows of one another.
    let _pen = PEN.lock().unwrap_or_else(PoisonError::into_inner);
    let page = root().join(PAGE);
    let before = fs::read_to_string(&page).unwrap_or_default();
    let mut rows: BTreeMap<String, String> = before
        .lines()
        .filter_map(|line| {
            Some((
                line.strip_prefix("| `")?.split('`').next()?.to_owned(),
                line.to_owned(),
            ))
        })
        .collect();
    let date = quiet(command("date", &["-u", "+%Y-%m-%d"]))?;
    let (
        date,
        Row {
            runs,
            seconds,
            corpus,
            crashes,
        },
    ) = (date.trim(), row);
    let line = format!("| `{target}` | {date} | {runs} | {seconds} | {corpus} | {crashes} |");
    rows.insert(target.to_owned(), line);
    let mut text = HEAD.to_owned();
    for row in rows.values() {
        let _ = writeln!(text, "{row}");
    }
    fs::write(page, text)?;
    Ok(())
}
