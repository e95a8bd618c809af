//! Which test reaches which mutant, and how long it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::process::{self, End};
use super::project::Project;
use crate::programs::Program;
use crate::sh::{command, quiet};

/// A test that takes longer is of no use here.
const LONGEST: Duration = Duration::from_secs(90);

/// How many tests run at the same time. Most of them wait for leases.
const AT_ONCE: usize = 6;

/// A test that passes without a mutant.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) program: Program,
    pub(super) name: String,
    pub(super) time: Duration,
    /// The mutants whose place it reaches.
    pub(super) reaches: BTreeSet<u32>,
}

/// Runs each test of the program by itself, without a mutant. Tests that fail so are left out, and named.
///
/// The result is kept beside the copy, for the same build of the program.
pub(super) fn measure(project: &Project, program: &Program) -> Result<Vec<Test>> {
    let kept = project.copy.join("coverage").join(&program.name);
    let build = format!("{:?}", fs::metadata(&program.path)?.modified()?);
    if let Some(tests) = read(&kept, &build, program) {
        return Ok(tests);
    }
    let list = command(
        &program.path.to_string_lossy(),
        &["--list", "--format", "terse"],
    );
    let list = quiet(list)?;
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    println!("{}: {} tests, one by one", program.name, names.len());
    let next = AtomicUsize::new(0);
    let tests = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let each = || -> Result<()> {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(test) = one(project, program, name)? {
                    let mut tests = tests.lock().unwrap_or_else(PoisonError::into_inner);
                    tests.push(test);
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(each)).collect();
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut tests = tests.into_inner().unwrap_or_else(PoisonError::into_inner);
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    keep(&kept, &build, &tests)?;
    Ok(tests)
}

fn one(project: &Project, program: &Program, name: &str) -> Result<Option<Test>> {
    let file = format!("{}-{}", program.name, name.replace("::", "-"));
    let seen = project.copy.join("seen").join(file);
    if let Some(folder) = seen.parent() {
        fs::create_dir_all(folder)?;
    }
    drop(fs::remove_file(&seen));
    let path = seen.to_string_lossy();
    let start = Instant::now();
    let notes = ("TIDELOCK_MUTANTS_SEEN", path.as_ref());
    let end = process::run(program, &[name], 2, notes, LONGEST)?;
    let time = start.elapsed();
    if end != End::Passed {
        println!("left out, it does not pass here without a mutant: {name}");
        return Ok(None);
    }
    let numbers = fs::read_to_string(&seen).unwrap_or_default();
    drop(fs::remove_file(&seen));
    Ok(Some(Test {
        program: program.clone(),
        name: name.to_owned(),
        time,
        reaches: numbers.lines().filter_map(|id| id.parse().ok()).collect(),
    }))
}

fn keep(path: &Path, build: &str, tests: &[Test]) -> Result<()> {
    let mut all = BTreeMap::new();
    for test in tests {
        let millis = u64::try_from(test.time.as_millis())?;
        all.insert(
            &test.name,
            json!({ "millis": millis, "reaches": test.reaches }),
        );
    }
    let folder = path.parent().context("no folder")?;
    fs::create_dir_all(folder)?;
    Ok(fs::write(
        path,
        json!({ "build": build, "tests": all }).to_string(),
    )?)
}

fn read(path: &Path, build: &str, program: &Program) -> Option<Vec<Test>> {
    let kept: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    if kept["build"] != build {
        return None;
    }
    let tests = kept["tests"].as_object()?;
    let tests = tests.iter().map(|(name, test)| {
        let reaches = test["reaches"].as_array()?.iter();
        Some(Test {
            program: program.clone(),
            name: name.clone(),
            time: Duration::from_millis(test["millis"].as_u64()?),
            reaches: reaches
                .filter_map(|id| u32::try_from(id.as_u64()?).ok())
                .collect(),
        })
    });
    tests.collect()
}
