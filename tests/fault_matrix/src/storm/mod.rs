//! A storm: all stores at once, each on servers of its own, and on each one random fault after another. A round is some
//! faults with the same processes, and the checkers of the fault matrix judge its histories.

mod faults;
mod gauge;
mod page;
mod round;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use testkit::process::boot_time;

use self::gauge::Gauge;
use self::round::Round;
use crate::check;
use crate::partitions::Seen;
use crate::shared::lock;
use crate::stage::{self, Outcome, Run};
use crate::store::Store;
use crate::worker::Lie;
use crate::world::{self, On, World};

/// The number of tasks of a process that each hold a lock for some leases, so that a fault takes many locks.
const HOLDERS: u32 = 8;

/// If the [gauge](Gauge)'s work of some milliseconds takes longer than this, a server does not get enough of a core to answer within
/// the bounds on times.
const TOO_BUSY: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this store; may be given more than once
    #[arg(long)]
    store: Vec<Store>,
    /// The seed of the first round, which decides its faults and all random choices; the next rounds count on from it. The
    /// default comes from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// For how many minutes each store begins rounds. Without it, each store has one round
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Only this fault, as "server frozen"
    #[arg(long)]
    fault: Option<String>,
    /// The lease of all locks, in milliseconds. By default twice that of the fault matrix, because all stores share the cores
    #[arg(long, default_value_t = 4000, value_name = "MS")]
    lease: u64,
    /// Write the report page to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Let the processes break a promise, which the checkers must find
    #[arg(long, hide = true, default_value_t = Lie::None)]
    lie: Lie,
}

/// What a storm did to one store.
#[derive(Debug, Default)]
struct Column {
    version: String,
    rounds: usize,
    /// How often each fault happened.
    faults: BTreeMap<&'static str, usize>,
    grants: usize,
    seen: Seen,
    stall: Duration,
    /// The losses of rounds in which the tolerance was less than a third of a lease.
    strict: usize,
    /// From its first round to the end of its last.
    took: Duration,
    /// Rounds in which the machine was too busy for bounds on times.
    too_busy: usize,
    /// Rounds that broke a promise, by seed.
    red: Vec<(u64, Vec<String>)>,
}

/// The results of all stores.
#[derive(Debug, Default)]
struct Results {
    columns: BTreeMap<Store, Column>,
    lease: Duration,
    took: Duration,
    first: u64,
}

/// What all columns share.
#[derive(Debug, Default)]
struct Shared {
    results: Mutex<Results>,
    /// Held while servers start.
    turn: Mutex<()>,
    gauge: Gauge,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    let minutes = |minutes: u64| start + Duration::from_secs(minutes * 60);
    let end = args.minutes.map(minutes);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let first = args.seed.unwrap_or(clock.as_secs() % 1_000_000 * 1000);
    let mut stores: Vec<Store> = Store::ALL.into();
    stores.retain(|store| args.store.is_empty() || args.store.contains(store));
    // Before the first server starts: a name that no store knows is an error of the caller.
    for store in &stores {
        Round::of(*store, first, args.fault.as_deref(), args.lie)?;
    }
    let shared = Shared::default();
    thread::scope(|scope| {
        let gauge = &shared.gauge;
        scope.spawn(|| gauge.run());
        let columns = stores.into_iter().map(|store| {
            let shared = &shared;
            scope.spawn(move || blow(store, args, first, end, shared))
        });
        let columns: Vec<_> = columns.collect();
        let failed = columns.into_iter().filter_map(|column| column.join().err());
        let failed = failed.count();
        gauge.stop();
        assert_eq!(failed, 0, "a column panicked");
    });
    let mut results = shared
        .results
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    results.lease = Duration::from_millis(args.lease);
    (results.took, results.first) = (start.elapsed(), first);
    if let Some(file) = &args.write {
        testkit::pages::write(file, &page::page(&results))?;
    }
    println!("{}", page::totals(&results));
    let mut columns = results.columns.values();
    Ok(if columns.all(|column| column.red.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The rounds of one store, on the same servers for as long as they are well.
fn blow(store: Store, args: &Args, first: u64, end: Option<Instant>, shared: &Shared) {
    let start = Instant::now();
    let mut open: Option<(On, Box<dyn World>)> = None;
    for seed in first.. {
        let begun = boot_time();
        let round = Round::of(store, seed, args.fault.as_deref(), args.lie);
        let outcome = match &round {
            Ok(round) => attempt(store, round, args.lease, &mut open, shared),
            Err(error) => Ok(Outcome::broken(error)),
        };
        let mut outcome = outcome.unwrap_or_else(|error| Outcome::broken(&error));
        if !outcome.breaches.is_empty() {
            // The remains of this failure could fail the next round too.
            open = None;
        }
        let work = shared.gauge.longest(begun, boot_time());
        let too_busy = work > TOO_BUSY;
        if too_busy {
            outcome.drop_timing();
        }
        let faults: Vec<&'static str> = round.iter().flat_map(Round::names).collect();
        println!("{}", line(store, seed, &faults, &outcome, work));
        let mut results = lock(&shared.results);
        results.take(store, seed, &faults, &outcome);
        let column = results.columns.entry(store).or_default();
        column.took = start.elapsed();
        column.too_busy += usize::from(too_busy);
        drop(results);
        if end.is_none_or(|end| Instant::now() >= end) {
            return;
        }
    }
}

fn attempt(
    store: Store,
    round: &Round,
    lease: u64,
    open: &mut Option<(On, Box<dyn World>)>,
    shared: &Shared,
) -> Result<Outcome> {
    let on = round.all.on;
    let well = open.take().filter(|(before, _)| *before == on);
    let (_, world) = if let Some(well) = well {
        open.insert(well)
    } else {
        // One after the other: each of them needs a core for seconds.
        let _turn = lock(&shared.turn);
        open.insert((on, world::open(store, on)?))
    };
    let version = world.version()?;
    lock(&shared.results)
        .columns
        .entry(store)
        .or_default()
        .version = version;
    let run = Run {
        story: &round.all,
        faults: &round.faults,
        holders: HOLDERS,
        cold: false,
        may_overlap: Duration::MAX,
    };
    stage::play_run(
        &**world,
        store,
        &run,
        round.seed,
        Duration::from_millis(lease),
    )
}

impl Round {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.faults.iter().map(|fault| fault.name)
    }
}

impl Results {
    fn take(&mut self, store: Store, seed: u64, faults: &[&'static str], outcome: &Outcome) {
        let column = self.columns.entry(store).or_default();
        column.rounds += 1;
        // A round that ends early has not made all of its faults.
        for fault in faults.iter().take(outcome.made) {
            *column.faults.entry(fault).or_default() += 1;
        }
        column.grants += outcome.grants;
        column.seen = column.seen.and(outcome.seen);
        column.stall = column.stall.max(outcome.stall);
        if check::slack_after(outcome.stall) < self.lease / 3 {
            column.strict += outcome.seen.losses;
        }
        if !outcome.breaches.is_empty() {
            let told = outcome.breaches.iter().map(ToString::to_string);
            column.red.push((seed, told.collect()));
        }
    }
}

fn line(store: Store, seed: u64, faults: &[&str], outcome: &Outcome, work: Duration) -> String {
    let (seen, breaches) = (outcome.seen, &outcome.breaches);
    let verdict = if breaches.is_empty() { "ok " } else { "RED" };
    let mut text = format!(
        "{verdict} {:<9} seed {seed} {:>5.1} s {:>5} grants {:>3} lost, {} told late, {} overlaps, stall {} ms, work {} ms: {}",
        store.name(),
        outcome.took.as_secs_f64(),
        outcome.grants,
        seen.losses,
        seen.told_late,
        seen.overlaps,
        outcome.stall.as_millis(),
        work.as_millis(),
        faults.join("; "),
    );
    if seen.disturbed > 0 {
        text.push_str(" (disturbed)");
    }
    text.push_str(&outcome.details(4));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_that_were_made_are_counted() {
        let mut outcome = Outcome::broken(&anyhow::anyhow!("process 2 ended by itself"));
        outcome.made = 1;
        let mut results = Results::default();
        let faults = ["server frozen", "holder killed"];
        results.take(Store::Redis, 7, &faults, &outcome);
        let column = &results.columns[&Store::Redis];
        assert_eq!(column.faults, BTreeMap::from([("server frozen", 1)]));
        assert_eq!(column.red.len(), 1);
    }
}
