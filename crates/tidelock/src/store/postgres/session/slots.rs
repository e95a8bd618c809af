//! Records which ticket of this process has which lock of the session. The server cannot tell: it grants a lock again
//! to the session that already has it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::{BootInstant, Name, OwnerId, Ticket};

/// One advisory lock of the server. Names with the same key share a slot, so they exclude each other.
#[derive(Default)]
pub(crate) struct ServerLock {
    /// Held from an attempt or a release to its answer, so that these never overlap.
    pub(crate) turn: tokio::sync::Mutex<()>,
    state: Mutex<ServerLockState>,
}

/// What we know about the lock.
#[derive(Clone, Default)]
pub(crate) enum ServerLockState {
    /// No ticket of this process has it.
    #[default]
    Free,
    /// Held until `ends`. This process must release it then: the server knows no leases.
    Held { ticket: Ticket, ends: BootInstant },
    /// An attempt or a release has no answer yet, or has failed on the server. The background task releases the lock at
    /// `by`, unless an answer arrives before.
    Unclear {
        owner: OwnerId,
        /// The owner held the lock before the request.
        held: bool,
        by: BootInstant,
    },
}

impl ServerLock {
    pub(crate) fn get(&self) -> ServerLockState {
        self.state().clone()
    }

    pub(crate) fn set(&self, state: ServerLockState) {
        *self.state() = state;
    }

    fn state(&self) -> MutexGuard<'_, ServerLockState> {
        self.state.lock()
    }

    /// Extends the owner's lease to `until`; never shortens it. `false`: the owner does not hold the lock.
    pub(crate) fn extend(&self, owner: &OwnerId, now: BootInstant, until: BootInstant) -> bool {
        match &mut *self.state() {
            ServerLockState::Held { ticket, ends } if ticket.owner == *owner && *ends > now => {
                *ends = until.max(*ends);
                true
            }
            _ => false,
        }
    }

    /// Marks the lock as unclear before a release, if `is_meant` accepts its state. Returns whether it was held;
    /// `None`: there is nothing to release.
    pub(crate) fn begin_end(
        &self,
        is_meant: impl Fn(&ServerLockState) -> bool,
        by: BootInstant,
    ) -> Option<bool> {
        let mut state = self.state();
        if !is_meant(&state) {
            return None;
        }
        let (owner, held) = match &*state {
            ServerLockState::Free => return None,
            ServerLockState::Held { ticket, .. } => (ticket.owner.clone(), true),
            ServerLockState::Unclear { owner, held, .. } => (owner.clone(), *held),
        };
        *state = ServerLockState::Unclear { owner, held, by };
        Some(held)
    }
}

impl ServerLockState {
    /// The owner has the lock, or may have it.
    pub(crate) fn is_of(&self, of: &OwnerId) -> bool {
        match self {
            Self::Free => false,
            Self::Held { ticket, .. } => ticket.owner == *of,
            Self::Unclear { owner, .. } => owner == of,
        }
    }

    /// When the background task must release it.
    pub(crate) fn due(&self) -> BootInstant {
        match self {
            Self::Free => BootInstant::FAR,
            Self::Held { ends, .. } => *ends,
            Self::Unclear { by, .. } => *by,
        }
    }
}

/// All slots of a session, by key.
#[derive(Default)]
pub(crate) struct ServerLocks(Mutex<HashMap<i64, Arc<ServerLock>>>);

impl ServerLocks {
    fn all(&self) -> MutexGuard<'_, HashMap<i64, Arc<ServerLock>>> {
        self.0.lock()
    }

    pub(crate) fn slot(&self, key: i64) -> Arc<ServerLock> {
        Arc::clone(self.all().entry(key).or_default())
    }

    pub(crate) fn find(&self, key: i64) -> Option<Arc<ServerLock>> {
        self.all().get(&key).cloned()
    }

    pub(crate) fn is_in_use(&self, key: i64) -> bool {
        self.all().contains_key(&key)
    }

    /// Removes the slot if it is free and no other task uses it.
    pub(crate) fn tidy(&self, key: i64, slot: &Arc<ServerLock>) {
        let mut all = self.all();
        // We count under the lock of the map, so no other task can get a clone meanwhile. Two: the map's and ours.
        if matches!(slot.get(), ServerLockState::Free) && Arc::strong_count(slot) == 2 {
            all.remove(&key);
        }
    }

    /// When the first slot is due.
    pub(crate) fn next_due(&self) -> BootInstant {
        let all = self.all();
        let due = all.values().map(|slot| slot.get().due());
        due.min().unwrap_or(BootInstant::FAR)
    }

    /// The slots that are due.
    pub(crate) fn due(&self, now: BootInstant) -> Vec<(i64, Arc<ServerLock>)> {
        let all = self.all();
        let due = all.iter().filter(|(_, slot)| slot.get().due() <= now);
        due.map(|(key, slot)| (*key, Arc::clone(slot))).collect()
    }

    /// The names of all held locks.
    pub(crate) fn names(&self) -> Vec<Name> {
        let all = self.all();
        let names = all.values().filter_map(|slot| match slot.get() {
            ServerLockState::Held { ticket, .. } => Some(ticket.name),
            _ => None,
        });
        names.collect()
    }
}
