//! Poisoned tickets: we released their grant, and the reply to the release did not arrive.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::store::OwnerId;

/// The most poisoned tickets, more than are ever in flight at a time. At the limit we clear the set, so that it cannot
/// grow without bound.
const MAX_POISONED: usize = 1000;

/// A ticket stays until the acquire loop asks for it, which is after the attempt. The loop then withdraws the ticket
/// and does not try again with it. Otherwise the release, still in flight on one connection, could arrive after the
/// same ticket was granted again on another. It would end that grant, and the holder would not notice.
#[derive(Debug, Default)]
pub(crate) struct PoisonedTickets {
    owners: Mutex<HashSet<OwnerId>>,
    /// The number of tickets. Every attempt reads this first, and it is almost always zero, so most attempts take no
    /// lock.
    count: AtomicUsize,
}

impl PoisonedTickets {
    pub(crate) fn note(&self, owner: &OwnerId) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // A quorum has an in-doubt log of its own and does not ask each member, so some tickets are never taken.
        if owners.len() >= MAX_POISONED {
            owners.clear();
        }
        owners.insert(owner.clone());
        self.count.store(owners.len(), Ordering::SeqCst);
    }

    /// Whether this ticket is poisoned. Removes it.
    pub(crate) fn take(&self, owner: &OwnerId) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let known = owners.remove(owner);
        self.count.store(owners.len(), Ordering::SeqCst);
        known
    }
}
