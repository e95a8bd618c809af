//! The mutants of the library, as cargo-mutants lists them.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::project::Project;
use crate::{rooms, sh, tools};

/// A position in a file: line and column in characters, both from 1.
pub(super) type Position = (usize, usize);

/// One change of one expression.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    /// Its number in the woven build, from 1.
    pub(super) id: u32,
    /// Relative to the sources of the package, such as `engine/lease/table.rs`.
    pub(super) file: String,
    /// What changes, without a line number: `replace == with != in decide`. The second of the same text in a file ends
    /// with ` (2)`, so that the name does not move with the lines above it.
    pub(super) change: String,
    pub(super) start: Position,
    pub(super) replacement: String,
    pub(super) genre: Genre,
}

/// The kinds of cargo-mutants that can be switched at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Genre {
    /// The whole body of a function becomes a value.
    Body,
    Binary,
    Unary,
    /// An arm of a `match` is deleted.
    Arm,
    /// The guard of an arm becomes `true` or `false`.
    Guard,
    /// A kind that the weaver does not know.
    Other,
}

impl Mutant {
    /// Names the mutant in files.
    pub(super) fn key(&self) -> String {
        format!("{}: {}", self.file, self.change)
    }

    pub(super) fn room(&self) -> &'static str {
        rooms::room(&self.file)
    }
}

/// All mutants of the package. cargo-mutants decides what a mutant is; it only reads the sources, and builds nothing.
pub(super) fn list(project: &Project) -> Result<Vec<Mutant>> {
    let program = tools::cargo_mutants()?;
    let mut list = sh::command(
        &program.to_string_lossy(),
        &["mutants", "--list", "--json", "--package", &project.package],
    );
    list.current_dir(&project.home);
    let json: Value = serde_json::from_str(&sh::quiet(list)?)?;
    let all = json.as_array().context("cargo-mutants lists no array")?;
    let mut seen = HashMap::new();
    let mut names = HashSet::new();
    let mut mutants = Vec::with_capacity(all.len());
    for one in all {
        // A module that is declared twice, for two features, is listed twice.
        if !names.insert(one["name"].as_str()) {
            continue;
        }
        mutants.extend(read(one, project, &mut seen).with_context(|| one.to_string())?);
    }
    for (mutant, id) in mutants.iter_mut().zip(1..) {
        mutant.id = id;
    }
    Ok(mutants)
}

/// Reads one entry. `None`: the file does not belong to the sources of the package.
fn read(
    one: &Value,
    project: &Project,
    seen: &mut HashMap<String, usize>,
) -> Result<Option<Mutant>> {
    let text = |key: &str| one[key].as_str().context("a text is missing");
    let Some(file) = text("file")?.strip_prefix(&project.sources) else {
        return Ok(None);
    };
    let number = |end: &str, axis: &str| {
        let number = one["span"][end][axis].as_u64().context("no position")?;
        anyhow::Ok(usize::try_from(number)?)
    };
    let start = (number("start", "line")?, number("start", "column")?);
    // The name begins with `FILE:LINE:COLUMN: `.
    let change = text("name")?.splitn(4, ':').nth(3).context("no name")?;
    let change = change.split_whitespace().collect::<Vec<_>>().join(" ");
    let times = seen.entry(format!("{file}: {change}")).or_default();
    *times += 1;
    let change = match *times {
        1 => change,
        times => format!("{change} ({times})"),
    };
    let genre = match text("genre")? {
        "FnValue" => Genre::Body,
        "BinaryOperator" => Genre::Binary,
        "UnaryOperator" => Genre::Unary,
        "MatchArm" => Genre::Arm,
        "MatchArmGuard" => Genre::Guard,
        _ => Genre::Other,
    };
    Ok(Some(Mutant {
        id: 0,
        file: file.to_owned(),
        change,
        start,
        replacement: text("replacement")?.to_owned(),
        genre,
    }))
}
