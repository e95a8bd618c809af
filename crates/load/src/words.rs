use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which names the tasks of a run take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// All of them one.
    One,
    /// Each its own: the name, a space and the task's number.
    Own,
}

/// Take locks again and again, from a time to a time, and write a file of stamps.
///
/// Every task takes its lock once at least, also when its time is over before it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// How many tasks.
    pub tasks: usize,
    /// Which names.
    pub names: Names,
    /// The name, or what it begins with.
    pub name: String,
    /// How long each hold lasts.
    pub hold_us: u64,
    /// When all of them begin.
    pub start_ns: u64,
    /// When nobody asks any more.
    pub stop_ns: u64,
    /// Where the stamps go.
    pub file: PathBuf,
}

/// What a process is told, one line of JSON each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Take locks again and again.
    Run(Run),
    /// Take so many locks of their own names, and keep them until told to drop them.
    Hold {
        /// How many.
        locks: usize,
        /// What their names begin with.
        name: String,
    },
    /// Have so many tasks ask for locks that somebody else holds. Answered once all of them have begun to wait.
    Wait {
        /// How many tasks.
        tasks: usize,
        /// How many names they share.
        names: usize,
        /// What the names begin with.
        name: String,
    },
    /// Wait until all the tasks that wait have had their turn.
    Served,
    /// Give back what is held.
    Drop,
}

/// What it answers, one line of JSON for each order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done: so many locks were taken, begun, served or given back, and the last of them then.
    Done {
        /// How many.
        count: usize,
        /// When.
        at_ns: u64,
    },
    /// It did not work.
    Failed(String),
}
