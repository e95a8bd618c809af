//! The result of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::check::{Breach, Promise};
use crate::partitions::Seen;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) breaches: Vec<Breach>,
    /// The number of faults that were made, the first ones of the run.
    pub(crate) made: usize,
    pub(crate) grants: usize,
    pub(crate) losses: usize,
    pub(crate) took: Duration,
    pub(crate) seen: Seen,
    /// The longest time for which a process did not run although nobody had frozen it.
    pub(crate) stall: Duration,
    /// The histories, kept if the run had breaches.
    pub(crate) files: Option<PathBuf>,
}

impl Outcome {
    /// Leaves out the breaches of which the load can be the reason, for a run on a machine that was too busy. A run that did not
    /// begin or did not come to its end keeps its breach: otherwise a process that crashes or hangs would count as a success.
    pub(crate) fn drop_timing(&mut self) {
        self.breaches.retain(|breach| !breach.timing);
        if self.breaches.is_empty()
            && let Some(files) = self.files.take()
        {
            // They are only of use beside a breach. What is left of them is harmless.
            let _ = std::fs::remove_dir_all(files);
        }
    }

    /// At most so many breaches, and where the histories are kept, each on a line of its own.
    pub(crate) fn details(&self, most: usize) -> String {
        let breaches = self.breaches.iter().take(most);
        let breaches = breaches.map(|breach| format!("\n      {breach}"));
        let files = self.files.iter();
        let files = files.map(|files| format!("\n      histories: {}", files.display()));
        breaches.chain(files).collect()
    }

    /// The result of a run that did not begin.
    pub(crate) fn broken(error: &anyhow::Error) -> Self {
        Self {
            breaches: vec![Breach::new(
                Promise::Run,
                format!("the run did not begin: {error:#}"),
            )],
            made: 0,
            grants: 0,
            losses: 0,
            took: Duration::ZERO,
            seen: Seen::default(),
            stall: Duration::ZERO,
            files: None,
        }
    }
}
