//! The reference pages of the command have what the program has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::bench::Bench;

const COMMAND: &str = include_str!("../../../../docs/command.md");
const ENVIRONMENT: &str = include_str!("../../../../docs/environment.md");

/// The options of a man page, without their dashes.
fn options(man_page: &str) -> BTreeSet<String> {
    let text = man_page.replace(r"\-", "-");
    text.split(r"\fB--")
        .skip(1)
        .map(|option| option.split(r"\fR").next().unwrap().to_owned())
        .collect()
}

/// Whether a text names the option in backticks, alone or with a value.
fn has(text: &str, option: &str) -> bool {
    text.contains(&format!("`--{option}`")) || text.contains(&format!("`--{option} "))
}

/// Each option of each command stands in the section of its command, or in that of all commands. The man pages are made from
/// the arguments, and have a test of their own.
#[test]
fn every_command_and_option_is_on_the_page() {
    let sections: Vec<&str> = COMMAND.split("\n## ").collect();
    let of_all = sections
        .iter()
        .find(|section| section.starts_with("Options of every command\n"))
        .unwrap();
    let mut known = BTreeSet::new();
    let mut commands = 0;
    let share = Path::new(env!("CARGO_MANIFEST_DIR")).join("share");
    for entry in fs::read_dir(share).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = file.strip_prefix("tidelock-");
        let Some(name) = name.and_then(|rest| rest.strip_suffix(".1")) else {
            continue;
        };
        commands += 1;
        let heading = format!("`{name}`");
        let own = sections
            .iter()
            .find(|section| section.lines().next().unwrap().contains(&heading))
            .unwrap_or_else(|| panic!("docs/command.md has no section for {name}"));
        for option in options(&fs::read_to_string(&path).unwrap()) {
            assert!(
                has(own, &option) || has(of_all, &option),
                "docs/command.md: the section for {name} lacks --{option}"
            );
            known.insert(option);
        }
    }
    assert!(commands > 15, "only {commands} man pages");
    // And the other way round: no row is about an option that is gone.
    for row in COMMAND.lines().filter(|line| line.starts_with("| `-")) {
        let first = row.split('|').nth(1).unwrap();
        for word in first.split('`').filter_map(|it| it.strip_prefix("--")) {
            let option = word.split(' ').next().unwrap();
            assert!(known.contains(option), "there is no --{option}: {row}");
        }
    }
}

/// The second table of the page says which variables a program finds, and it finds no others.
#[test]
fn a_program_finds_the_variables_of_the_page() {
    let (_, section) = ENVIRONMENT
        .split_once("\n## What a program finds\n")
        .unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `TIDELOCK_"))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 6, "{rows:?}");
    let bench = Bench::new();
    let always = &["yes"][..];
    let fenced = &["yes", "with `--fenced`"][..];
    for (args, column, words) in [
        (&["run", "job", "--", "env"][..], 2, always),
        (&["run", "--fenced", "job", "--", "env"][..], 2, fenced),
        (&["try", "--fenced", "job", "--", "env"][..], 2, fenced),
        (
            &["once", "--slot", "a", "report", "--", "env"][..],
            3,
            always,
        ),
        (&["lead", "billing", "--", "env"][..], 4, always),
    ] {
        let expected: BTreeSet<&str> = rows
            .iter()
            .filter(|cells| words.contains(&cells[column]))
            .map(|cells| cells[1].trim_matches('`'))
            .collect();
        let output = bench.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let found: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split('=').next())
            // The store stays as it is.
            .filter(|name| name.starts_with("TIDELOCK_") && *name != "TIDELOCK_STORE")
            .collect();
        assert_eq!(found, expected, "{args:?}");
    }
}
