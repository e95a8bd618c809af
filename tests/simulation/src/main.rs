//! Plays many stories in parallel: `cargo run --profile bench -p simulation -- --seeds 10000`

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Parser;
use simulation::{Outcome, Plan, Subject, play};

/// Plays stories of locks under faults, each determined by its seed, and looks for a violated guarantee.
#[derive(Debug, Parser)]
struct Args {
    /// The number of stories
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The seed of the first story
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Plays only the story of this seed, and prints all its events
    #[arg(long)]
    seed: Option<u64>,
    /// Plays only stories of these
    #[arg(long)]
    only: Option<Subject>,
}

impl Args {
    fn plan(&self, seed: u64) -> Plan {
        Plan {
            seed,
            only: self.only,
            ..Plan::default()
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(&args.plan(seed)),
        None => many(&args),
    }
}

fn one(plan: &Plan) -> ExitCode {
    match play(plan) {
        Ok((outcome, log)) => {
            println!("{}\nseed {}: {outcome:?}", log.join("\n"), plan.seed);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(args: &Args) -> ExitCode {
    let (start, next) = (Instant::now(), AtomicU64::new(args.from));
    let (total, failed) = (Mutex::new(Outcome::default()), AtomicBool::new(false));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.from + args.seeds || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    match play(&args.plan(seed)) {
                        Ok((outcome, _)) => {
                            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                            total.add(&outcome);
                        }
                        Err(failure) => {
                            failed.store(true, Ordering::Relaxed);
                            println!("{failure}");
                        }
                    }
                }
            });
        }
    });
    if failed.load(Ordering::Relaxed) {
        return ExitCode::FAILURE;
    }
    let total = *total.lock().unwrap_or_else(PoisonError::into_inner);
    let only = args
        .only
        .map(|only| format!(" of {only:?}"))
        .unwrap_or_default();
    println!(
        "{} seeds{only} from {}: {} locks taken, {} steps of holders, {} losses told, {} leaderships transferred, {} members of barriers let in, {} numbers changed, no promise broken, in {:.1} s",
        args.seeds,
        args.from,
        total.grants,
        total.acts,
        total.losses,
        total.transfers,
        total.entered,
        total.counts,
        start.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
