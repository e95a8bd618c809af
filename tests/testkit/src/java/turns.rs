//! A Java service that competes for a lock for a while.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::lock::JavaLock;
use super::wire::{JavaError, Pending};

/// The parameters of [`JavaLock::begin_turns`].
#[derive(Debug, Clone, Copy)]
pub struct TurnsPlan {
    /// Number of Java threads that compete.
    pub threads: u32,
    /// Duration of the run.
    pub time: Duration,
    /// Duration of each hold.
    pub hold: Duration,
}

/// How often each competitor had the lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnsReport {
    /// Holds of each thread or task.
    pub turns: Vec<u64>,
    /// The longest wait of any thread or task.
    pub longest_ns: u64,
}

impl TurnsReport {
    /// Number of holds of all threads.
    pub fn total(&self) -> u64 {
        self.turns.iter().sum()
    }
}

impl JavaLock {
    /// Acquires the lock repeatedly for a while, on several threads.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn begin_turns(&self, plan: TurnsPlan) -> Result<Pending<TurnsReport>, JavaError> {
        let TurnsPlan {
            threads,
            time,
            hold,
        } = plan;
        let (time_ms, hold_us) = (
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            u64::try_from(hold.as_micros()).unwrap_or(u64::MAX),
        );
        self.begin(
            "turns",
            json!({ "threads": threads, "time_ms": time_ms, "hold_us": hold_us }),
        )
    }
}
