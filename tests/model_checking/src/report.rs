//! Checks a configuration and reports the result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stateright::{Checker, Model};

use crate::config::Config;
use crate::parts::DRIFT;
use crate::properties::REACHED;
use crate::world::World;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The number of distinct states.
    pub states: usize,
    /// The number of states on the longest of the shortest paths to each state.
    pub depth: usize,
    /// How long the run took.
    pub time: Duration,
    /// How many of the [`REACHED`] states it reached.
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

/// Visits every state in breadth-first order, and prints the result.
///
/// With a bug put back, or with clocks that drift more than allowed, it stops at the first counterexample. That is a
/// shortest one.
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
