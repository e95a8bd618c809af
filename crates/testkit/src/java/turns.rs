//! A Java service that takes its turns at a lock for a while.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::lock::JavaLock;
use super::wire::{JavaError, Pending};

/// What [`JavaLock::begin_turns`] shall do.
#[derive(Debug, Clone, Copy)]
pub struct TurnsPlan {
    /// Java threads of their own.
    pub threads: u32,
    /// For how long.
    pub time: Duration,
    /// How long each hold lasts.
    pub hold: Duration,
}

/// How often somebody had a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnsReport {
    /// Holds of each thread or task.
    pub turns: Vec<u64>,
    /// The longest that one of them waited.
    pub longest_ns: u64,
}

impl TurnsReport {
    /// Holds in all.
    pub fn total(&self) -> u64 {
        self.turns.iter().sum()
    }
}

impl JavaLock {
    /// Takes the lock again and again for a while, on several threads.
    ///
    /// # Errors
    /// The peer has gone.
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
