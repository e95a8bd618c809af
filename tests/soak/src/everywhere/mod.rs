//! Every kind of lock on every store at once, while processes of two builds take each other's places.
//!
//! ```text
//!   driver ── starts, stops, kills ──► workers, three for each store ──► the servers of the store
//!     ▲                                   │ records, one pipe for all
//!     └────────── findings ─── judge ◄────┘
//! ```
//!
//! There are no faults here but that processes are replaced: what is looked for is what a long, busy life leaves behind,
//! and what two builds do to each other. The run of `crew` has the faults.

mod book;
mod crew;
mod judge;
mod page;
mod plan;
mod stores;
mod verdict;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

pub(crate) use self::plan::Everywhere;

use self::crew::Crew;
use self::page::Page;
use self::verdict::Verdict;
use crate::machine;

/// Runs, prints the result, and writes the page if the plan names a file.
pub(crate) fn run(plan: &Everywhere) -> Result<ExitCode> {
    let length = Duration::from_secs_f64(plan.minutes * 60.0);
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("seed {seed}, at most {} minutes", plan.minutes);
    let mut crew = Crew::gather(plan, seed)?;
    let versions = crew.running.iter().map(stores::Running::version);
    let versions = versions.collect::<Result<Vec<_>>>()?.join("; ");
    let machine = machine::describe(versions)?;
    let begun = Instant::now();
    // After an error we still report everything seen until then.
    if let Err(error) = crew.live(begun + length, plan.acquisitions) {
        crew.problems.push(format!("{error:#}"));
    }
    let verdict = Verdict::reach(crew, begun.elapsed(), Duration::from_secs_f64(plan.lease));
    let page = Page {
        plan,
        seed,
        machine: &machine,
        verdict: &verdict,
    };
    println!("{}", page.table());
    if let Some(file) = &plan.write {
        testkit::pages::write(&testkit::workspace().join(file), &page.text())?;
    }
    for problem in &verdict.problems {
        println!("BROKEN: {problem}");
    }
    Ok(if verdict.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
