//! The leader term of a hold, and the local queues as the rooms below them see them.

use crate::engine::runtime::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::store::{Awaited, BootInstant, Name};

/// The local queues of one store. They lie above the holds and the steward, which know them only by this trait.
pub(crate) trait Queues: fmt::Debug + Send + Sync {
    /// The store has freed a lock of this process. `trip` is how long the release took. `kept` is how long the lock was
    /// held, for a hold without a leader term.
    fn freed(&self, name: &Name, awaited: Awaited, trip: Duration, kept: Duration);

    /// Ends the leader term with that number, and calls the next waiter to lead. Does nothing if it has ended before.
    fn end_term(&self, name: &Name, number: u64);

    /// When the steward calls [`check_stalled`](Self::check_stalled) next. `FAR`: no waiter.
    fn next_check(&self) -> BootInstant;

    /// Acts on each queue that has made no progress for too long.
    fn check_stalled(&self, now: BootInstant);
}

/// The leader term of a hold: waiters of this process may get the hold by hand-off. Its owner is the hold, then the
/// release of the hold. The status has a weak reference, so that a loss ends the term too.
///
/// [`end`](Self::end) it after the store was asked to release the hold: that calls the next waiter to lead, whose
/// attempt must come after the release. A drop ends it too, for a release that is cancelled.
#[derive(Debug)]
pub(crate) struct LeaderTerm {
    queues: Arc<dyn Queues>,
    name: Name,
    /// No two terms have the same number. 0: ended.
    number: AtomicU64,
}

impl LeaderTerm {
    pub(crate) fn new(queues: Arc<dyn Queues>, name: Name, number: u64) -> Arc<Self> {
        Arc::new(Self {
            queues,
            name,
            number: AtomicU64::new(number),
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Ends the term and calls the next waiter to lead. Does nothing if the term has ended before.
    pub(crate) fn end(&self) {
        let number = self.number.swap(0, Ordering::SeqCst);
        if number != 0 {
            self.queues.end_term(&self.name, number);
        }
    }
}

/// Ends the leader term of a hold, if it has one.
pub(crate) fn end(term: Option<Arc<LeaderTerm>>) {
    if let Some(term) = term {
        term.end();
    }
}

impl Drop for LeaderTerm {
    fn drop(&mut self) {
        self.end();
    }
}
