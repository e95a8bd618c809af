//! Tickets whose grant was given back without an answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::backend::OwnerId;

/// More than are ever under way at a time: a limit, so that it cannot grow without end.
const MOST: usize = 1000;

/// Each until it has been asked for once. A release that was on its way when its caller gave up may arrive after the
/// same ticket has been granted again, on another connection: it would end that grant, and its holder would go on.
#[derive(Debug, Default)]
pub(in super::super) struct Undoing {
    owners: Mutex<HashSet<OwnerId>>,
    /// How many there are: every question looks, and hardly ever there is one.
    count: AtomicUsize,
}

impl Undoing {
    pub(super) fn note(&self, owner: &OwnerId) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Sets of stores keep books of their own and do not ask.
        if owners.len() >= MOST {
            owners.clear();
        }
        owners.insert(owner.clone());
        self.count.store(owners.len(), Ordering::SeqCst);
    }

    /// Whether this ticket is not to be asked again.
    pub(in super::super) fn take(&self, owner: &OwnerId) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let known = owners.remove(owner);
        self.count.store(owners.len(), Ordering::SeqCst);
        known
    }
}
