//! What the checkers may expect of a store in a story.

use std::time::Duration;

use super::Story;
use crate::check::Terms;
use crate::store::Store;

/// How long after the lease of a vanished holder a store may take to grant the lock again.
pub(super) fn grace(store: Store) -> Duration {
    match store {
        // These stores count in whole seconds and check for expired leases only at intervals.
        Store::Etcd => Duration::from_secs(2),
        Store::Memcached => Duration::from_secs(3),
        // Sessions end at a tick.
        Store::Zookeeper => Duration::from_millis(500),
        _ => Duration::from_millis(100),
    }
}

pub(super) fn terms(store: Store, story: &Story, lease: Duration) -> Terms {
    let wake = Duration::from_millis(if store.wakes() { 50 } else { 150 });
    Terms {
        lease,
        grace: grace(store),
        told_within: lease / 3 + Duration::from_millis(500),
        keeps: story.keeps,
        typical_wake: story.calm.then_some(wake),
        short_waits: story.eager,
        tokens: store.has_tokens(),
        queues: store.queues(),
    }
}
