//! Tries the tool itself: a small package, with mutants of which the outcome is known.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::build::{self, LeftOut, Omitted, Suite};
use super::list::{self, Mutant};
use super::project::{self, Project};
use super::trial::Outcome;
use super::{attempts, coverage};
use crate::sh::root;

const SUITE: Suite = Suite {
    packages: &["checked"],
    lib: true,
    tests: &[],
};

const ROOT: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/checked\"]\n";

const MANIFEST: &str = "[package]\nname = \"checked\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";

const CODE: &str = "
pub struct Plain;

pub const TWO: u8 = 1 + 1;

pub fn sum(a: u8, b: u8) -> u8 {
    a + b
}

pub fn is_less(a: u8, b: u8) -> bool {
    a < b
}

pub fn is_never_called() -> bool {
    TWO == 3
}

pub fn count(to: u8) -> u8 {
    let mut n = 0;
    while n < to {
        n += 1;
    }
    n
}

pub fn plain() -> Plain {
    Plain
}

#[cfg(windows)]
pub fn elsewhere() -> bool {
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_added() {
        assert_eq!(super::sum(3, 2), 5);
    }

    #[test]
    fn one_is_less_than_two() {
        assert!(super::is_less(1, 2));
        let _ = super::plain();
    }

    #[test]
    fn it_counts_to_three() {
        assert_eq!(super::count(3), 3);
    }

    #[test]
    fn a_test_that_fails_without_a_mutant_is_left_out() {
        assert!(super::is_never_called());
    }
}
";

/// What must become of each mutant of [`CODE`].
const EXPECTED: [(&str, &str); 17] = [
    ("replace + with -", "no-switch"),
    ("replace sum -> u8 with 0", "caught"),
    ("replace sum -> u8 with 1", "caught"),
    ("replace + with - in sum", "caught"),
    ("replace + with * in sum", "caught"),
    ("replace is_less -> bool with true", "survived"),
    ("replace is_less -> bool with false", "caught"),
    ("replace < with == in is_less", "caught"),
    ("replace < with > in is_less", "caught"),
    ("replace < with <= in is_less", "survived"),
    ("replace is_never_called -> bool with true", "unreached"),
    ("replace is_never_called -> bool with false", "unreached"),
    ("replace count -> u8 with 0", "caught"),
    ("replace += with -= in count", "caught"),
    ("replace += with *= in count", "hung"),
    ("replace plain -> Plain with Default::default()", "unviable"),
    ("replace elsewhere -> bool with false", "not-here"),
];

/// Weaves, builds and tries the mutants of the small package.
///
/// # Errors
/// If one of them has another outcome than is known.
pub(super) fn check() -> Result<()> {
    let home = root().join("target/mutants/fixture");
    project::write(&home.join("Cargo.toml"), ROOT.as_bytes())?;
    let package = home.join("crates/checked");
    project::write(&package.join("Cargo.toml"), MANIFEST.as_bytes())?;
    project::write(&package.join("src/lib.rs"), CODE.as_bytes())?;
    let project = Project {
        copy: home.join("target/copy/workspace"),
        target: home.join("target"),
        home,
        package: "checked".to_owned(),
        sources: "crates/checked/src/".to_owned(),
    };
    let mutants = list::list(&project)?;
    let outcomes = outcomes(&project, &mutants)?;
    for (change, expected) in EXPECTED {
        let outcome = outcomes
            .get(change)
            .with_context(|| format!("the tool does not know: {change}"))?;
        ensure!(
            outcome == expected,
            "{change}: {outcome}, and not {expected}"
        );
    }
    println!(
        "the tool finds the outcome of {} known mutants",
        EXPECTED.len()
    );
    Ok(())
}

fn outcomes(project: &Project, mutants: &[Mutant]) -> Result<BTreeMap<String, String>> {
    project.copy()?;
    let all: Vec<&Mutant> = mutants.iter().collect();
    let mut omitted = Omitted::new();
    build::sort_out(project, SUITE, &all, &mut omitted)?;
    let programs = build::programs(project, SUITE, &all, &omitted)?;
    let mut tests = Vec::new();
    for program in &programs {
        tests.extend(coverage::measure(project, program)?);
    }
    let mut outcomes = BTreeMap::new();
    for mutant in mutants {
        let class = omitted.get(&mutant.id);
        let name = class.and_then(|class| LeftOut::ALL.iter().find(|it| it.0 == *class));
        if let Some((_, name)) = name {
            outcomes.insert(mutant.change.clone(), (*name).to_owned());
        }
    }
    let here: Vec<&Mutant> = all
        .into_iter()
        .filter(|it| !omitted.contains_key(&it.id))
        .collect();
    attempts(&here, &tests, (4, usize::MAX), None, |mutant, outcome| {
        let name = match outcome {
            Outcome::Caught(_) => "caught",
            Outcome::Hung => "hung",
            Outcome::Survived => "survived",
            Outcome::Unreached => "unreached",
        };
        outcomes.insert(mutant.change.clone(), name.to_owned());
        Ok(())
    })?;
    Ok(outcomes)
}
