//! Who of this process has which lock of a session. The server would give a lock again to the session that has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Moment, Name, OwnerId, Ticket};

/// One lock of the server. Names that have the same key share it: they exclude each other.
#[derive(Default)]
pub(super) struct Slot {
    /// Whoever asks the server about it has this, from the question to its answer.
    pub(super) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// What is known of it.
#[derive(Clone, Default)]
pub(super) enum State {
    /// Nobody of this process has it.
    #[default]
    Free,
    /// Until the lease ends, which this process has to see to.
    Held { ticket: Ticket, ends: Moment },
    /// It was asked for or given back, and there is no answer yet. To be given back, at that time at the latest.
    Unclear {
        owner: OwnerId,
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

    /// Gives a hold of that owner at least this long. False: it holds nothing.
    pub(super) fn extend(&self, owner: &OwnerId, now: Moment, until: Moment) -> bool {
        match &mut *self.state() {
            State::Held { ticket, ends } if ticket.owner == *owner && *ends > now => {
                *ends = until.max(*ends);
                true
            }
            _ => false,
        }
    }

    /// It is about to be given back, if that is so of it.
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
    pub(super) fn is_of(&self, of: &OwnerId) -> bool {
        match self {
            Self::Free => false,
            Self::Held { ticket, .. } => ticket.owner == *of,
            Self::Unclear { owner, .. } => owner == of,
        }
    }

    /// When somebody has to see to it.
    pub(super) fn due(&self) -> Moment {
        match self {
            Self::Free => Moment::FAR,
            Self::Held { ends, .. } => *ends,
            Self::Unclear { by, .. } => *by,
        }
    }
}

/// All of a session.
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

    /// Forgets it if nobody has it and nobody asks for it.
    pub(super) fn tidy(&self, key: i64, slot: &Arc<Slot>) {
        let mut all = self.all();
        // Counted under the lock under which others would get one.
        if matches!(slot.get(), State::Free) && Arc::strong_count(slot) == 2 {
            all.remove(&key);
        }
    }

    /// When the first of them is due.
    pub(super) fn next_due(&self) -> Moment {
        let all = self.all();
        let due = all.values().map(|slot| slot.get().due());
        due.min().unwrap_or(Moment::FAR)
    }

    pub(super) fn due(&self, now: Moment) -> Vec<(i64, Arc<Slot>)> {
        let all = self.all();
        let due = all.iter().filter(|(_, slot)| slot.get().due() <= now);
        due.map(|(key, slot)| (*key, Arc::clone(slot))).collect()
    }

    /// The names that are held.
    pub(super) fn names(&self) -> Vec<Name> {
        let all = self.all();
        let names = all.values().filter_map(|slot| match slot.get() {
            State::Held { ticket, .. } => Some(ticket.name),
            _ => None,
        });
        names.collect()
    }
}
