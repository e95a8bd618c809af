//! Tests of which waiters use the local queue, and a store in memory for the tests of other modules.

use super::*;
use crate::store::{Background, Clock, Env, memory};

/// A store in memory whose limits are all this long.
pub(crate) fn in_memory(
    timers: &Timers,
    background: &Background,
    limit: Duration,
) -> Arc<StoreHandle> {
    let env = Env::of_limits(timers.clone(), background.clone(), limit);
    let store = memory::open("", memory::CAPABILITIES, None, &env).unwrap();
    let health = Arc::new(StoreHealth::new(timers.clock(), None));
    StoreHandle::new(store, None, None, health)
}

/// Such a waiter has no local queue, so nothing is handed on to it.
#[tokio::test(start_paused = true)]
async fn only_a_store_with_queues_takes_waiters_for_permits_out_of_the_local_queue() {
    let clock = Clock::Simulated;
    let (background, _stop) = Background::start(clock).unwrap();
    let store = in_memory(&Timers::new(clock), &background, Duration::from_secs(30));
    for kind in [LockKind::Mutex, LockKind::Permits(1)] {
        assert!(!store.queues_in_store(kind), "{kind:?}");
    }
}
