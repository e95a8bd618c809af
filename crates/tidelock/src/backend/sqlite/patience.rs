//! How long a thread waits for other processes that use the lock file.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::backend::chance;

thread_local! {
    /// Until when the busy handler of this thread's connection goes on trying.
    static PATIENCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// For how long the next requests of this thread may wait for other processes.
pub(super) fn be_patient_for(time: Duration) {
    PATIENCE.set(Instant::now().checked_add(time));
}

/// How much of it is left. `None`: nothing.
fn left() -> Option<Duration> {
    let left = PATIENCE.get()?.checked_duration_since(Instant::now())?;
    (!left.is_zero()).then_some(left)
}

/// Sleeps that long, but no longer than there is patience. False: there is none.
fn sleep(step: Duration) -> bool {
    let left = left();
    if let Some(left) = left {
        std::thread::sleep(step.min(left));
    }
    left.is_some()
}

/// Called by SQLite while another process writes. Its own handler sleeps up to 100 ms at a time, far longer than a write takes.
pub(super) fn still_busy(tries: i32) -> bool {
    sleep(Duration::from_micros(100 << tries.clamp(0, 4)))
}

/// Waits a little for other processes that open or leave the file. The steps grow further than those above, because a
/// thousand processes may open one file at the same time. False: the time is over.
pub(super) fn pause(tries: u32) -> bool {
    let step = Duration::from_micros(200 << tries.min(7));
    sleep(step.mul_f64(0.5 + chance::share() / 2.0))
}
