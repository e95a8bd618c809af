//! `cargo xtask fuzz`: runs the fuzz targets, which cover all code that reads bytes from outside.

mod corpus;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

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

Written by `cargo xtask fuzz`: each parser of ours that reads bytes from outside, given nonsense by libFuzzer with the address
sanitizer. Not only must nothing panic: what each target asserts is in `crates/tidelock/src/fuzz.rs`, in the `fuzz.rs` of
each store, and for the command in its target. The same functions run on some thousand inputs with every `cargo test` (`crates/tidelock/tests/it/properties.rs`).
What was found is in [bugs.md](bugs.md).

A run begins with the corpus in `fuzz/kept` if the target has one there: inputs that reach different code. The column counts the
inputs that were kept after the run; those that reach no new code are dropped.

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
                    if let Ok(row) = &said {
                        println!("{target}: {} executions, {} crashes", row.runs, row.crashes);
                    }
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.extend(failure(&target, &said));
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Why the command fails, if it does because of this target. A crash is in the page too, but a script that calls the command
/// sees only its exit status.
fn failure(target: &str, said: &Result<Row>) -> Option<String> {
    match said {
        Ok(row) if row.crashes == 0 => None,
        Ok(row) => Some(format!(
            "{target}: {} crashes, see fuzz/artifacts/{target}",
            row.crashes
        )),
        Err(error) => Some(format!("{target}: {error:#}")),
    }
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
    let before = artifacts(target);
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
        corpus: files(&format!("fuzz/corpus/{target}")).count(),
        // Inputs that were only slow on a busy machine are in the folder too, so we count only after a failure.
        crashes: if good {
            0
        } else {
            written(&before, &artifacts(target))
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

fn files(folder: &str) -> impl Iterator<Item = fs::DirEntry> + use<> {
    let all = fs::read_dir(root().join(folder)).into_iter().flatten();
    all.flatten()
}

/// The inputs with which a target has crashed, and when each was written.
type Artifacts = BTreeMap<String, Option<SystemTime>>;

fn artifacts(target: &str) -> Artifacts {
    let all = files(&format!("fuzz/artifacts/{target}")).map(|entry| {
        let written = entry.metadata().and_then(|it| it.modified());
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, written.ok())
    });
    all.filter(|(name, _)| !name.starts_with("slow-unit"))
        .collect()
}

/// How many a run has written, some of them perhaps again. The folder keeps those of earlier runs.
fn written(before: &Artifacts, after: &Artifacts) -> usize {
    let is_new = |(name, at): &(&String, &Option<SystemTime>)| before.get(*name) != Some(*at);
    after.iter().filter(is_new).count()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;

    use super::*;

    fn with(crashes: usize) -> Row {
        Row {
            runs: 7,
            seconds: 1,
            corpus: 2,
            crashes,
        }
    }

    #[test]
    fn a_crash_is_a_failure_of_the_command() {
        assert_eq!(failure("glob", &Ok(with(0))), None);
        let crashed = "glob: 2 crashes, see fuzz/artifacts/glob";
        assert_eq!(failure("glob", &Ok(with(2))).as_deref(), Some(crashed));
        let ended = failure("glob", &Err(anyhow!("no tar")));
        assert_eq!(ended.as_deref(), Some("glob: no tar"));
    }

    #[test]
    fn crashes_of_earlier_runs_are_not_counted() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let old = Artifacts::from([("crash-a".to_owned(), at(1)), ("crash-b".to_owned(), at(1))]);
        assert_eq!(written(&old, &old), 0);
        let mut now = old.clone();
        now.insert("crash-b".to_owned(), at(2));
        now.insert("crash-c".to_owned(), at(2));
        assert_eq!(written(&old, &now), 2);
    }
}
