//! Limits how long a thread waits for other processes that use the lock file.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::store::jitter;

thread_local! {
    /// The instant at which the busy handler of this thread's connection stops retrying.
    static PATIENCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets how long the next requests of this thread may wait for other processes.
pub(crate) fn be_patient_for(time: Duration) {
    PATIENCE.set(Instant::now().checked_add(time));
}

/// The time left. `None`: no time is left.
fn left() -> Option<Duration> {
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

/// The busy handler, which SQLite calls while another process writes. SQLite's own handler sleeps up to 100 ms at a
/// time, far longer than a write takes.
pub(crate) fn still_busy(tries: i32) -> bool {
    sleep(Duration::from_micros(100 << tries.clamp(0, 4)))
}

/// Backs off, with jitter, while other processes open or leave the file. The steps grow further than those of the busy
/// handler, because a thousand processes may open one file at the same time. Returns false if no time is left.
pub(crate) fn pause(tries: u32) -> bool {
    let step = Duration::from_micros(200 << tries.min(7));
    sleep(step.mul_f64(0.5 + jitter::share() / 2.0))
}
