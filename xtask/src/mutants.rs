//! `cargo xtask mutants`: changes one expression of the library at a time, looks which tests notice, and writes
//! docs/mutants.md. See docs/decisions/0046-mutants-are-woven-into-one-build.md.

mod build;
mod coverage;
mod fixture;
mod list;
mod page;
mod process;
mod project;
mod results;
mod survivors;
mod touched;
mod trial;
mod weave;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};

use build::{Omitted, Suite};
use coverage::Test;
use list::Mutant;
use project::Project;
use results::{Finding, Results, Through};
use trial::Outcome;

use crate::rooms::{OWN_TESTS, ROOMS, server_tests};
use crate::test::SERVER_PACKAGES;

pub(crate) use touched::touched;

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    /// Tries the mutants of this room only; may be given more than once
    #[arg(long, value_name = "ROOM")]
    room: Vec<String>,
    /// Tries the mutants of files whose path begins so, such as `engine/lease`
    #[arg(long, value_name = "PATH", default_value = "")]
    file: String,
    /// Tries the Kth of N parts
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Begins no mutant after this time; what is left is tried by the next run
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// Tries the survivors on the tests of real servers too, as far as the room has such tests
    #[arg(long)]
    servers: bool,
    /// Tries mutants once more that survived, for new tests
    #[arg(long)]
    again: bool,
    /// How many mutants are tried at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Tries each mutant on at most so many tests; if there are more and those pass, it stays open
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    most: usize,
    /// Corrects the list of survivors instead of failing: new ones are added as open, those that are caught now go
    #[arg(long)]
    note: bool,
    /// Writes the page from what is known, and tries nothing
    #[arg(long)]
    page: bool,
    /// Tries the tool itself, on a small package with known mutants
    #[arg(long)]
    fixture: bool,
}

/// The tests of the library that need no server. The packages are those of the part `tests`.
const OWN: Suite = Suite {
    packages: &["tidelock", "tidelock-cli"],
    lib: true,
    tests: OWN_TESTS,
};

/// The tests on real servers that are tried on the survivors of a room.
fn servers(room: &str) -> Option<Suite> {
    let tests = server_tests(room);
    (!tests.is_empty()).then_some(Suite {
        packages: &SERVER_PACKAGES,
        lib: false,
        tests,
    })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.fixture {
        return fixture::check();
    }
    if let Some(room) = args.room.iter().find(|it| !ROOMS.contains(&it.as_str())) {
        bail!("no room is called {room}; there are {}", ROOMS.join(", "));
    }
    let project = Project::tidelock();
    let mutants = list::list(&project)?;
    let mut results = Results::read(&project, &mutants)?;
    if !args.page {
        let end = args
            .minutes
            .map(|it| Instant::now() + Duration::from_secs(60 * it));
        try_all(&project, &mutants, &mut results, args, end)?;
    }
    results.tidy()?;
    if args.note {
        survivors::correct(&mutants, &results)?;
    }
    page::write(&mutants, &results)?;
    survivors::check(&mutants, &results)
}

/// Tries the chosen mutants, as far as the time allows.
fn try_all(
    project: &Project,
    mutants: &[Mutant],
    results: &mut Results,
    args: &Args,
    end: Option<Instant>,
) -> Result<()> {
    let chosen = choose(mutants, args)?;
    project.copy()?;
    // Other rooms stay as they are: the compiler needs longer for a text with all.
    let in_build: Vec<&Mutant> = mutants
        .iter()
        .filter(|it| args.room.is_empty() || args.room.iter().any(|room| room == it.room()))
        .collect();
    let omitted = sort_out(project, mutants, &in_build, results)?;
    let mut suites = vec![(Through::Own, OWN, String::new())];
    if args.servers {
        suites.clear();
        for room in ROOMS {
            let suite = servers(room).map(|suite| (Through::Servers, suite, room.to_owned()));
            suites.extend(suite);
        }
    }
    for (through, suite, room) in suites {
        let open: Vec<&Mutant> = chosen
            .iter()
            .copied()
            .filter(|it| !omitted.contains_key(&it.id) && (room.is_empty() || it.room() == room))
            .filter(|it| is_open(results.found.get(&it.key()), through, args.again))
            .collect();
        if open.is_empty() {
            continue;
        }
        println!("{} mutants to try {room}", open.len());
        let programs = build::programs(project, suite, &in_build, &omitted)?;
        ensure!(!programs.is_empty(), "the suite has no test program");
        let mut tests = Vec::new();
        for program in &programs {
            tests.extend(coverage::measure(project, program)?);
        }
        attempts(
            &open,
            &tests,
            (args.jobs, args.most),
            end,
            |mutant, outcome| results.add(mutant, Finding { outcome, through }),
        )?;
    }
    Ok(())
}

/// Whether these tests still have to try a mutant.
fn is_open(found: Option<&Finding>, through: Through, again: bool) -> bool {
    let Some(found) = found else {
        return through == Through::Own;
    };
    let survives = matches!(found.outcome, Outcome::Survived | Outcome::Unreached);
    survives && (again || through > found.through)
}

fn choose<'a>(mutants: &'a [Mutant], args: &Args) -> Result<Vec<&'a Mutant>> {
    let (part, parts) = match &args.shard {
        None => (0, 1),
        Some(text) => {
            let (part, parts) = text
                .split_once('/')
                .ok_or_else(|| anyhow!("a shard is K/N"))?;
            let (part, parts): (usize, usize) = (part.parse()?, parts.parse()?);
            ensure!(
                (1..=parts).contains(&part),
                "the shard {text} does not exist"
            );
            (part - 1, parts)
        }
    };
    let chosen = mutants.iter().enumerate().filter(|(index, mutant)| {
        let room = args.room.is_empty() || args.room.iter().any(|it| it == mutant.room());
        room && mutant.file.starts_with(&args.file) && index % parts == part
    });
    Ok(chosen.map(|(_, mutant)| mutant).collect())
}

/// Finds the mutants that are not in the build, unless an earlier run has.
fn sort_out(
    project: &Project,
    mutants: &[Mutant],
    in_build: &[&Mutant],
    results: &Results,
) -> Result<Omitted> {
    let mut omitted = results.omitted(mutants);
    let sorted = results.sorted();
    let unsorted: Vec<&Mutant> = in_build
        .iter()
        .copied()
        .filter(|it| !sorted.contains(&it.file))
        .collect();
    if !unsorted.is_empty() {
        println!("{} mutants, do they compile?", unsorted.len());
        build::sort_out(project, OWN, &unsorted, &mut omitted)?;
        results.keep_omitted(mutants, &omitted)?;
        results.keep_sorted(&unsorted)?;
    }
    Ok(omitted)
}

/// Tries these mutants, several at a time, each on at most so many tests, and reports each outcome. Returns how many were
/// tried.
fn attempts(
    mutants: &[&Mutant],
    tests: &[Test],
    (jobs, most): (usize, usize),
    end: Option<Instant>,
    report: impl FnMut(&Mutant, Outcome) -> Result<()> + Send,
) -> Result<usize> {
    let next = AtomicUsize::new(0);
    let report = Mutex::new(report);
    let tried = AtomicUsize::new(0);
    let each = || -> Result<()> {
        while end.is_none_or(|end| Instant::now() < end) {
            let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let start = Instant::now();
            let outcome = trial::attempt(mutant, tests, most)?;
            let number = tried.fetch_add(1, Ordering::Relaxed) + 1;
            println!(
                "{number}/{} {:.1} s {outcome:?}: {}",
                mutants.len(),
                start.elapsed().as_secs_f64(),
                mutant.key()
            );
            let Some(outcome) = outcome else {
                continue;
            };
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report(mutant, outcome)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(each)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let tried = tried.into_inner();
    if tried < mutants.len() {
        println!(
            "the time is over: {} of {} were NOT tried",
            mutants.len() - tried,
            mutants.len()
        );
    }
    Ok(tried)
}
