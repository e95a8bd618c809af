//! What the engine needs from its surroundings: the clock, timers, wakes, the background thread, backoff and jitter.
//!
//! Nothing here knows locks, and nothing here names a room above.

pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod id_hasher;
pub(crate) mod in_flight;
pub(crate) mod poll_pace;
pub(crate) mod retry;
pub(crate) mod running_time;
#[cfg(schedules = "shuttle")]
pub(crate) mod scheduled;
pub(crate) mod sync;
pub(crate) mod timer_queue;
pub(crate) mod timers;
pub(crate) mod wakers;
pub(crate) mod wakes;
