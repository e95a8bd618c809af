use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The names that the tasks of a run lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// All tasks share one name.
    One,
    /// Each task has its own: the name, a space and the task's number.
    Own,
}

/// Acquire locks repeatedly within an interval, and write a file of stamps.
///
/// Each task acquires its lock at least once, even if the interval is over before it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The number of tasks.
    pub tasks: usize,
    /// Whether they share a name.
    pub names: Names,
    /// The name, or the prefix of the names.
    pub name: String,
    /// The length of each hold, in microseconds.
    pub hold_us: u64,
    /// When all tasks start, on the clock of the stamps.
    pub start_ns: u64,
    /// When tasks stop acquiring, on the clock of the stamps.
    pub stop_ns: u64,
    /// The file for the stamps.
    pub file: PathBuf,
}

/// An order to a worker process; one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Acquire locks repeatedly.
    Run(Run),
    /// Acquire this many locks of different names, and keep them until the order to drop them.
    Hold {
        /// The number of locks to hold in total.
        locks: usize,
        /// The prefix of their names.
        name: String,
    },
    /// Have this many tasks acquire locks that somebody else holds. The answer comes once all tasks are started.
    Wait {
        /// The number of tasks.
        tasks: usize,
        /// The number of names they share.
        names: usize,
        /// The prefix of the names.
        name: String,
    },
    /// Wait until all waiting tasks have acquired and released.
    Served,
    /// Release all held locks.
    Drop,
}

/// The answer to an order; one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The order is done: this many locks were acquired, waited for, served or released.
    Done {
        /// The number of locks, holds or tasks.
        count: usize,
        /// When the last of them was done, on the clock of the stamps.
        at_ns: u64,
    },
    /// The order failed, for this reason.
    Failed(String),
}
