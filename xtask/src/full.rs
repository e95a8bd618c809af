//! `cargo xtask full`: the checks that take too long for every change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::compatibility;
use crate::partitions;
use crate::schedules;
use crate::servers;
use crate::sh::{cargo, first_line, root, show, tee_within};
use crate::storm;
use crate::test::{
    self, Outcome, PARTS, Tally, features_of_the_command, newer_etcd, perform, stories, tests,
    whole_family,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only this part, by its name on the page, and updates only its row; may be given more than once
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// How long the part `growth in names` runs on Redis; in memory and in a file it runs a sixth of that
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    minutes: u32,
}

const FLAVOURS: [&str; 4] = ["redis62", "redis7", "redis8", "valkey9"];

/// The long tests of slots.
const SLOTS: &str = "10000_slots";

/// Long tests of elections and slots. They print figures for the page.
const FLEETS: [&str; 5] = [
    SLOTS,
    "leaders_that_are_killed_fifty_times",
    "thirty_rolling_restarts",
    "a_process_that_was_frozen_drops_its_work",
    "members_that_are_killed_or_frozen_hold_up_nobody",
];

/// The long tests that use millions of names.
const NAMES: &str = "names_leave_nothing_for";

/// The stories of the simulator, and how many of each: eight minutes at most on two cores. Those of elections take ten times as
/// long as those of jobs.
const STORIES: [(&str, u32); 7] = [
    ("locks", 100_000),
    ("elections", 10_000),
    ("jobs", 100_000),
    ("permits", 100_000),
    ("sides", 100_000),
    ("barriers", 100_000),
    ("counts", 100_000),
];

/// The page, up to the list of what it ran on.
const HEAD: &str = "\
# The long checks

Written by `cargo xtask full`. With `--only PART` it runs one part and replaces only the row and the figures of that part, so each row
names its commit; `-dirty`: with changes that were not committed. The list tells of the last run, and older rows may come from another
machine. *not run*: this command has not yet run a part of this name. [compatibility](compatibility.md), the
[million schedules](schedules.md), [partitions](partitions.md) and [storms](storms.md) also run without it, and have pages of their own.

";

/// Bounds a run of the fleets.
const LONGEST_FLEETS: Duration = Duration::from_secs(3 * 3600);

type Run = Box<dyn FnOnce(&mut Tally) -> Result<()>>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut parts = parts(args.minutes);
    for name in &args.only {
        ensure!(
            parts.iter().any(|(part, _)| part == name),
            "no part is called {name}; docs/full.md names them"
        );
    }
    let all: Vec<String> = parts.iter().map(|(name, _)| name.clone()).collect();
    parts.retain(|(name, _)| args.only.is_empty() || args.only.contains(name));
    let outcomes: Vec<Outcome> = parts
        .into_iter()
        .map(|(name, part)| perform(&name, part))
        .collect();
    let page = root().join("docs/full.md");
    let before = if args.only.is_empty() {
        String::new()
    } else {
        fs::read_to_string(&page)?
    };
    fs::write(&page, summary(&outcomes, &before, &all, &commit()))?;
    test::finish(&outcomes)
}

fn parts(minutes: u32) -> Vec<(String, Run)> {
    let install = |_: &mut Tally| servers::run(servers::Args { full: true });
    let mut parts: Vec<(String, Run)> = vec![("servers --full".to_owned(), Box::new(install))];
    for part in PARTS.iter().filter(|part| part.name != "servers") {
        parts.push((part.name.to_owned(), Box::new(part.run)));
    }
    let run: Run = Box::new(features_of_the_command);
    parts.push(("features of the command".to_owned(), run));
    // The plain parts above ran on Redis 7.
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != "redis7") {
        let run: Run = Box::new(move |tally| whole_family(tally, flavour));
        parts.push((format!("real servers on {flavour}"), run));
    }
    for newer in servers::etcd::ALL {
        let run: Run = Box::new(move |tally| newer_etcd(tally, newer.flavour));
        parts.push((format!("real servers on {}", newer.flavour), run));
    }
    let run: Run = Box::new(long_tests);
    parts.push(("long tests".to_owned(), run));
    let run: Run = Box::new(|tally| compatibility::write(&compatibility::Args::default(), tally));
    parts.push(("compatibility".to_owned(), run));
    let run: Run = Box::new(|_| schedules::all());
    parts.push(("a million schedules".to_owned(), run));
    for (subject, number) in STORIES {
        let run: Run = Box::new(move |_| stories(number, &["--only", subject]));
        parts.push((format!("{number} stories of {subject}"), run));
    }
    let run: Run = Box::new(|_| partitions::many());
    parts.push(("partitions".to_owned(), run));
    let run: Run = Box::new(move |_| storm::long(minutes));
    parts.push(("storms".to_owned(), run));
    // Four at once: their processes wait for each other most of the time, and nothing here is a measurement.
    let run: Run = Box::new(|tally| fleets(tally, &[SLOTS, "--test-threads", "4"]));
    parts.push(("ten thousand slots".to_owned(), run));
    // One after the other: two on one machine would measure each other.
    let run: Run = Box::new(|tally| fleets(tally, &["--skip", SLOTS, "--test-threads", "1"]));
    parts.push(("fleets".to_owned(), run));
    let run: Run = Box::new(move |tally| names(tally, minutes));
    parts.push(("growth in names".to_owned(), run));
    parts
}

/// Long tests of elections and slots, chosen by more arguments. In a release build: a debug build needs hours for so many
/// runs.
fn fleets(tally: &mut Tally, more: &[&str]) -> Result<()> {
    let tests = ["test", "--release", "--no-fail-fast"];
    let fleet = ["-p", "real_servers", "--test", "fleet"];
    let flags = ["--", "--ignored", "--nocapture"];
    let command = cargo(&[&tests[..], &fleet, &flags, more].concat());
    let shown = show(&command);
    let passed = tee_within(LONGEST_FLEETS, command, |line| tally.read(line))?;
    ensure!(passed, "{shown}");
    Ok(())
}

/// Ten million names an hour through one client, for an hour on Redis and for a sixth of that elsewhere. In a release
/// build, and one store after the other: the memory of the process is measured.
fn names(tally: &mut Tally, minutes: u32) -> Result<()> {
    let mut command = cargo(&["test", "--release", "--no-fail-fast", "-p", "real_servers"]);
    command
        .args(["--test", "names", "--", "--ignored", "--nocapture"])
        .args(["--test-threads", "1", NAMES])
        .env("TIDELOCK_MINUTES", minutes.to_string());
    let shown = show(&command);
    // Two stores take a sixth of the time. The rest is for the build, and for a machine that is too busy to keep the pace.
    let limit = Duration::from_secs(u64::from(minutes) * 60 * 2 + 1800);
    let passed = tee_within(limit, command, |line| tally.read(line))?;
    ensure!(passed, "{shown}");
    Ok(())
}

/// Without those beside Redisson, which write a page of their own.
fn long_tests(tally: &mut Tally) -> Result<()> {
    let mut binaries = test::binaries()?;
    binaries.retain(|name| name != "interop");
    let mut args = vec!["-p", "real_servers"];
    args.extend(binaries.iter().flat_map(|name| ["--test", name]));
    args.extend(["--", "--ignored"]);
    args.extend(FLEETS.iter().flat_map(|test| ["--skip", test]));
    args.extend(["--skip", NAMES]);
    tests(tally, &args)
}

/// Renders the page: a row for each of the parts. Those that were not run now keep their row from `before`. A row of another
/// part is left out: the part has a new name or is gone, so no run would ever replace that row.
fn summary(outcomes: &[Outcome], before: &str, parts: &[String], commit: &str) -> String {
    let mut text = HEAD.to_owned();
    for (what, value) in machine() {
        let _ = writeln!(text, "- {what}: {value}");
    }
    text.push_str(
        "\n| part | commit | time | result | tests |\n| --- | --- | ---: | --- | --- |\n",
    );
    let mut rows: BTreeMap<String, String> = before.lines().filter_map(row).collect();
    let new = outcomes.iter();
    rows.extend(new.map(|it| (it.name.clone(), line(it, commit))));
    for name in parts {
        let known = rows.remove(name);
        let known = known.unwrap_or_else(|| format!("| {name} |  |  | not run |  |"));
        let _ = writeln!(text, "{known}");
    }
    let old = before.split_once("\n## Figures\n");
    let old = old.map_or("", |(_, figures)| figures);
    let mut figures: BTreeMap<String, String> = old.lines().filter_map(figure).collect();
    figures.extend(outcomes.iter().flat_map(|it| it.tally.figures.clone()));
    if !figures.is_empty() {
        text.push_str("\n## Figures\n\n");
    }
    for (name, figure) in figures {
        let _ = writeln!(text, "- {name}: {figure}");
    }
    text
}

/// Parses a line of the figures; returns its name and its text.
fn figure(line: &str) -> Option<(String, String)> {
    let (name, text) = line.strip_prefix("- ")?.split_once(": ")?;
    Some((name.to_owned(), text.to_owned()))
}

/// Parses the row of a part; returns its name and the row.
fn row(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
    let is_part = name != "part" && !name.starts_with("---") && !rest.is_empty();
    is_part.then(|| (name.to_owned(), line.to_owned()))
}

fn line(outcome: &Outcome, commit: &str) -> String {
    let Outcome {
        name,
        time,
        tally,
        error,
    } = outcome;
    let verdict = match error {
        Some(_) => "**failed**".to_owned(),
        None => tally.ok(),
    };
    format!(
        "| {name} | {commit} | {:.1} s | {verdict} | {} |",
        time.as_secs_f64(),
        tally.or_nothing()
    )
}

fn commit() -> String {
    first_line("git", &["describe", "--always", "--dirty"])
}

fn machine() -> Vec<(&'static str, String)> {
    let server = |flavour: &str| {
        let path = root().join("target/servers").join(flavour).join("server");
        first_line(&path.to_string_lossy(), &["--version"])
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("date", first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        (
            "machine",
            format!("{}, {cores} cores", first_line("uname", &["-srm"])),
        ),
        ("compiler", first_line("rustc", &["--version"])),
        ("Redis 7", first_line("redis-server", &["--version"])),
        ("Redis 6.2", server("redis62")),
        ("Redis 8", server("redis8")),
        ("Valkey 9", server("valkey9")),
        ("etcd", first_line("etcd", &["--version"])),
        ("etcd 3.6", server("etcd36")),
        ("etcd 3.7", server("etcd37")),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn owned<const N: usize>(names: [&str; N]) -> [String; N] {
        names.map(str::to_owned)
    }

    #[test]
    fn a_part_that_could_not_check_everything_says_so_in_its_line() {
        let mut outcome = perform("deny", |tally| {
            tally.not_checked("advisories");
            Ok(())
        });
        outcome.time = Duration::from_secs(1);
        let told = "| deny | aaa | 1.0 s | ok, advisories not checked |  |";
        assert_eq!(line(&outcome, "aaa"), told);
        let page = summary(&[outcome], "", &owned(["deny"]), "aaa");
        assert!(page.lines().any(|line| line == told), "{page}");
    }

    #[test]
    fn the_page_has_a_row_for_each_part_and_for_no_other() {
        let before = "| gone | aaa | 1.0 s | ok |  |\n";
        let outcome = perform("deny", |_| Ok(()));
        let page = summary(&[outcome], before, &owned(["storms", "deny"]), "bbb");
        let (_, table) = page.split_once("| --- |\n").unwrap_or_default();
        assert!(
            table.starts_with("| storms |  |  | not run |  |\n| deny | bbb |"),
            "{page}"
        );
        assert_eq!(table.lines().count(), 2, "{page}");
    }

    #[test]
    fn a_part_that_is_run_alone_replaces_its_own_line() {
        let outcome = |name: &str, error: Option<&str>| Outcome {
            name: name.to_owned(),
            time: Duration::from_secs(1),
            tally: Tally::default(),
            error: error.map(str::to_owned),
        };
        let mut all = [outcome("format", None), outcome("long tests", Some("red"))];
        all[0].tally.read("figure: a restart = 7 ms");
        let parts = owned(["format", "long tests"]);
        let before = summary(&all, "", &parts, "aaa");
        let after = summary(&[outcome("long tests", None)], &before, &parts, "bbb");
        assert!(
            after.ends_with("\n## Figures\n\n- a restart: 7 ms\n"),
            "{after}"
        );
        let rows = |page: &str| page.lines().filter_map(row).collect::<Vec<_>>();
        let [first, second] = &rows(&after)[..] else {
            panic!("{after}");
        };
        assert_eq!(*first, rows(&before)[0]);
        assert_eq!(
            *second,
            (
                "long tests".to_owned(),
                line(&outcome("long tests", None), "bbb")
            )
        );
    }
}
