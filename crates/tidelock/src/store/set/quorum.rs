//! The settings of a majority, and the longest lease that a member may have to remember.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The settings of a majority.
#[derive(Debug)]
pub(crate) struct Quorum {
    /// How long we wait for one server.
    pub(crate) node_timeout: Duration,
    /// A server votes only after it has been up for the longest lease. Otherwise it may have forgotten a lock that it
    /// granted.
    pub(crate) restart_guard: bool,
    /// The longest lease that was ever requested, in nanoseconds.
    longest_lease: AtomicU64,
}

impl Quorum {
    pub(crate) fn new(
        node_timeout: Duration,
        restart_guard: bool,
        longest_lease: Duration,
    ) -> Self {
        let quorum = Self {
            node_timeout,
            restart_guard,
            longest_lease: AtomicU64::new(0),
        };
        quorum.note_lease(longest_lease);
        quorum
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_nanos(self.longest_lease.load(Ordering::SeqCst))
    }

    pub(crate) fn note_lease(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.longest_lease.fetch_max(nanos, Ordering::SeqCst);
    }
}
