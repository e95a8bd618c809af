//! Builds the copy with all mutants that compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::list::Mutant;
use super::project::{NO_SWITCH, Project};
use super::weave;
use crate::programs::{Program, messages};
use crate::sh::{cargo, show};

/// The tests of one `cargo test`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suite {
    /// The packages whose features count, as in `cargo xtask test`: so nothing is built twice.
    pub(super) packages: &'static [&'static str],
    /// Whether it has the unit tests.
    pub(super) lib: bool,
    /// The test binaries.
    pub(super) tests: &'static [&'static str],
}

/// Why a mutant is not in the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// It does not compile.
    Unviable,
    /// It would compile in a build of its own, but its place cannot read the switch: a constant, or an opaque return type.
    NoSwitch,
    /// Its place is not compiled on this system.
    NotHere,
}

impl LeftOut {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::Unviable, "unviable"),
        (Self::NoSwitch, "no-switch"),
        (Self::NotHere, "not-here"),
    ];
}

/// The mutants that are not in the build.
pub(super) type Omitted = BTreeMap<u32, LeftOut>;

/// Finds those of these mutants that do not compile, and adds them to `omitted`. Builds a rejected text several times, since
/// the compiler shows the errors of one stage at a time.
pub(super) fn sort_out(
    project: &Project,
    suite: Suite,
    mutants: &[&Mutant],
    omitted: &mut Omitted,
) -> Result<()> {
    let open: Vec<&Mutant> = among(mutants, omitted);
    if open.is_empty() {
        return Ok(());
    }
    place(project, suite, &open, omitted)?;
    for round in 1..40 {
        let here = among(mutants, omitted);
        project.weave(&here, "crate::mutant")?;
        let errors = build(project, suite)?.errors;
        if errors.is_empty() {
            return Ok(());
        }
        let before = omitted.len();
        for error in &errors {
            let class = if IN_CONSTANT.contains(&error.code.as_str()) {
                LeftOut::NoSwitch
            } else {
                LeftOut::Unviable
            };
            for id in error.culprits(project)? {
                omitted.entry(id).or_insert(class);
            }
        }
        let found = omitted.len() - before;
        println!(
            "round {round}: {} errors, {found} mutants do not compile",
            errors.len()
        );
        ensure!(
            found > 0,
            "errors that belong to no mutant:\n{}",
            errors.iter().map(|it| it.text.as_str()).collect::<String>()
        );
    }
    bail!("the compiler rejects the text after 40 rounds")
}

fn among<'a>(mutants: &[&'a Mutant], omitted: &Omitted) -> Vec<&'a Mutant> {
    let here = mutants.iter().filter(|it| !omitted.contains_key(&it.id));
    here.copied().collect()
}

/// Leaves out the mutants whose place has no switch, or is not compiled here. A build with a switch that does not exist
/// shows them: the compiler complains about each place that it reads.
fn place(project: &Project, suite: Suite, open: &[&Mutant], omitted: &mut Omitted) -> Result<()> {
    project.weave(open, NO_SWITCH)?;
    let mut woven = BTreeSet::new();
    let files: BTreeSet<&str> = open.iter().map(|it| it.file.as_str()).collect();
    for file in files {
        let text = fs::read_to_string(project.woven().join(file))?;
        let marks = text.split("/*#").skip(1);
        let ids = marks
            .filter_map(|mark| mark.split_once("*/"))
            .map(|it| it.0);
        woven.extend(
            ids.flat_map(|ids| ids.split(','))
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    let mut read = BTreeSet::new();
    for error in build(project, suite)?.errors {
        if error.code == PRIVATE {
            read.extend(error.culprits(project)?);
        }
    }
    for mutant in open {
        if !woven.contains(&mutant.id) {
            omitted.insert(mutant.id, LeftOut::NoSwitch);
        } else if !read.contains(&mutant.id) {
            omitted.insert(mutant.id, LeftOut::NotHere);
        }
    }
    ensure!(
        !read.is_empty(),
        "the build without a switch has shown no place"
    );
    Ok(())
}

/// Weaves all mutants that are not left out, and builds the programs of the suite.
pub(super) fn programs(
    project: &Project,
    suite: Suite,
    mutants: &[&Mutant],
    omitted: &Omitted,
) -> Result<Vec<Program>> {
    project.weave(&among(mutants, omitted), "crate::mutant")?;
    let built = build(project, suite)?;
    ensure!(
        built.errors.is_empty(),
        "{}",
        built
            .errors
            .iter()
            .map(|it| it.text.as_str())
            .collect::<String>()
    );
    Ok(built.programs)
}

/// A private function is called.
const PRIVATE: &str = "E0603";

/// A function that is no constant one is called in a constant, or a constant needs a feature of the nightly compiler.
const IN_CONSTANT: [&str; 2] = ["E0015", "E0658"];

#[derive(Default)]
struct Built {
    programs: Vec<Program>,
    errors: Vec<CompileError>,
}

struct CompileError {
    code: String,
    text: String,
    /// Files and bytes, the most important first.
    places: Vec<(String, Range<usize>)>,
}

impl CompileError {
    fn culprits(&self, project: &Project) -> Result<Vec<u32>> {
        for (file, place) in &self.places {
            let path = project.copy.join(file);
            if path.starts_with(project.woven()) {
                let found = weave::culprits(&fs::read_to_string(path)?, place.clone());
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    }
}

fn build(project: &Project, suite: Suite) -> Result<Built> {
    let mut test = cargo(&["test", "--no-run", "--quiet", "--message-format=json"]);
    for package in suite.packages {
        test.args(["-p", package]);
    }
    test.args(suite.lib.then_some("--lib"))
        .args(suite.tests.iter().flat_map(|name| ["--test", name]))
        .current_dir(&project.copy)
        .env("CARGO_TARGET_DIR", &project.target);
    let shown = show(&test);
    let mut built = Built::default();
    let success = messages(test, |message| built.read(message))?;
    ensure!(
        success || !built.errors.is_empty(),
        "{shown} failed without an error of the compiler"
    );
    Ok(built)
}

impl Built {
    fn read(&mut self, message: &Value) {
        self.programs.extend(Program::read(message));
        let error = &message["message"];
        if error["level"] == "error" && error["spans"].as_array().is_some() {
            let mut places = Vec::new();
            collect(error, &mut places);
            // "Aborting due to …" has no place.
            if !places.is_empty() {
                self.errors.push(CompileError {
                    code: error["code"]["code"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                    text: error["rendered"].as_str().unwrap_or_default().to_owned(),
                    places,
                });
            }
        }
    }
}

/// Collects the places of a message: the primary ones, the others, and those of its notes.
fn collect(message: &Value, places: &mut Vec<(String, Range<usize>)>) {
    let empty = Vec::new();
    let spans = message["spans"].as_array().unwrap_or(&empty);
    for primary in [true, false] {
        let these = spans.iter().filter(|span| span["is_primary"] == primary);
        places.extend(these.filter_map(place_of));
    }
    for child in message["children"].as_array().unwrap_or(&empty) {
        collect(child, places);
    }
}

fn place_of(span: &Value) -> Option<(String, Range<usize>)> {
    let byte = |key: &str| usize::try_from(span[key].as_u64()?).ok();
    let file = span["file_name"].as_str()?.to_owned();
    Some((file, byte("byte_start")?..byte("byte_end")?))
}
