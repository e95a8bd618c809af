//! Helpers for the tests of the guarantees on real servers.

pub mod entering;
pub mod machine;
pub mod shares;
pub mod waiting;

use std::time::Duration;

/// The boot clock: the only clock that a test, its tasks and its child processes can compare.
pub fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither part is ever negative on this clock.
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
