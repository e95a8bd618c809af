//! Partitions of a network: each topology on hosts of its own, each kind of partition, at random moments. The processes
//! write the same histories as in the fault matrix, and the same checkers judge them.

mod clocks;
mod kinds;
mod page;
mod seen;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::hosts::Network;

use crate::shared::lock;
use crate::stage::{self, Outcome, Run, Story};
use crate::worker::{Library, Lie};
use crate::world::{Spread, Topology, World};

use self::kinds::{KINDS, WITH_FOLLOWER};
pub(crate) use self::seen::Seen;

/// The lease of all runs, as in the fault matrix.
const LEASE: Duration = Duration::from_secs(2);

/// How long two may hold a lock under Sentinel with `any`, until the old primary is left.
const BRIEFLY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of runs; 123 in a row are each topology with each kind of partition
    #[arg(long, default_value_t = 123)]
    seeds: usize,
    /// The first seed. A seed decides the topology, the kind and all random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only seeds of this topology
    #[arg(long)]
    topology: Option<Topology>,
    /// Only seeds of this kind, as "client isolated"
    #[arg(long)]
    kind: Option<String>,
    /// Begin no run after this many minutes
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Number of topologies to run in parallel
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Also run Redisson once in each scenario on Redis, and show what it did
    #[arg(long)]
    redisson: bool,
    /// Write the report page to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Let the processes break a promise, which the checkers must find
    #[arg(long, hide = true, default_value_t = Lie::None)]
    lie: Lie,
}

impl Args {
    fn is_of_kind(&self, scenario: &Scenario) -> bool {
        self.kind
            .as_ref()
            .is_none_or(|it| it == scenario.story.name)
    }
}

/// One run: a topology, a kind of partition, and a seed.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    seed: u64,
    topology: Topology,
    story: Story,
}

/// Redisson's own setting lies between `any` and `all`, so the second topology with sentinels would be the first again.
const OF_REDISSON: [Topology; 3] = [Topology::Sentinel, Topology::Cluster, Topology::Redlock];

impl Scenario {
    /// Each kind once, with Redisson in place of tidelock.
    fn of_redisson(topology: Topology) -> Vec<Self> {
        let kinds = if OF_REDISSON.contains(&topology) {
            &KINDS[..]
        } else {
            &[]
        };
        let each = (0..).zip(kinds).map(|(seed, kind)| {
            let mut story = *kind;
            story.library = Library::Redisson;
            Self {
                seed,
                topology,
                story,
            }
        });
        each.collect()
    }

    fn is_redisson(&self) -> bool {
        self.story.library == Library::Redisson
    }

    /// As many consecutive seeds as there are pairs of topology and kind meet each of them.
    fn of(seed: u64, lie: Lie) -> Self {
        let (topologies, kinds) = (Topology::ALL.len(), KINDS.len());
        let at = usize::try_from(seed % (topologies * kinds) as u64).unwrap_or_default();
        let topology = Topology::ALL[at % topologies];
        // The pairs repeat after the least number that both divide. From there on the kinds are shifted by one.
        let repeats = (1..).map(|times| times * kinds);
        let repeat = repeats.into_iter().find(|number| number % topologies == 0);
        let mut story = KINDS[(at + at / repeat.unwrap_or(1)) % kinds];
        story.all_replicas = topology == Topology::SentinelAll;
        story.lie = lie;
        Self {
            seed,
            topology,
            story,
        }
    }
}

/// The results of all runs.
#[derive(Debug, Default)]
struct Results {
    versions: BTreeMap<Topology, String>,
    played: Vec<(Scenario, Outcome)>,
    /// With Redisson.
    beside: Vec<(Scenario, Outcome)>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(why) = Network::refusal() {
        bail!("{why}");
    }
    let start = Instant::now();
    let end = args
        .minutes
        .map(|minutes| start + Duration::from_secs(minutes * 60));
    let scenarios = chosen(args)?;
    let results = Mutex::new(Results::default());
    let waiting = Mutex::new(Topology::ALL.into_iter());
    thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(topology) = lock(&waiting).next() else {
                        return;
                    };
                    let mut own = scenarios.clone();
                    own.retain(|scenario| scenario.topology == topology);
                    if args.redisson && args.topology.is_none_or(|it| it == topology) {
                        let mut beside = Scenario::of_redisson(topology);
                        beside.retain(|scenario| args.is_of_kind(scenario));
                        own.extend(beside);
                    }
                    play(&own, &results, end);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.played.sort_by_key(|(scenario, _)| scenario.seed);
    if let Some(file) = &args.write {
        testkit::pages::write(file, &page::page(&results, start.elapsed()))?;
    }
    println!("{}", page::totals(&results));
    let mut runs = results.played.iter();
    Ok(if runs.all(|(_, run)| run.breaches.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn chosen(args: &Args) -> Result<Vec<Scenario>> {
    let mut known = KINDS.iter().map(|kind| kind.name);
    if let Some(kind) = &args.kind
        && !known.any(|name| name == kind)
    {
        bail!("no kind is called {kind}; docs/partitions.md has them all");
    }
    let fits = |scenario: &Scenario| {
        if !clocks::can_run(&scenario.story, scenario.topology) {
            return false;
        }
        let topology = args.topology.is_none_or(|it| it == scenario.topology);
        topology && args.is_of_kind(scenario)
    };
    let all = (args.seed..).map(|seed| Scenario::of(seed, args.lie));
    Ok(all.filter(fits).take(args.seeds).collect())
}

/// Runs scenarios of one topology, on the same servers for as long as they are well.
fn play(scenarios: &[Scenario], results: &Mutex<Results>, end: Option<Instant>) {
    let mut open: Option<Spread> = None;
    for scenario in scenarios {
        if end.is_some_and(|end| Instant::now() >= end) {
            return;
        }
        let outcome = attempt(scenario, &mut open, results);
        let outcome = outcome.unwrap_or_else(|error| Outcome::broken(&error));
        if !outcome.breaches.is_empty() {
            // The remains of this failure could fail the next run too.
            open = None;
        }
        println!("{}", line(scenario, &outcome));
        let mut results = lock(results);
        if scenario.is_redisson() {
            results.beside.push((*scenario, outcome));
        } else {
            results.played.push((*scenario, outcome));
        }
    }
}

fn attempt(
    scenario: &Scenario,
    open: &mut Option<Spread>,
    results: &Mutex<Results>,
) -> Result<Outcome> {
    let topology = scenario.topology;
    let cold = open.is_none();
    let net = match open {
        Some(net) => net,
        None => open.insert(Spread::start(topology)?),
    };
    let version = net.version()?;
    lock(results).versions.entry(topology).or_insert(version);
    let run = Run {
        cold,
        may_overlap: match scenario.story.name {
            name if scenario.is_redisson() || name == WITH_FOLLOWER => Duration::MAX,
            // The clocks of the new primary say that the lease is over, and the old one confirms nothing any more.
            name if name == clocks::NEXT_AHEAD.name => LEASE,
            _ => BRIEFLY,
        },
        ..Run::of(&scenario.story)
    };
    stage::play_run(net, topology.store(), &run, scenario.seed, LEASE)
}

fn line(scenario: &Scenario, outcome: &Outcome) -> String {
    let (seen, breaches) = (outcome.seen, &outcome.breaches);
    let redisson = scenario.is_redisson();
    let verdict = match (redisson, breaches.is_empty()) {
        (true, _) => "Redisson:",
        (false, true) => "ok ",
        (false, false) => "RED",
    };
    let mut text = format!(
        "{verdict} seed {:<4} {:<16} {:<45} {:>5.1} s {:>5} grants {:>3} lost, {} overlaps, without {:.1} s, again after {:.1} s",
        scenario.seed,
        scenario.topology.to_string(),
        scenario.story.name,
        outcome.took.as_secs_f64(),
        outcome.grants,
        outcome.losses,
        seen.overlaps,
        seen.without.as_secs_f64(),
        seen.served_after.as_secs_f64(),
    );
    if redisson && seen.unserved > 0 {
        text.push_str(", not in time");
    }
    if seen.disturbed > 0 {
        text.push_str(", disturbed");
    }
    // Of Redisson only whether a run came to its end is of interest.
    let shown = if redisson { 0 } else { 4 };
    text.push_str(&outcome.details(shown));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn consecutive_seeds_meet_each_topology_with_each_kind() {
        let count = Topology::ALL.len() * KINDS.len();
        let all = (1000..).take(count).map(|seed| {
            let scenario = Scenario::of(seed, Lie::None);
            (scenario.topology, scenario.story.name)
        });
        assert_eq!(all.collect::<BTreeSet<_>>().len(), count);
    }
}
