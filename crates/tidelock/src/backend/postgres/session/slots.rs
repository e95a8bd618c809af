//! Records which ticket of this process has which lock of the session. The server cannot tell: it grants a lock again
//! to the session that already has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Moment, Name, OwnerId, Ticket};

/// One advisory lock of the server. Names with the same key share a slot, so they exclude each other.
#[derive(Default)]
pub(super) struct Slot {
    /// Held from an attempt or a release to its answer, so that these never overlap.
    pub(super) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// What we know about the lock.
#[derive(Clone, Default)]
pub(super) enum State {
    /// No ticket of this process has it.
    #[default]
    Free,
    /// Held until `ends`. This process must release it then: the server knows no leases.
    Held { ticket: Ticket, ends: Moment },
    /// An attempt or a release has no answer yet. If none arrives, the background task releases the lock at `by`.
    Unclear {
        owner: OwnerId,
        /// The owner held the lock before the request.
        held: bool,
        by: Moment,
    },
}

impl Slot {
    pub(super) fn get(&self) -> State {
        self.state().clone()
    }

    pub(super) fn set(&self, state: State) {
        *self.state() = state;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extends the owner's lease to `until`; never shortens it. `false`: the owner does not hold the lock.
    pub(super) fn extend(&self, owner: &OwnerId, now: Moment, until: Moment) -> bool {
        match &mut *self.state() {
            State::Held { ticket, ends } if ticket.owner == *owner && *ends > now => {
                *ends = until.max(*ends);
                true
            }
            _ => false,
        }
    }

    /// Marks the lock as unclear before a release, if `is_meant` accepts its state. Returns whether it was held;
    /// `None`: there is nothing to release.
    pub(super) fn begin_end(&self, is_meant: impl Fn(&State) -> bool, by: Moment) -> Option<bool> {
        let mut state = self.state();
        if !is_meant(&state) {
            return None;
        }
        let (owner, held) = match &*state {
            State::Free => return None,
            State::Held { ticket, .. } => (ticket.owner.clone(), true),
            State::Unclear { owner, held, .. } => (owner.clone(), *held),
        };
        *state = State::Unclear { owner, held, by };
        Some(held)
    }
}

impl State {
    /// The owner has the lock, or may have it.
    pub(super) fn is_of(&self, of: &OwnerId) -> bool {
        match self {
            Self::Free => false,
            Self::Held { ticket, .. } => ticket.owner == *of,
            Self::Unclear { owner, .. } => owner == of,
        }
    }

    /// When the background task must release it.
    pub(super) fn due(&self) -> Moment {
        match self {
            Self::Free => Moment::FAR,
            Self::Held { ends, .. } => *ends,
            Self::Unclear { by, .. } => *by,
        }
    }
}

/// All slots of a session, by key.
#[derive(Default)]
pub(super) struct Slots(Mutex<HashMap<i64, Arc<Slot>>>);

impl Slots {
    fn all(&self) -> MutexGuard<'_, HashMap<i64, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn slot(&self, key: i64) -> Arc<Slot> {
        Arc::clone(self.all().entry(key).or_default())
    }

    pub(super) fn find(&self, key: i64) -> Option<Arc<Slot>> {
        self.all().get(&key).cloned()
    }

    pub(super) fn is_in_use(&self, key: i64) -> bool {
        self.all().contains_key(&key)
    }

    /// Removes the slot if it is free and no other task uses it.
    pub(super) fn tidy(&self, key: i64, slot: &Arc<Slot>) {
        let mut all = self.all();
        // We count under the lock of the map, so no other task can get a clone meanwhile. Two: the map's and ours.
        if matches!(slot.get(), State::Free) && Arc::strong_count(slot) == 2 {
            all.remove(&key);
        }
    }

    /// When the first slot is due.
    pub(super) fn next_due(&self) -> Moment {
        let all = self.all();
        let due = all.values().map(|slot| slot.get().due());
        due.min().unwrap_or(Moment::FAR)
    }

    /// The slots that are due.
    pub(super) fn due(&self, now: Moment) -> Vec<(i64, Arc<Slot>)> {
        let all = self.all();
        let due = all.iter().filter(|(_, slot)| slot.get().due() <= now);
        due.map(|(key, slot)| (*key, Arc::clone(slot))).collect()
    }

    /// The names of all held locks.
    pub(super) fn names(&self) -> Vec<Name> {
        let all = self.all();
        let names = all.values().filter_map(|slot| match slot.get() {
            State::Held { ticket, .. } => Some(ticket.name),
            _ => None,
        });
        names.collect()
    }
}
