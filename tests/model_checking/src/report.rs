//! Checks a configuration and reports the result.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Path};

use crate::config::Config;
use crate::hand_over::{HandOver, SEEN};
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

    fn print(&self, name: &str) {
        let Self { states, depth, .. } = self;
        println!("{name}: {states} states, depth {depth}, {:.1?}", self.time);
        for (property, steps) in &self.broken {
            println!("  broken in {} steps: {property}", steps.len());
            for (n, step) in (1..).zip(steps) {
                println!("    {n:2}. {step}");
            }
        }
    }
}

/// Visits every state in breadth-first order, and prints the result.
///
/// With a bug put back, or with clocks that drift more than allowed, it stops at the first counterexample. That is a
/// shortest one.
pub fn check(config: Config) -> Outcome {
    let name = config.name;
    let wrong = config.bug.is_some() || config.drift > DRIFT;
    explore(World(config), name, wrong, &REACHED, World::trace)
}

/// Like [`check`], for a run of the hand-over.
pub fn check_hand_over(run: HandOver) -> Outcome {
    let (name, wrong) = (run.name, run.bug.is_some());
    explore(run, name, wrong, &SEEN, |_, path| {
        let steps = path.into_actions().into_iter();
        steps.map(|step| format!("{step:?}")).collect()
    })
}

fn explore<M>(
    model: M,
    name: &str,
    wrong: bool,
    wanted: &[&str],
    trace: impl Fn(&M, Path<M::State, M::Action>) -> Vec<String>,
) -> Outcome
where
    M: Model<
            State: Clone + Hash + Debug + PartialEq + Send + Sync,
            Action: Clone + Debug + PartialEq + Send + Sync,
        > + Send
        + Sync
        + 'static,
{
    let start = Instant::now();
    let mut builder = model.checker();
    if wrong {
        builder = builder.finish_when(stateright::HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
    let (reached, failures): (Vec<_>, Vec<_>) = checker
        .discoveries()
        .into_iter()
        .partition(|(property, _)| wanted.contains(property));
    let broken = failures
        .into_iter()
        .map(|(property, path)| (property, trace(checker.model(), path)))
        .collect();
    let outcome = Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        reached: reached.len(),
        broken,
    };
    outcome.print(name);
    outcome
}
