//! Limits how long a thread waits for other processes that use the lock file.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::engine::runtime::backoff::ExponentialBackoff;

/// The pauses while another process writes. SQLite's own handler sleeps up to 100 ms at a time, far longer than a write
/// takes.
const BUSY_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_micros(100), Duration::from_micros(1600));

/// The pauses while other processes open or leave the file. They grow further than those of the busy handler, because a
/// thousand processes may open one file at the same time.
const OPEN_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_micros(200), Duration::from_micros(25_600)).jitter(0.5);

thread_local! {
    /// The instant at which the busy handler of this thread's connection stops retrying.
    static PATIENCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets how long the next requests of this thread may wait for other processes.
pub(crate) fn be_patient_for(time: Duration) {
    PATIENCE.set(Instant::now().checked_add(time));
}

/// The time left. `None`: no time is left.
pub(crate) fn left() -> Option<Duration> {
    let left = PATIENCE.get()?.checked_duration_since(Instant::now())?;
    (!left.is_zero()).then_some(left)
}

/// Sleeps for `step`, but at most for the time left. Returns false if no time is left.
fn sleep(step: Duration) -> bool {
    let left = left();
    if let Some(left) = left {
        std::thread::sleep(step.min(left));
    }
    left.is_some()
}

/// The busy handler, which SQLite calls while another process writes. Returns false if no time is left.
pub(crate) fn still_busy(tries: i32) -> bool {
    sleep(BUSY_PAUSES.pause(tries.unsigned_abs()))
}

/// Pauses while other processes open or leave the file. Returns false if no time is left.
pub(crate) fn pause(tries: u32) -> bool {
    sleep(OPEN_PAUSES.pause(tries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_for_as_long_as_it_may() {
        let waits: [fn() -> bool; 2] = [|| still_busy(3), || pause(3)];
        for wait in waits {
            be_patient_for(Duration::ZERO);
            assert!(!wait(), "no time is left");
            let (begun, patience) = (Instant::now(), Duration::from_millis(20));
            be_patient_for(patience);
            assert!(wait());
            while wait() {}
            assert!(begun.elapsed() >= patience);
        }
    }
}
