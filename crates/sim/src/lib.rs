//! Days of a lock in a second: the loop, the steward and the guards of the library on its reference store, under faults
//! that a seed decides, on a clock that is moved.
//!
//! One seed is one story: some clients, each behind faults of its own, and some tasks that take locks, hold them, lose
//! them, leave in the middle, while networks break, processes die and everything freezes for a while. A referee looks at
//! every step.

mod actor;
pub mod broken;
mod referee;
mod story;

use std::fmt;

pub use story::{Flaw, Plan};

/// What a story was like that ended well.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Locks that were taken.
    pub grants: usize,
    /// Steps of holders that the referee looked at.
    pub acts: usize,
    /// Holds that were told lost.
    pub losses: usize,
}

impl Outcome {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.acts += other.acts;
        self.losses += other.losses;
    }
}

/// A story that ended badly.
#[derive(Debug)]
pub struct Failure {
    /// Which story.
    pub seed: u64,
    /// What was broken.
    pub why: String,
    /// What happened until then, a line an event.
    pub log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.log {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.why)?;
        write!(
            f,
            "play it again: cargo run --release -p sim -- --seed {}",
            self.seed
        )
    }
}

/// Plays the story of one seed.
///
/// # Errors
/// A promise that was broken.
pub fn play(plan: &Plan) -> Result<(Outcome, Vec<String>), Failure> {
    story::play(plan)
}
