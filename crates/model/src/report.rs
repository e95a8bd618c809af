//! Runs a configuration and says what came of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stateright::{Checker, Model};

use crate::config::Config;
use crate::parts::DRIFT;
use crate::properties::REACHED;
use crate::world::World;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// How many different states there are.
    pub states: usize,
    /// How many states lie on the longest of the shortest ways to one of them.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// How many of [`REACHED`] it came by.
    pub reached: usize,
    /// The properties that do not hold, each with the steps of a shortest counterexample.
    pub broken: BTreeMap<&'static str, Vec<String>>,
}

impl Outcome {
    /// The property with the shortest counterexample.
    pub fn first(&self) -> Option<(&'static str, &[String])> {
        let all = self.broken.iter();
        let first = all.min_by_key(|(_, steps)| steps.len())?;
        Some((first.0, first.1))
    }
}

/// Looks at every state, in the order of the steps to it, and prints what it found.
///
/// With a bug put back, or clocks that are too wrong, it stops at the first counterexample, which is a shortest one.
pub fn check(config: Config) -> Outcome {
    let name = config.name;
    let wrong = config.bug.is_some() || config.drift > DRIFT;
    let start = Instant::now();
    let mut builder = World(config).checker();
    if wrong {
        builder = builder.finish_when(stateright::HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
    let paths = checker.discoveries();
    let world = checker.model();
    let (reached, failures): (Vec<_>, Vec<_>) = paths
        .into_iter()
        .partition(|(property, _)| REACHED.contains(property));
    let broken = failures
        .into_iter()
        .map(|(property, path)| (property, world.trace(path)))
        .collect();
    let outcome = Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        reached: reached.len(),
        broken,
    };
    let Outcome { states, depth, .. } = &outcome;
    println!(
        "{name}: {states} states, depth {depth}, {:.1?}",
        outcome.time
    );
    for (property, steps) in &outcome.broken {
        println!("  broken in {} steps: {property}", steps.len());
        for (n, step) in (1..).zip(steps) {
            println!("    {n:2}. {step}");
        }
    }
    outcome
}
