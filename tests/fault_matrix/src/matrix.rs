//! Runs the chosen part of the matrix, several stores in parallel.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::Args;
use crate::catalogue::{Answer, Row, rows};
use crate::named::{Index, Test};
use crate::report;
use crate::shared::lock;
use crate::stage::{self, Outcome, Story};
use crate::store::Store;
use crate::world::{self, On, World};

/// The lease of all runs. It is several times the longest stall of a busy machine; otherwise a stall would look like a
/// lost lock.
const LEASE: Duration = Duration::from_secs(2);

/// The results of all runs and tests.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) seeds: Vec<u64>,
    pub(crate) versions: BTreeMap<Store, String>,
    pub(crate) played: BTreeMap<(Store, &'static str), Vec<(u64, Outcome)>>,
    pub(crate) tests: HashMap<Test, bool>,
    pub(crate) took: Duration,
}

/// A cell of the matrix: one row for one store.
pub(crate) struct Cell {
    pub(crate) row: &'static Row,
    pub(crate) store: Store,
    pub(crate) answer: Answer,
    pub(crate) tests: Vec<Test>,
    /// Names of tests that do not exist for this store.
    pub(crate) missing: Vec<&'static str>,
}

/// The result of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Green,
    Red,
    NotApplicable,
    /// The fault can happen on this store, and no test covers it.
    Open,
}

impl Cell {
    pub(crate) fn state(&self, results: &Results) -> State {
        if !self.missing.is_empty() {
            return State::Red;
        }
        if self.answer.stories.is_empty() && self.tests.is_empty() {
            return match self.answer.not_applicable {
                Some(_) => State::NotApplicable,
                None => State::Open,
            };
        }
        let played = |story: &Story| {
            let runs = results.played.get(&(self.store, story.name));
            runs.is_some_and(|runs| runs.iter().all(|(_, run)| run.breaches.is_empty()))
        };
        let passed = |test: &Test| results.tests.get(test) == Some(&true);
        if self.answer.stories.iter().all(played) && self.tests.iter().all(passed) {
            State::Green
        } else {
            State::Red
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    let mut cells = chosen(args)?;
    // We build in the background: the build takes as long as many stories.
    let index = (!args.no_tests).then(|| thread::spawn(Index::build));
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let first = args.seed.unwrap_or(clock.as_secs() % 1_000_000);
    let results = Mutex::new(Results::default());
    let end = args
        .minutes
        .map(|minutes| start + Duration::from_secs(minutes * 60));
    for seed in first.. {
        lock(&results).seeds.push(seed);
        play_all(&cells, seed, args.jobs, &results, end);
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = index {
        let Ok(index) = index.join() else {
            bail!("the tests could not be found");
        };
        results.tests = run_tests(&index?, &mut cells)?;
    }
    results.took = start.elapsed();
    print!("{}", report::summary(&cells, &results));
    if let Some(file) = &args.write {
        testkit::pages::write(file, &report::page(&cells, &results))?;
    }
    Ok(if fails(&cells, &results, !args.no_tests) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Without the tests, a fault that only tests cover is open, and no failure.
fn fails(cells: &[Cell], results: &Results, tested: bool) -> bool {
    let mut states = cells.iter().map(|cell| cell.state(results));
    states.any(|state| state == State::Red || tested && state == State::Open)
}

/// Runs the tests that cover the chosen cells, each once.
fn run_tests(index: &Index, cells: &mut [Cell]) -> Result<HashMap<Test, bool>> {
    let mut tests = Vec::new();
    for cell in cells {
        cell.tests = index.answering(cell.row.id, cell.store, &cell.answer);
        cell.missing = index.missing(cell.store, &cell.answer);
        tests.extend(cell.tests.clone());
    }
    tests.sort();
    tests.dedup();
    index.run(&tests)
}

fn chosen(args: &Args) -> Result<Vec<Cell>> {
    let mut wanted = Vec::new();
    for name in &args.row {
        let number = name.trim_start_matches(['T', 't']).parse().ok();
        let row = rows().find(|row| Some(row.id) == number);
        wanted.push(
            row.with_context(|| format!("no row is called {name}; docs/faults.md has them all"))?
                .id,
        );
    }
    let mut cells = Vec::new();
    for row in rows().filter(|row| wanted.is_empty() || wanted.contains(&row.id)) {
        for store in Store::ALL {
            if args.store.is_empty() || args.store.contains(&store) {
                cells.push(Cell {
                    row,
                    store,
                    answer: (row.answer)(store),
                    tests: Vec::new(),
                    missing: Vec::new(),
                });
            }
        }
    }
    if cells.is_empty() {
        bail!("nothing was chosen");
    }
    Ok(cells)
}

/// Runs every story of every store once, with `jobs` stores in parallel.
fn play_all(
    cells: &[Cell],
    seed: u64,
    jobs: usize,
    results: &Mutex<Results>,
    end: Option<Instant>,
) {
    let mut stores: Vec<Store> = Store::ALL.into();
    stores.retain(|store| !stories(cells, *store).is_empty());
    let waiting = Mutex::new(stores.into_iter());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(store) = lock(&waiting).next() else {
                        return;
                    };
                    if end.is_some_and(|end| Instant::now() >= end) {
                        return;
                    }
                    play_store(store, &stories(cells, store), seed, results);
                }
            });
        }
    });
}

/// Each story once, even if several rows need it. We sort by server so that each server starts once, the usual one
/// first.
fn stories(cells: &[Cell], store: Store) -> Vec<Story> {
    let mut found: Vec<Story> = Vec::new();
    for story in cells
        .iter()
        .filter(|cell| cell.store == store)
        .flat_map(|cell| &cell.answer.stories)
    {
        if found.iter().all(|known| known.name != story.name) {
            found.push(*story);
        }
    }
    found.sort_by_key(|story| story.on);
    found
}

fn play_store(store: Store, stories: &[Story], seed: u64, results: &Mutex<Results>) {
    let mut open: Option<(On, Box<dyn World>)> = None;
    for story in stories {
        if open.as_ref().is_none_or(|(on, _)| *on != story.on) {
            open = None;
        }
        if open.is_none() {
            match prepare(store, story, results) {
                Ok(world) => open = Some((story.on, world)),
                Err(error) => record(store, story, seed, Outcome::broken(&error), results),
            }
        }
        let Some((_, world)) = &open else {
            continue;
        };
        let outcome = stage::play(&**world, store, story, seed, LEASE);
        let outcome = outcome.unwrap_or_else(|error| Outcome::broken(&error));
        if !outcome.breaches.is_empty() {
            // We start the next story on a fresh server. Otherwise the remains of this failure could fail the next
            // story too.
            open = None;
        }
        record(store, story, seed, outcome, results);
    }
}

fn prepare(store: Store, story: &Story, results: &Mutex<Results>) -> Result<Box<dyn World>> {
    let world = world::open(store, story.on)?;
    let version = world.version()?;
    // If a store has several servers, we report the version of the usual one.
    lock(results).versions.entry(store).or_insert(version);
    Ok(world)
}

fn record(store: Store, story: &Story, seed: u64, outcome: Outcome, results: &Mutex<Results>) {
    println!("{}", line(store, story, &outcome));
    let mut results = lock(results);
    let runs = results.played.entry((store, story.name)).or_default();
    runs.push((seed, outcome));
}

fn line(store: Store, story: &Story, outcome: &Outcome) -> String {
    let verdict = if outcome.breaches.is_empty() {
        "ok "
    } else {
        "RED"
    };
    let mut text = format!(
        "{verdict} {:<10} {:<22} {:>5.1} s {:>5} grants {:>4} lost",
        store.name(),
        story.name,
        outcome.took.as_secs_f64(),
        outcome.grants,
        outcome.losses
    );
    text.push_str(&outcome.details(4));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_without_a_story_and_a_test_is_a_failure_of_a_run_with_tests() {
        let mut cell = Cell {
            row: rows().next().expect("there are rows"),
            store: Store::Redis,
            answer: Answer::default(),
            tests: Vec::new(),
            missing: Vec::new(),
        };
        let results = Results::default();
        assert_eq!(cell.state(&results), State::Open);
        assert!(fails(std::slice::from_ref(&cell), &results, true));
        assert!(!fails(std::slice::from_ref(&cell), &results, false));
        cell.missing.push("renamed");
        assert_eq!(cell.state(&results), State::Red);
        assert!(fails(&[cell], &results, false));
    }
}
