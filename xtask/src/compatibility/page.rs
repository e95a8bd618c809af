//! The page: what it said before, and what the tests have said now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::cells::{Cell, KINDS, Kind, TOPOLOGIES, VERSIONS};
use crate::sh::first_line;

/// What a test said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) passed: bool,
    /// How often a lock was acquired under load, as the test counted. `0`: it counts none.
    pub(super) acquisitions: u64,
}

/// By the name of the test. `None`: it was to run, and said nothing.
pub(super) type Answers = BTreeMap<String, Option<Verdict>>;

/// One run of the command, for the list on the page.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) what: String,
    pub(super) tests: usize,
    /// It ran every test, so that nothing on the page is of an earlier run.
    pub(super) is_whole: bool,
    /// What tests have measured.
    pub(super) figures: &'a [(String, String)],
}

/// Reads what the test binary prints with `--show-output`.
#[derive(Debug, Default)]
pub(super) struct Heard {
    answers: BTreeMap<String, Verdict>,
    /// Tests that are seen to have begun, before they said anything.
    begun: BTreeSet<String>,
    /// The test whose output follows.
    of: Option<String>,
}

impl Heard {
    pub(super) fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, verdict)) = rest.rsplit_once(" ... ")
            && matches!(verdict, "ok" | "FAILED")
        {
            let answer = self.answers.entry(name.to_owned()).or_default();
            answer.passed = verdict == "ok";
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, _)) = rest
                .split_once(" has been running for over ")
                // Tests that run one at a time tell their name first. The rest of the line is missing if the process ends.
                .or_else(|| Some((rest.strip_suffix(" ...")?, "")))
        {
            self.begun.insert(name.to_owned());
        } else if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.of = Some(name.to_owned());
        } else if let Some(count) = line.strip_prefix("acquisitions: ")
            && let (Some(of), Ok(count)) = (&self.of, count.parse::<u64>())
            && let Some(answer) = self.answers.get_mut(of)
        {
            answer.acquisitions += count;
        }
    }

    /// The answers of these tests. A test that began and never answered has failed: it hung, or ended the process. `all_run`: one
    /// that said nothing is not one that was left out.
    pub(super) fn answers<'a>(
        mut self,
        tests: impl Iterator<Item = &'a str>,
        all_run: bool,
    ) -> Answers {
        let mut answers = Answers::new();
        for test in tests {
            let begun = self.begun.contains(test).then(Verdict::default);
            let answer = self.answers.remove(test).or(begun);
            if answer.is_some() || all_run {
                answers.insert(test.to_owned(), answer);
            }
        }
        answers
    }
}

/// The text in a cell of a test.
fn text(verdict: Verdict) -> String {
    match (verdict.passed, verdict.acquisitions) {
        (false, _) => "**failed**".to_owned(),
        (true, 0) => "+".to_owned(),
        (true, count) => format!("+ {}", thousands(count)),
    }
}

/// Reads the text in a cell of a test. `None`: it was never run, or there is no such test.
fn verdict(text: &str) -> Option<Verdict> {
    match text.split_once(' ').unwrap_or((text, "0")) {
        ("**failed**", _) => Some(Verdict::default()),
        ("+", count) => Some(Verdict {
            passed: true,
            acquisitions: count.replace(',', "").parse().ok()?,
        }),
        _ => None,
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the page says of each test: by its row and its version.
fn earlier(page: &str) -> BTreeMap<(String, usize), Verdict> {
    let mut all = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let mut columns = line.trim_matches('|').split('|').map(str::trim);
        let row = columns.next().unwrap_or_default().trim_matches('`');
        for (version, cell) in columns.enumerate() {
            if let Some(known) = verdict(cell) {
                all.insert((row.to_owned(), version), known);
            }
        }
    }
    all
}

/// Renders the page. Tests that were not run keep what the page said before. One that was to run and said nothing does not: the
/// page would show a success for a test that hung.
pub(super) fn render(cells: &[Cell], answers: &Answers, before: &str, run: &Run<'_>) -> String {
    let known = earlier(before);
    let answer = |cell: &Cell| {
        let old = known.get(&(cell.row.clone(), cell.version));
        match answers.get(&cell.test) {
            Some(answer) => *answer,
            None => old.copied(),
        }
    };
    let mut page = INTRODUCTION.to_owned();
    page += &runs(before, run);
    for (topology, name) in TOPOLOGIES.iter().enumerate() {
        let _ = write!(page, "\n## {}\n\n", title(name));
        head(&mut page, "kind of lock");
        for kind in KINDS {
            let own = of(cells, kind, topology);
            let mut row = format!("| {} |", link(kind, name, own.is_empty()));
            for version in 0..VERSIONS.len() {
                let _ = write!(row, " {} |", summary(kind, version, &own, &answer));
            }
            let _ = writeln!(page, "{row}");
        }
    }
    page += &figures(before, run);
    page += "\n## The tests\n";
    for (topology, name) in TOPOLOGIES.iter().enumerate() {
        for kind in KINDS {
            let own = of(cells, kind, topology);
            if !own.is_empty() {
                detail(&mut page, kind, name, &own, &answer);
            }
        }
    }
    page
}

const INTRODUCTION: &str = "# Beside Redisson

Written by `cargo xtask compatibility`. Each test runs a JVM with the real Redisson of one version beside tidelock, on \
servers of its own.

A cell has the number of tests that passed, and how often the lock was acquired in them under load, by threads of Java and \
tasks of Rust together, while nobody was inside who must not be there (for a latch: how often it was counted down). `·`: this \
version of Redisson has no such lock. `no test`: nothing shows that it works or fails. `n of m`: the others were not run.

In a cluster, 3.29.0 takes the place of 3.27.2. Before 3.29, each JVM finds out by itself, and not reliably, whether the cluster has \
sharded messages. Two JVMs of 3.27.2 were seen to disagree: each sent a form that the other did not hear. A waiter of a fair \
lock in Java then slept for five minutes, and no process in Rust was left that could have woken it.

";

fn title(name: &str) -> String {
    match name {
        "one server" => "One server".to_owned(),
        "Cluster" => {
            "Cluster: Redisson from 3.22 on sends sharded messages, before it plain ones".to_owned()
        }
        other => other.to_owned(),
    }
}

fn link(kind: Kind, topology: &str, is_empty: bool) -> String {
    if is_empty {
        return kind.name.to_owned();
    }
    let heading = heading(kind, topology).to_lowercase();
    let heading = heading.replace(',', "").replace(' ', "-");
    format!("[{}](#{heading})", kind.name)
}

fn heading(kind: Kind, topology: &str) -> String {
    format!("{}, {topology}", kind.name)
}

/// The line of the run, after those of earlier runs whose results are still on the page.
fn runs(before: &str, run: &Run<'_>) -> String {
    let mut text = String::from("Runs:\n\n");
    for line in before
        .lines()
        .filter(|line| line.starts_with("- `cargo xtask compat"))
    {
        if !run.is_whole {
            let _ = writeln!(text, "{line}");
        }
    }
    let _ = writeln!(
        text,
        "- `{}`: {} tests, {}, {}",
        run.what,
        run.tests,
        first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        first_line("redis-server", &["--version"])
            .split(" sha")
            .next()
            .unwrap_or_default(),
    );
    text
}

const FIGURES: &str = "\n## Fair queues of both, with processes that are killed and frozen\n\n";

/// What tests have measured, now or before.
fn figures(before: &str, run: &Run<'_>) -> String {
    let old = before.split_once(FIGURES).map_or("", |(_, rest)| rest);
    let old = old.split("\n\n").next().unwrap_or_default();
    let old = old.lines().filter(|_| !run.is_whole);
    let old = old.filter_map(|line| line.strip_prefix("- ")?.split_once(": "));
    let new = run.figures.iter();
    let new = new.map(|(name, text)| (name.as_str(), text.as_str()));
    let all: BTreeMap<&str, &str> = old.chain(new).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = FIGURES.to_owned();
    for (name, figure) in all {
        let _ = writeln!(text, "- {name}: {figure}");
    }
    text
}

fn head(page: &mut String, first: &str) {
    let _ = write!(page, "| {first} |");
    for (number, _) in VERSIONS {
        let _ = write!(page, " {number} |");
    }
    *page += "\n| --- |";
    *page += &" --- |".repeat(VERSIONS.len());
    *page += "\n";
}

fn of(cells: &[Cell], kind: Kind, topology: usize) -> Vec<&Cell> {
    let own = |cell: &&Cell| cell.kind == kind && cell.topology == topology;
    cells.iter().filter(own).collect()
}

type Known<'a> = &'a dyn Fn(&Cell) -> Option<Verdict>;

fn summary(kind: Kind, version: usize, own: &[&Cell], answer: Known<'_>) -> String {
    if version >= kind.versions {
        return "·".to_owned();
    }
    let own: Vec<_> = own.iter().filter(|cell| cell.version == version).collect();
    let seen: Vec<Verdict> = own.iter().filter_map(|cell| answer(cell)).collect();
    let failed = seen.iter().filter(|seen| !seen.passed).count();
    let all = if seen.len() == own.len() {
        own.len().to_string()
    } else {
        format!("{} of {}", seen.len(), own.len())
    };
    let count: u64 = seen.iter().map(|seen| seen.acquisitions).sum();
    match (own.len(), failed, count) {
        (0, ..) => "no test".to_owned(),
        (_, 0, 0) => all,
        (_, 0, count) => format!("{all}; {}", thousands(count)),
        (_, failed, _) => format!("**{failed} failed** of {}", own.len()),
    }
}

/// The tests of one kind on one topology: a row for each.
fn detail(page: &mut String, kind: Kind, topology: &str, own: &[&Cell], answer: Known<'_>) {
    let _ = write!(
        page,
        "\n### {}\n\nRedisson: {}. `?`: not run yet, or without an answer.\n\n",
        heading(kind, topology),
        kind.redisson
    );
    head(page, "test");
    let mut rows: Vec<&str> = own.iter().map(|cell| &*cell.row).collect();
    rows.sort_unstable();
    rows.dedup();
    for row in rows {
        let _ = write!(page, "| `{row}` |");
        for version in 0..VERSIONS.len() {
            // A test of several kinds returns at once with a version that lacks this kind.
            let has_it = version < kind.versions;
            let here = |cell: &&&Cell| has_it && cell.row == row && cell.version == version;
            let text = own.iter().find(here).map_or_else(
                || "·".to_owned(),
                |cell| answer(cell).map_or_else(|| "?".to_owned(), text),
            );
            let _ = write!(page, " {text} |");
        }
        *page += "\n";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: [&str; 3] = [
        "load::newest::two_java_and_two_rust_processes_never_overlap",
        "load::redisson_3_15_6::two_java_and_two_rust_processes_never_overlap",
        "wakes::newest::a_java_unlock_wakes_a_rust_waiter",
    ];

    fn cells() -> Vec<Cell> {
        TESTS.map(|test| Cell::of(test).unwrap()).into()
    }

    fn run(is_whole: bool) -> Run<'static> {
        Run {
            what: "cargo xtask compatibility".to_owned(),
            tests: 1,
            is_whole,
            figures: &[],
        }
    }

    #[test]
    fn counts_belong_to_the_test_that_printed_them() {
        let mut heard = Heard::default();
        for line in [
            "test a::one ... ok",
            "test b::two ... FAILED",
            "test c::three ... ignored, cargo xtask full",
            "acquisitions: 7",
            "---- a::one stdout ----",
            "    acquisitions: 1300,",
            "acquisitions: 5200",
            "---- b::two stdout ----",
            "acquisitions: 3",
        ] {
            heard.read(line);
        }
        let seen = |passed, acquisitions| {
            Some(Verdict {
                passed,
                acquisitions,
            })
        };
        let expected = [("a::one", seen(true, 5200)), ("b::two", seen(false, 3))];
        let tests = ["a::one", "b::two", "c::three"].into_iter();
        assert_eq!(
            heard.answers(tests, false),
            expected.map(|(name, it)| (name.to_owned(), it)).into()
        );
    }

    #[test]
    fn a_test_that_began_and_never_answered_has_failed() {
        let mut heard = Heard::default();
        for line in [
            "test a::one has been running for over 60 seconds",
            "test b::two has been running for over 60 seconds",
            "test b::two ... ok",
            "test c::three ...",
        ] {
            heard.read(line);
        }
        let tests = ["a::one", "b::two", "c::three", "d::four"].into_iter();
        let answers = heard.answers(tests, true);
        let passed = answers.values().map(|it| it.map(|it| it.passed));
        let passed: Vec<_> = passed.collect();
        assert_eq!(passed, [Some(false), Some(true), Some(false), None]);
    }

    /// Otherwise the page would show the success of an earlier run for a test that hung.
    #[test]
    fn a_test_that_said_nothing_loses_its_cell() {
        let passed = Some(Verdict {
            passed: true,
            acquisitions: 5200,
        });
        let first = [(TESTS[0].to_owned(), passed)].into();
        let before = render(&cells(), &first, "", &run(true));
        assert!(before.contains("+ 5,200"), "{before}");
        let silent = [(TESTS[0].to_owned(), None)].into();
        let after = render(&cells(), &silent, &before, &run(true));
        assert!(!after.contains("5,200"), "{after}");
        assert!(after.contains("| 0 of 2 |"), "{after}");
    }

    /// A part that is run alone keeps what the page said of the rest, and a red test is never summed up as green.
    #[test]
    fn a_test_that_is_not_run_keeps_its_cell() {
        let passed = |acquisitions| {
            Some(Verdict {
                passed: true,
                acquisitions,
            })
        };
        let first = [(TESTS[0].to_owned(), passed(5200))].into();
        let before = render(&cells(), &first, "", &run(true));
        assert!(before.contains("| 1 of 2; 5,200 | no test |"), "{before}");
        assert!(before.contains("| `load::two_java_and_two_rust_processes_never_overlap` | + 5,200 | · | · | · | · | ? | · |"), "{before}");
        let second = [(TESTS[1].to_owned(), Some(Verdict::default()))].into();
        let after = render(&cells(), &second, &before, &run(false));
        assert!(
            after.contains("| + 5,200 | · | · | · | · | **failed** | · |"),
            "{after}"
        );
        assert!(after.contains("**1 failed** of 1"), "{after}");
        assert_eq!(after.matches("- `cargo xtask").count(), 2);
        let whole = render(&cells(), &second, &after, &run(true));
        assert_eq!(whole.matches("- `cargo xtask").count(), 1);
    }
}
