//! `cargo xtask full`: what is too long for every change.

use std::fmt::Write;
use std::fs;

use anyhow::Result;

use crate::servers;
use crate::sh::{command, quiet, root};
use crate::test::{self, Outcome, PARTS, perform, tests_with, whole_family};

const FLAVOURS: [&str; 4] = ["redis62", "redis7", "redis8", "valkey9"];

pub(crate) fn run() -> Result<()> {
    let full = servers::Args { full: true };
    let mut outcomes = vec![perform("servers --full", |_| servers::run(full))];
    outcomes.extend(
        PARTS
            .iter()
            .filter(|part| part.name != "servers")
            .map(|part| perform(part.name, part.run)),
    );
    // The plain run above was on Redis 7.
    for flavour in FLAVOURS.iter().filter(|flavour| **flavour != "redis7") {
        let name = format!("proofs on {flavour}");
        outcomes.push(perform(&name, |tally| whole_family(tally, flavour)));
    }
    let long = ["-p", "proofs", "--tests", "--", "--ignored"];
    outcomes.push(perform("long proofs", |tally| {
        tests_with(tally, &long, None)
    }));
    fs::create_dir_all(root().join("docs"))?;
    fs::write(root().join("docs/full.md"), summary(&outcomes))?;
    test::finish(&outcomes)
}

fn summary(outcomes: &[Outcome]) -> String {
    let mut text = String::from("# The last full run\n\nWritten by `cargo xtask full`.\n\n");
    for (what, value) in machine() {
        let _ = writeln!(text, "- {what}: {value}");
    }
    text.push_str("\n| part | time | result | tests |\n| --- | ---: | --- | --- |\n");
    for Outcome {
        name,
        time,
        tally,
        error,
    } in outcomes
    {
        let verdict = if error.is_some() { "**failed**" } else { "ok" };
        let _ = writeln!(
            text,
            "| {name} | {:.1} s | {verdict} | {} |",
            time.as_secs_f64(),
            tally.or_nothing()
        );
    }
    text
}

fn machine() -> Vec<(&'static str, String)> {
    let said = |program: &str, args: &[&str]| {
        let output = quiet(command(program, args)).unwrap_or_else(|_| "unknown".to_owned());
        output.lines().next().unwrap_or_default().to_owned()
    };
    let server = |flavour: &str| {
        let path = root().join("target/servers").join(flavour).join("server");
        said(&path.to_string_lossy(), &["--version"])
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", said("git", &["rev-parse", "--short", "HEAD"])),
        (
            "machine",
            format!("{}, {cores} cores", said("uname", &["-srm"])),
        ),
        ("compiler", said("rustc", &["--version"])),
        ("Redis 7", said("redis-server", &["--version"])),
        ("Redis 6.2", server("redis62")),
        ("Redis 8", server("redis8")),
        ("Valkey 9", server("valkey9")),
    ]
}
