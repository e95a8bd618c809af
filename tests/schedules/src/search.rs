//! Runs a story in many schedules.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

use crate::story::Story;

/// How many times the priorities change.
const DEPTH: usize = 3;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// How many schedules.
    pub schedules: usize,
    /// Where the randomness begins.
    pub seed: u64,
}

/// Runs the story in that many schedules. In half of them the tasks have priorities that change a few times (PCT), which
/// finds what needs one task to be slow for long; the other half chooses each step at random. Returns how many ran, and
/// how long that took.
///
/// # Panics
/// If a schedule fails. It is printed before, and [`replay`] runs it again.
pub fn explore(story: Story, search: Search) -> (usize, Duration) {
    let start = Instant::now();
    let half = search.schedules.div_ceil(2);
    let priorities = run(story, PctScheduler::new_from_seed(search.seed, DEPTH, half));
    let random = run(story, RandomScheduler::new_from_seed(search.seed, half));
    (priorities + random, start.elapsed())
}

/// Runs one schedule again, as it was printed.
///
/// # Panics
/// As it did before.
pub fn replay(story: Story, schedule: &str) {
    run(story, ReplayScheduler::new_from_encoded(schedule));
}

/// How many schedules have begun, in all stories of this process.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// How many schedules have begun in this process: after a failure, its number.
pub fn begun() -> usize {
    BEGUN.load(Ordering::Relaxed)
}

fn run(story: Story, scheduler: impl Scheduler + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        BEGUN.fetch_add(1, Ordering::Relaxed);
        story.run();
    })
}
