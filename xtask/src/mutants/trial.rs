//! Tries a mutant: runs the tests that reach it until one fails.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use super::coverage::Test;
use super::list::Mutant;
use super::process::{self, End};

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// By this test.
    Caught(String),
    /// The tests did not end.
    Hung,
    /// All tests that reach it pass.
    Survived,
    /// No test reaches it.
    Unreached,
}

/// How many tests of a program run at the same time.
const THREADS: usize = 8;

/// How many of the quick tests run first. Most mutants are caught by them.
const FIRST: usize = 12;

/// Tests that are quicker than this run before the others.
const QUICK: Duration = Duration::from_millis(700);

/// How often a test that failed among others runs once more by itself. One that fails because the machine is busy would
/// count as a mutant that is caught.
const CONFIRM: usize = 3;

/// Tries one mutant on the tests that reach it, but at most on so many. `None`: those pass, and there are more.
pub(super) fn attempt(mutant: &Mutant, tests: &[Test], most: usize) -> Result<Option<Outcome>> {
    let id = mutant.id;
    let mut reach: Vec<&Test> = tests.iter().filter(|it| it.reaches.contains(&id)).collect();
    if reach.is_empty() {
        return Ok(Some(Outcome::Unreached));
    }
    // A test that shares words with the place was most likely written for it, and so was one that reaches little.
    let key = mutant.key();
    let words: BTreeSet<&str> = words(&key).collect();
    reach.sort_by_key(|test| {
        let own: BTreeSet<&str> = self::words(&test.name).collect();
        let shared = own.intersection(&words).count() as u128;
        let cost = (20 + test.time.as_millis()) * (20 + test.reaches.len() as u128);
        cost >> (2 * shared.min(8))
    });
    let complete = reach.len() <= most;
    reach.truncate(most);
    let rest = reach.split_off(reach.len().min(FIRST));
    let (quick, slow): (Vec<&Test>, Vec<&Test>) = rest.into_iter().partition(|it| it.time < QUICK);
    for mut batch in [reach, quick, slow] {
        while let Some(test) = batch.first().copied() {
            let (same, others) = batch
                .into_iter()
                .partition(|it| it.program.name == test.program.name);
            if let Some(outcome) = of_one_program(id, same)? {
                return Ok(Some(outcome));
            }
            batch = others;
        }
    }
    Ok(complete.then_some(Outcome::Survived))
}

/// The words of a name. Short ones say nothing.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let words = name.split(|c: char| !c.is_ascii_lowercase());
    words.filter(|word| word.len() > 3)
}

/// Runs these tests of one program. `None` if all pass.
fn of_one_program(id: u32, mut tests: Vec<&Test>) -> Result<Option<Outcome>> {
    loop {
        let failed = match run(id, &tests)? {
            End::Passed => return Ok(None),
            End::Hung => return Ok(Some(Outcome::Hung)),
            End::Failed(None) => {
                let end = "the test program ended".to_owned();
                return Ok(Some(Outcome::Caught(end)));
            }
            End::Failed(Some(name)) => name,
        };
        let alone: Vec<&Test> = tests
            .iter()
            .copied()
            .filter(|it| it.name == failed)
            .collect();
        let enough = tests.len() == alone.len();
        for _ in 0..CONFIRM {
            match run(id, &alone)? {
                End::Passed => {}
                End::Hung => return Ok(Some(Outcome::Hung)),
                End::Failed(_) => return Ok(Some(Outcome::Caught(failed))),
            }
        }
        tests.retain(|it| it.name != failed);
        if enough || tests.is_empty() {
            return Ok(None);
        }
    }
}

fn run(id: u32, tests: &[&Test]) -> Result<End> {
    let Some(first) = tests.first() else {
        return Ok(End::Passed);
    };
    let sum: Duration = tests.iter().map(|it| it.time).sum();
    let longest = tests.iter().map(|it| it.time).max().unwrap_or_default();
    let expected = longest + sum / u32::try_from(THREADS)?;
    let names: Vec<&str> = tests.iter().map(|it| it.name.as_str()).collect();
    let id = id.to_string();
    // The machine may be busy with something else.
    let limit = Duration::from_secs(8) + 6 * expected;
    process::run(
        &first.program,
        &names,
        THREADS,
        ("TIDELOCK_MUTANT", &id),
        limit,
    )
}
