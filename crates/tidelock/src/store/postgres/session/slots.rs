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

    /// Whether a ticket of this process holds a lock, or held it before a release that has no answer yet.
    pub(crate) fn has_holder(&self) -> bool {
        let all = self.all();
        all.values().any(|slot| match slot.get() {
            ServerLockState::Free => false,
            ServerLockState::Held { .. } => true,
            ServerLockState::Unclear { held, .. } => held,
        })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockKind;
    use crate::store::postgres::tests::ticket;

    const NOW: BootInstant = BootInstant(1_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    /// The state of a lock that this ticket holds.
    fn held(ticket: &Ticket, ends: BootInstant) -> ServerLockState {
        ServerLockState::Held {
            ticket: ticket.clone(),
            ends,
        }
    }

    /// The state of a lock of which this ticket had no answer. `held`: it held the lock before.
    fn unclear(ticket: &Ticket, held: bool, by: BootInstant) -> ServerLockState {
        ServerLockState::Unclear {
            owner: ticket.owner.clone(),
            held,
            by,
        }
    }

    /// A lock in this state.
    fn slot(state: ServerLockState) -> ServerLock {
        let slot = ServerLock::default();
        slot.set(state);
        slot
    }

    #[test]
    fn only_its_owner_extends_a_lease_that_has_not_ended_and_never_shortens_it() {
        let (own, other) = (ticket(LockKind::Mutex), ticket(LockKind::Mutex));
        let (later, latest) = (NOW + SECOND, NOW + SECOND * 2);
        for (state, until, extends, due) in [
            (held(&own, later), latest, true, latest),
            (held(&own, latest), later, true, latest),
            (held(&own, NOW), latest, false, NOW),
            (held(&other, later), latest, false, later),
            (unclear(&own, true, later), latest, false, later),
            (ServerLockState::Free, latest, false, BootInstant::FAR),
        ] {
            let slot = slot(state);
            assert_eq!(slot.extend(&own.owner, NOW, until), extends);
            assert_eq!(slot.get().due(), due);
        }
    }

    #[test]
    fn a_release_begins_only_for_a_lock_that_is_meant() {
        let (own, by) = (ticket(LockKind::Mutex), NOW + SECOND);
        for (state, is_meant, was_held) in [
            (held(&own, NOW), true, Some(true)),
            (held(&own, NOW), false, None),
            (unclear(&own, true, NOW), true, Some(true)),
            (unclear(&own, false, NOW), true, Some(false)),
            (ServerLockState::Free, true, None),
        ] {
            let slot = slot(state);
            let before = slot.get().due();
            assert_eq!(slot.begin_end(|_| is_meant, by), was_held);
            let after = if was_held.is_some() { by } else { before };
            assert_eq!(slot.get().due(), after);
            if let Some(was_held) = was_held {
                let state = slot.get();
                let is_unclear =
                    matches!(state, ServerLockState::Unclear { held, .. } if held == was_held);
                assert!(is_unclear && state.is_of(&own.owner));
            }
        }
    }

    #[test]
    fn a_lock_is_of_the_owner_that_has_it_or_may_have_it() {
        let (own, other) = (ticket(LockKind::Mutex), ticket(LockKind::Mutex));
        for (state, is_own) in [
            (held(&own, NOW), true),
            (unclear(&own, false, NOW), true),
            (held(&other, NOW), false),
            (unclear(&other, true, NOW), false),
            (ServerLockState::Free, false),
        ] {
            assert_eq!(state.is_of(&own.owner), is_own);
        }
    }

    #[test]
    fn the_locks_that_are_due_are_those_whose_time_has_come() {
        let (locks, own) = (ServerLocks::default(), ticket(LockKind::Mutex));
        assert_eq!(locks.next_due(), BootInstant::FAR);
        locks.slot(1).set(held(&own, NOW + SECOND * 2));
        locks.slot(2).set(unclear(&own, true, NOW + SECOND));
        locks.slot(3);
        assert_eq!(locks.next_due(), NOW + SECOND);
        let due = |now| {
            let mut keys: Vec<i64> = locks.due(now).into_iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(due(NOW), [0; 0]);
        assert_eq!(due(NOW + SECOND), [2]);
        assert_eq!(due(NOW + SECOND * 2), [1, 2]);
        // One that is unclear is not shown as held.
        assert_eq!(locks.names(), [own.name]);
    }

    #[test]
    fn a_lock_has_a_holder_until_its_release_is_answered() {
        let own = ticket(LockKind::Mutex);
        for (state, has_holder) in [
            (held(&own, NOW), true),
            (unclear(&own, true, NOW), true),
            (unclear(&own, false, NOW), false),
            (ServerLockState::Free, false),
        ] {
            let locks = ServerLocks::default();
            locks.slot(1);
            locks.slot(2).set(state);
            assert_eq!(locks.has_holder(), has_holder);
        }
    }

    #[test]
    fn only_a_free_lock_that_nobody_uses_is_forgotten() {
        let (locks, own) = (ServerLocks::default(), ticket(LockKind::Mutex));
        let slot = locks.slot(1);
        assert!(Arc::ptr_eq(&slot, &locks.slot(1)), "one lock for a key");
        let other = locks.find(1);
        locks.tidy(1, &slot);
        assert!(locks.is_in_use(1), "another task has it");
        drop(other);
        slot.set(held(&own, NOW));
        locks.tidy(1, &slot);
        assert!(locks.is_in_use(1), "it is held");
        slot.set(ServerLockState::Free);
        locks.tidy(1, &slot);
        assert!(!locks.is_in_use(1) && locks.find(1).is_none());
    }
}
