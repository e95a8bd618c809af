//! Measures how busy the machine is, independently of the stores: how much later than planned a fixed piece of work is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use testkit::process::boot_time;

/// The size of the piece of work: some milliseconds of a core.
const WORK: u32 = 2_000_000;

/// The pause between two measurements.
const PAUSE: Duration = Duration::from_millis(200);

/// The measurements of a storm.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// The end of each measurement, and the time that it took besides the pause before it.
    seen: Mutex<Vec<(Duration, Duration)>>,
    stop: AtomicBool,
}

impl Gauge {
    /// Measures until [`stop`](Self::stop) is called.
    pub(super) fn run(&self) {
        let mut rng = Rng::with_seed(1);
        while !self.stop.load(Ordering::Relaxed) {
            let from = boot_time();
            // A machine that stands still may do so now.
            thread::sleep(PAUSE);
            for _ in 0..WORK {
                std::hint::black_box(rng.u64(..));
            }
            let to = boot_time();
            self.seen().push((to, to.saturating_sub(from + PAUSE)));
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The longest time that the work took in this period.
    pub(super) fn longest(&self, from: Duration, to: Duration) -> Duration {
        let seen = self.seen();
        let within = seen
            .iter()
            .filter(|(end, length)| *end >= from && end.saturating_sub(*length) <= to);
        let complete = within.map(|(_, length)| *length).max().unwrap_or_default();
        // The measurement that is under way.
        let begun = seen.last().map_or(to, |(end, _)| *end);
        complete.max(to.saturating_sub(begun + PAUSE))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<(Duration, Duration)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
