//! Checks that every wait can end.
//!
//! Stateright accepts a path that ends in a cycle, or that joins another path, as one that satisfies every `eventually`
//! property. So we search the graph here: from every state, some path without a further fault must lead to a state in
//! which nobody waits. A run that eventually takes every step that stays possible reaches such a state.
//!
//! Algorithm: a breadth-first search builds the graph; then a backward search starts from all states in which nobody
//! waits and counts the states that it reaches.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::time::{Duration, Instant};

use stateright::Model;

use crate::config::Config;
use crate::parts::{Life, Phase};
use crate::state::State;
use crate::world::World;

/// The result of a search.
#[derive(Debug)]
pub struct Progress {
    /// The number of distinct states.
    pub states: usize,
    /// The number of states in which some client waits.
    pub waiting: usize,
    /// The number of states from which no path leads to the end of all waits.
    pub hopeless: usize,
    /// How long the search took.
    pub time: Duration,
}

/// A model whose clients wait.
pub trait Waiting: Model<State: Hash> {
    /// Some live client waits.
    fn waits(state: &Self::State) -> bool;
    /// The step between these states was no fault.
    fn is_faultless(before: &Self::State, after: &Self::State) -> bool;
}

/// Visits every state and prints the result.
pub fn waits_end(config: Config) -> Progress {
    every_wait_ends(config.name, &World(config))
}

/// Like [`waits_end`], for any model.
pub fn every_wait_ends<M: Waiting>(name: &str, model: &M) -> Progress {
    let start = Instant::now();
    let graph = Graph::of(model);
    let reached = graph.can_end();
    let states = graph.waits.len();
    let waiting = graph.waits.iter().filter(|waits| **waits).count();
    let hopeless = states - reached;
    let time = start.elapsed();
    println!(
        "{name}: {waiting} of {states} states wait, {hopeless} of them without an end, {time:.1?}"
    );
    Progress {
        states,
        waiting,
        hopeless,
        time,
    }
}

#[derive(Default)]
struct Graph {
    waits: Vec<bool>,
    /// The steps without a fault, as (to, from). Sorted, because `can_end` finds the steps to a state by binary search.
    back: Vec<(u32, u32)>,
}

impl Graph {
    fn of<M: Waiting>(world: &M) -> Self {
        let mut graph = Self::default();
        // We store a hash of each state instead of the state itself, to save memory. A collision would merge two
        // states.
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut queue: VecDeque<(u32, M::State)> = VecDeque::new();
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mut number =
            |graph: &mut Self, state: &M::State| match known.entry(hasher.hash_one(state)) {
                Entry::Occupied(old) => (*old.get(), false),
                Entry::Vacant(new) => {
                    let n = u32::try_from(graph.waits.len()).unwrap_or(u32::MAX);
                    graph.waits.push(M::waits(state));
                    (*new.insert(n), true)
                }
            };
        for state in world.init_states() {
            let (n, _) = number(&mut graph, &state);
            queue.push_back((n, state));
        }
        let mut actions = Vec::new();
        while let Some((from, state)) = queue.pop_front() {
            world.actions(&state, &mut actions);
            for next in actions
                .drain(..)
                .filter_map(|action| world.next_state(&state, action))
            {
                let (to, new) = number(&mut graph, &next);
                if M::is_faultless(&state, &next) {
                    graph.back.push((to, from));
                }
                if new {
                    queue.push_back((to, next));
                }
            }
        }
        graph.back.sort_unstable();
        graph
    }

    /// The number of states from which some path leads to a state in which nobody waits.
    fn can_end(&self) -> usize {
        let mut reached: Vec<bool> = self.waits.iter().map(|waits| !waits).collect();
        let mut queue: Vec<u32> = (0u32..)
            .zip(&reached)
            .filter(|(_, end)| **end)
            .map(|(n, _)| n)
            .collect();
        let mut count = queue.len();
        while let Some(to) = queue.pop() {
            let first = self.back.partition_point(|edge| edge.0 < to);
            for (_, from) in self.back[first..].iter().take_while(|edge| edge.0 == to) {
                if !std::mem::replace(&mut reached[*from as usize], true) {
                    count += 1;
                    queue.push(*from);
                }
            }
        }
        count
    }
}

impl Waiting for World {
    fn waits(state: &State) -> bool {
        let mut clients = state.clients.iter();
        clients.any(|client| {
            client.life != Life::Dead && !matches!(client.phase, Phase::Idle | Phase::Holding)
        })
    }

    fn is_faultless(before: &State, after: &State) -> bool {
        before.faults == after.faults
    }
}
