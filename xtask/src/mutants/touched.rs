//! The part for every change: the mutants in the lines that it touches.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::list::{self, Mutant};
use super::project::Project;
use super::trial::Outcome;
use super::{OWN, attempts, build, coverage, fixture, survivors};
use crate::sh::{command, quiet, root};

/// How many mutants are built in at most.
const MOST: usize = 60;

/// On how many tests each is tried. One that they do not notice is not reported: the rest of the tests might.
const MOST_TESTS: usize = 150;

/// After this time no mutant is begun.
const LONGEST: Duration = Duration::from_secs(180);

/// A file whose mutants are quick to try, for a clone without history.
const SAMPLE: &str = "engine/lease/table.rs";

/// Tries the tool itself, then some mutants in the lines that differ from the last tag, or from the branch that this one
/// has left. Compares the list of survivors with the library.
pub(crate) fn touched() -> Result<()> {
    let start = Instant::now();
    fixture::check()?;
    let project = Project::tidelock();
    let mutants = list::list(&project)?;
    survivors::check_names(&mutants)?;
    let (chosen, of) = choose(&project, &mutants);
    if chosen.is_empty() {
        println!("no mutant lies in the lines that this change touches");
        return Ok(());
    }
    if chosen.len() < of {
        println!(
            "{} of {of} mutants were chosen, the others are NOT tried",
            chosen.len()
        );
    }
    project.copy()?;
    let mut omitted = build::Omitted::new();
    build::sort_out(&project, OWN, &chosen, &mut omitted)?;
    let programs = build::programs(&project, OWN, &chosen, &omitted)?;
    let mut tests = Vec::new();
    for program in &programs {
        tests.extend(coverage::measure(&project, program)?);
    }
    let here: Vec<&Mutant> = chosen
        .into_iter()
        .filter(|it| !omitted.contains_key(&it.id))
        .collect();
    let known = survivors::read()?;
    let mut new = Vec::new();
    attempts(
        &here,
        &tests,
        (3, MOST_TESTS),
        Some(start + LONGEST),
        |mutant, outcome| {
            let survives = matches!(outcome, Outcome::Survived | Outcome::Unreached);
            if survives && !known.contains_key(&mutant.key()) {
                new.push(mutant.key());
            }
            Ok(())
        },
    )?;
    if !new.is_empty() {
        bail!(
            "these mutants survive the tests without servers. Write a test, or add them to the list with a reason:\n{}",
            new.join("\n")
        );
    }
    Ok(())
}

/// The mutants to try, and from how many they were chosen.
fn choose<'a>(project: &Project, mutants: &'a [Mutant]) -> (Vec<&'a Mutant>, usize) {
    let all: Vec<&Mutant> = if let Some(base) = base() {
        println!("the lines that differ from {base}");
        let lines = changed(&base, &project.sources);
        let touched = |it: &&Mutant| {
            let in_file = lines.get(&it.file);
            in_file.is_some_and(|lines| lines.contains(&it.start.0))
        };
        mutants.iter().filter(touched).collect()
    } else {
        println!("this clone has no history to compare with; a sample from {SAMPLE} instead");
        mutants.iter().filter(|it| it.file == SAMPLE).collect()
    };
    let of = all.len();
    // Evenly over all files.
    let step = of.div_ceil(MOST).max(1);
    (all.into_iter().step_by(step).collect(), of)
}

/// The commit with which this change is compared.
fn base() -> Option<String> {
    let git = |args: &[&str]| {
        let said = quiet(command("git", args)).ok()?;
        Some(said.trim().to_owned()).filter(|it| !it.is_empty())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let tag = git(&["describe", "--tags", "--abbrev=0"]);
    let branch = git(&["merge-base", "HEAD", "origin/HEAD"]);
    let before = git(&["rev-parse", "HEAD~1"]);
    tag.or(branch.filter(|it| *it != head)).or(before)
}

/// The lines of each source file that differ from that commit.
fn changed(base: &str, sources: &str) -> HashMap<String, BTreeSet<usize>> {
    let diff = [
        "diff",
        "--unified=0",
        "--no-color",
        "--no-ext-diff",
        base,
        "--",
        sources,
    ];
    let mut diff = command("git", &diff);
    diff.current_dir(root());
    parse(&quiet(diff).unwrap_or_default(), sources)
}

fn parse(diff: &str, sources: &str) -> HashMap<String, BTreeSet<usize>> {
    let mut files: HashMap<String, BTreeSet<usize>> = HashMap::new();
    let mut file = String::new();
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            path.strip_prefix(sources)
                .unwrap_or_default()
                .clone_into(&mut file);
        } else if let Some(hunk) = line.strip_prefix("@@ ") {
            let added = hunk.split(' ').find_map(|part| part.strip_prefix('+'));
            let (first, count) = added
                .and_then(|it| it.split_once(','))
                .unwrap_or((added.unwrap_or_default(), "1"));
            if let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>()) {
                files
                    .entry(file.clone())
                    .or_default()
                    .extend(first..first + count);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lines_of_a_diff_are_read() {
        let diff = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -3 +4 @@ fn x\n+y\n@@ -9,2 +11,3 @@\n+z\n@@ -20,2 +23,0 @@\n";
        let files = super::parse(diff, "src/");
        assert_eq!(
            files["a.rs"].iter().copied().collect::<Vec<_>>(),
            [4, 11, 12, 13]
        );
    }
}
