//! One round of a storm: some faults one after the other, all of them chosen by its seed.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::faults;
use crate::stage::Story;
use crate::store::Store;
use crate::worker::Lie;
use crate::world::On;

/// The largest number of faults of a round.
const MOST: usize = 3;

/// So many rounds in a row are on the same kind of server, which is then started once.
const IN_A_ROW: u64 = 8;

/// Of how many faults one loses no lock.
const KEEPING: usize = 4;

/// The faults of a round, and what is said of all together.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) seed: u64,
    pub(super) faults: Vec<Story>,
    pub(super) all: Story,
}

impl Round {
    /// The round of this seed. `only`: the name of the only fault.
    pub(super) fn of(store: Store, seed: u64, only: Option<&str>, lie: Lie) -> Result<Self> {
        let mut fitting = faults::of(store);
        if let Some(only) = only {
            let known: Vec<&str> = fitting.iter().map(|fault| fault.name).collect();
            let known = format!("{store} has no fault {only:?}, but {}", known.join("; "));
            fitting.retain(|fault| fault.name == only);
            ensure!(!fitting.is_empty(), known);
        }
        let on = ground(&fitting, seed)?;
        fitting.retain(|fault| fault.on == on);
        let mut rng = Rng::with_seed(seed);
        let first = draw(&fitting, &mut rng)?;
        // The settings of the processes are those of the first fault.
        fitting.retain(|fault| {
            (fault.all_replicas, fault.restart_guard) == (first.all_replicas, first.restart_guard)
        });
        let mut faults = vec![first];
        for _ in 1..rng.usize(1..=MOST) {
            faults.push(draw(&fitting, &mut rng)?);
        }
        let mut all = Story::new("storm", first.act);
        all.keeps = faults.iter().all(|fault| fault.keeps);
        all.fake_clock = faults.iter().any(|fault| fault.fake_clock);
        (all.on, all.all_replicas, all.restart_guard) =
            (on, first.all_replicas, first.restart_guard);
        all.lie = lie;
        Ok(Self { seed, faults, all })
    }
}

/// The kind of server for this round.
fn ground(fitting: &[Story], seed: u64) -> Result<On> {
    let mut rng = Rng::with_seed(seed / IN_A_ROW);
    let one = fitting.get(rng.usize(0..fitting.len()));
    Ok(one.context("no fault")?.on)
}

fn draw(fitting: &[Story], rng: &mut Rng) -> Result<Story> {
    let keeps = rng.usize(0..KEEPING) == 0;
    let mut found: Vec<&Story> = fitting.iter().filter(|it| it.keeps == keeps).collect();
    if found.is_empty() {
        found = fitting.iter().collect();
    }
    let one = found.get(rng.usize(0..found.len()));
    Ok(**one.context("no fault")?)
}
