//! The fault of a run, and what it may do to the locks.

use std::fmt;

use anyhow::Result;

use crate::stage::Stage;
use crate::worker::{Library, Lie};
use crate::world::On;

/// The fault of a run, and its permitted effects.
#[derive(Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what is said of a story, not a state"
)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) act: fn(&mut Stage) -> Result<()>,
    /// Whether the fault must lose no lock.
    pub(crate) keeps: bool,
    /// Whether locks change holders as quickly as without the fault.
    pub(crate) calm: bool,
    /// Whether the processes run on a wall clock that the story can move.
    pub(crate) fake_clock: bool,
    /// If not 0: the number of tasks per process that all want one lock, instead of the usual tasks.
    pub(crate) crowd: u32,
    pub(crate) on: On,
    /// Whether all replicas must acknowledge a grant. Otherwise any one is enough.
    pub(crate) all_replicas: bool,
    /// Whether a server of a majority votes only after it has been up for a lease. The servers of a run have just started empty,
    /// so it only delays the run, unless one of them forgets its locks later.
    pub(crate) restart_guard: bool,
    /// Whether the tasks that hold for long ask for a lock in short waits.
    pub(crate) eager: bool,
    /// The library that takes the locks. Nothing is promised of another than ours.
    pub(crate) library: Library,
    /// The promise that the processes break on purpose.
    pub(crate) lie: Lie,
}

impl Story {
    /// A story that may lose locks.
    pub(crate) const fn new(name: &'static str, act: fn(&mut Stage) -> Result<()>) -> Self {
        Self {
            name,
            act,
            keeps: false,
            calm: false,
            fake_clock: false,
            crowd: 0,
            on: On::Usual,
            all_replicas: false,
            restart_guard: false,
            eager: false,
            library: Library::Tidelock,
            lie: Lie::None,
        }
    }

    /// A story that must lose no lock.
    pub(crate) const fn keeping(name: &'static str, act: fn(&mut Stage) -> Result<()>) -> Self {
        let mut story = Self::new(name, act);
        story.keeps = true;
        story
    }

    /// The same story on another server of the store.
    pub(crate) const fn on(mut self, on: On) -> Self {
        self.on = on;
        self
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
