//! The committed list of mutants that survive, each with the reason why no test has to notice it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};

use super::list::Mutant;
use super::results::Results;
use super::trial::Outcome;
use crate::sh::root;

/// One line each: the mutant, a tab, the reason.
const LIST: &str = "xtask/mutants/survivors.tsv";

/// The reason of a survivor that nobody has looked at.
pub(super) const OPEN: &str = "open";

/// The list, by mutant.
pub(super) fn read() -> Result<BTreeMap<String, String>> {
    parse(&fs::read_to_string(root().join(LIST)).unwrap_or_default())
}

fn parse(text: &str) -> Result<BTreeMap<String, String>> {
    let mut list = BTreeMap::new();
    for line in text.lines() {
        let (key, reason) = line
            .split_once('\t')
            .with_context(|| format!("no reason: {line}"))?;
        ensure!(!reason.trim().is_empty(), "no reason: {key}");
        let before = list.insert(key.to_owned(), reason.to_owned());
        ensure!(before.is_none(), "listed twice: {key}");
    }
    Ok(list)
}

/// Adds the survivors that are not listed, as open, and deletes the entries that are wrong.
pub(super) fn correct(mutants: &[Mutant], results: &Results) -> Result<()> {
    let mut list = read()?;
    let known: BTreeSet<String> = mutants.iter().map(Mutant::key).collect();
    list.retain(|key, _| known.contains(key));
    for (key, finding) in &results.found {
        if survives(&finding.outcome) {
            list.entry(key.clone()).or_insert_with(|| OPEN.to_owned());
        } else {
            list.remove(key);
        }
    }
    let lines = list
        .iter()
        .map(|(key, reason)| format!("{key}\t{reason}\n"));
    Ok(fs::write(root().join(LIST), lines.collect::<String>())?)
}

/// Compares the list with the library and with what has been tried.
///
/// # Errors
/// If an entry is no mutant of the library, or is caught by a test now; or if a survivor is not listed.
pub(super) fn check(mutants: &[Mutant], results: &Results) -> Result<()> {
    let known: BTreeSet<String> = mutants.iter().map(Mutant::key).collect();
    let outcomes = results.found.iter();
    let outcomes = outcomes.map(|it| (it.0.as_str(), &it.1.outcome));
    let wrong = wrong(&read()?, &known, &outcomes.collect());
    ensure!(wrong.is_empty(), "{LIST}:\n{}", wrong.join("\n"));
    Ok(())
}

/// As [`check`], for the entries alone: whether each is a mutant of the library.
pub(super) fn check_names(mutants: &[Mutant]) -> Result<()> {
    let known: BTreeSet<String> = mutants.iter().map(Mutant::key).collect();
    let wrong = wrong(&read()?, &known, &BTreeMap::new());
    ensure!(wrong.is_empty(), "{LIST}:\n{}", wrong.join("\n"));
    Ok(())
}

pub(super) fn survives(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Survived | Outcome::Unreached)
}

fn wrong(
    list: &BTreeMap<String, String>,
    known: &BTreeSet<String>,
    outcomes: &BTreeMap<&str, &Outcome>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in list.keys() {
        if !known.contains(key) {
            wrong.push(format!("the library has no such mutant: {key}"));
        } else if outcomes.get(key.as_str()).is_some_and(|it| !survives(it)) {
            wrong.push(format!("a test catches it now, delete the line: {key}"));
        }
    }
    for (key, outcome) in outcomes {
        if survives(outcome) && !list.contains_key(*key) {
            wrong.push(format!("survives, and is not listed: {key}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_entry_without_a_mutant_and_a_survivor_without_an_entry_are_errors() {
        let list = parse("a: x\tequal\nb: y\topen\ngone: z\tequal\n").unwrap();
        let known = ["a: x", "b: y", "c: z"].map(str::to_owned).into();
        let caught = Outcome::Caught("test".to_owned());
        let outcomes = [
            ("a: x", &Outcome::Survived),
            ("b: y", &caught),
            ("c: z", &Outcome::Unreached),
        ];
        assert_eq!(
            wrong(&list, &known, &outcomes.into()),
            [
                "a test catches it now, delete the line: b: y",
                "the library has no such mutant: gone: z",
                "survives, and is not listed: c: z",
            ]
        );
    }

    #[test]
    fn each_entry_has_a_reason() {
        assert!(parse("a: x\n").is_err());
        assert!(parse("a: x\t \n").is_err());
    }
}
