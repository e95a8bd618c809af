//! `cargo xtask house`: how easily a stranger finds things in the library, counted from its source.

mod circles;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use self::circles::largest_circle;
use self::source::{Kind, SourceFile};
use crate::sh::root;

/// The words that a maintainer searches for.
const TERMS: [&str; 7] = [
    "jitter",
    "backoff",
    "multiplex",
    "heartbeat",
    "router",
    "connection pool",
    "fairness",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Counts this source folder instead of the library's, and writes nothing
    #[arg(long, value_name = "FOLDER")]
    src: Option<PathBuf>,
}

struct Row {
    measure: &'static str,
    /// As a reader counted it by hand on commit 6410b87.
    before: &'static str,
    now: String,
    goal: &'static str,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let library = root().join("crates/tidelock/src");
    let files = source::read(args.src.as_ref().unwrap_or(&library))?;
    let page = page(&rows(&files));
    print!("{page}");
    if args.src.is_none() {
        fs::write(root().join("docs/house.md"), page)?;
    }
    Ok(())
}

fn page(rows: &[Row]) -> String {
    let mut page = String::from(
        "# The house, counted\n\n\
         Written by `cargo xtask house`; do not edit. A reader counted the first numbers by other means on commit 6410b87,\n\
         before the library was restructured. `--src FOLDER` counts another source folder in the way of this page.\n\n\
         | measure | before | now | goal |\n| --- | --- | --- | --- |\n",
    );
    for row in rows {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            row.measure, row.before, row.now, row.goal
        );
    }
    page
}

fn rows(files: &[SourceFile]) -> Vec<Row> {
    let library: Vec<&SourceFile> = files.iter().filter(|file| !file.is_suite).collect();
    let redis: Vec<&SourceFile> = library
        .iter()
        .filter(|file| {
            ["store/redis/", "backend/redis/"]
                .iter()
                .any(|folder| file.name.starts_with(folder))
        })
        .copied()
        .collect();
    let code = files.iter().map(|file| file.count(Kind::Code)).sum();
    let row = |measure, before, now, goal| Row {
        measure,
        before,
        now,
        goal,
    };
    let (longest_function, longest_file) = (longest_function(files), longest_file(files));
    vec![
        row(
            "type names that stand for more than one thing",
            "60 names, 186 of 478 definitions",
            shared_names(&library),
            "none outside the shared floor plan of the stores",
        ),
        row(
            "hits of the field's terms",
            "0 each",
            terms(&library),
            "a search for the term finds the place",
        ),
        row(
            "largest import circle",
            "30 files, 7,094 lines",
            largest_circle(&library),
            "none",
        ),
        row(
            "largest import circle in Redis",
            "20 files, 4,851 lines",
            largest_circle(&redis),
            "none",
        ),
        row(
            "lines of URL parsers, doctors and error maps",
            "1,377 + 1,679 + 859",
            parsers(&library),
            "half",
        ),
        row(
            "`PoisonError::into_inner` by hand",
            "82",
            hits(&library, "PoisonError::into_inner").to_string(),
            "once",
        ),
        row(
            "code lines with the conformance suite, without tests and comments",
            "32,906",
            number(code),
            "29,000 at most",
        ),
        row(
            "hidden lines in doctests",
            "1,002",
            number(files.iter().map(|file| file.hidden).sum()),
            "300 at most",
        ),
        row(
            "comments among the lines inside functions",
            "1 %",
            share(&library),
            "3 % to 5 %",
        ),
        row("longest function", "", longest_function, "60 lines"),
        row(
            "longest file, without its docs",
            "",
            longest_file,
            "400 lines",
        ),
    ]
}

/// `12345` becomes `12,345`.
fn number(n: usize) -> String {
    if n < 1000 {
        n.to_string()
    } else {
        format!("{},{:03}", number(n / 1000), n % 1000)
    }
}

fn hits(files: &[&SourceFile], text: &str) -> usize {
    let lower = text.to_lowercase();
    let found = files.iter().map(|file| {
        let text = file.text.to_lowercase();
        text.matches(&lower).count()
    });
    found.sum()
}

fn terms(files: &[&SourceFile]) -> String {
    let counts = TERMS.map(|term| format!("{term} {}", hits(files, term)));
    counts.join(", ")
}

fn shared_names(files: &[&SourceFile]) -> String {
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    for name in files.iter().flat_map(|file| &file.types) {
        *homes.entry(name).or_default() += 1;
    }
    let all: usize = homes.values().sum();
    homes.retain(|_, count| *count > 1);
    let names: Vec<&str> = homes.keys().copied().collect();
    format!(
        "{} names, {} of {all} definitions: {}",
        names.len(),
        homes.values().sum::<usize>(),
        names.join(", ")
    )
}

/// The lines of the files in which each store has its address, its doctor and its errors, with what they share.
fn parsers(files: &[&SourceFile]) -> String {
    let lines = |words: &[&str]| -> usize {
        files
            .iter()
            .filter(|file| file.name.starts_with("store/") || file.name.starts_with("backend/"))
            .filter(|file| {
                let mut parts = file.name.trim_end_matches(".rs").split('/');
                parts.any(|part| words.contains(&part))
            })
            .map(|file| file.text.lines().count())
            .sum()
    };
    let (addresses, doctors, errors) = (
        lines(&["address", "url", "target", "place"]),
        lines(&["doctor", "survey", "rights", "examine"]),
        lines(&["errors", "error"]),
    );
    format!(
        "{} + {} + {}",
        number(addresses),
        number(doctors),
        number(errors)
    )
}

fn share(files: &[&SourceFile]) -> String {
    let comments: usize = files.iter().map(|file| file.comments_inside).sum();
    let lines: usize = files.iter().map(|file| file.lines_inside).sum();
    let tenths = comments * 1000 / lines.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn longest_function(files: &[SourceFile]) -> String {
    let all = files.iter().flat_map(|file| {
        let functions = file.functions.iter();
        functions.map(move |(name, lines)| (*lines, format!("`{name}` in {}", file.name)))
    });
    all.max()
        .map_or_else(String::new, |(lines, at)| format!("{lines} lines, {at}"))
}

fn longest_file(files: &[SourceFile]) -> String {
    let all = files.iter().map(|file| {
        let docs = file.count(Kind::Doc);
        (file.text.lines().count() - docs, &file.name)
    });
    all.max()
        .map_or_else(String::new, |(lines, at)| format!("{lines} lines, {at}"))
}
