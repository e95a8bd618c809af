//! A deterministic simulation: it runs days of locking in a second. The library's acquire loop, steward and guards run
//! on the reference store, on a simulated clock, under faults that a seed determines.
//!
//! Each seed is one story: a few clients, each with faults of its own, and tasks that acquire locks, hold them, lose
//! them and give up half-way. Meanwhile connections are cut, replies are lost, locks are freed by force and everything
//! freezes for a while. A referee checks every step.

mod actor;
mod arrivals;
pub mod broken;
mod cast;
mod counter;
mod member;
mod referee;
mod share;
mod story;
mod uses;

use std::fmt;

pub use broken::Flaw;
pub use story::{Plan, Subject};

/// The totals of a story without a violation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Locks that were acquired.
    pub grants: usize,
    /// Actions of holders that the referee checked.
    pub acts: usize,
    /// Holders that were told of a loss.
    pub losses: usize,
    /// Leaderships that were transferred to a candidate that was named.
    pub transfers: usize,
    /// Members that have entered a barrier.
    pub entered: usize,
    /// Permits of a counting semaphore that were taken, and calls that have counted a latch down.
    pub counts: usize,
}

impl Outcome {
    /// Adds the totals of another story.
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.acts += other.acts;
        self.losses += other.losses;
        self.transfers += other.transfers;
        self.entered += other.entered;
        self.counts += other.counts;
    }
}

/// A story with a violation.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the story.
    pub seed: u64,
    /// What the story was about, if the seed did not decide it.
    pub only: Option<Subject>,
    /// The guarantee that was violated.
    pub why: String,
    /// The events up to the violation, one per line.
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
            "play it again: cargo run --profile bench -p simulation -- --seed {}",
            self.seed
        )?;
        match self.only {
            None => Ok(()),
            Some(only) => write!(f, " --only {only}"),
        }
    }
}

/// Plays the story of one seed.
///
/// # Errors
/// A guarantee was violated.
pub fn play(plan: &Plan) -> Result<(Outcome, Vec<String>), Failure> {
    story::play(plan)
}
