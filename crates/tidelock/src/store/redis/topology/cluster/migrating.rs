//! The slots that migrate, as far as redirections show it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::store::BootInstant;

/// How long after an `ASK` a slot counts as migrating. Renewals of long leases ask seldom; a slot that is forgotten too
/// early only joins the batch of its node once more.
const LASTS: Duration = Duration::from_secs(30);

/// The slots whose requests were sent on with `ASK` a short while ago. There are at most as many as a cluster has slots.
#[derive(Debug, Default)]
pub(crate) struct MigratingSlots {
    /// When a slot was last sent on.
    seen: Mutex<HashMap<u16, BootInstant>>,
    /// Whether `seen` has an entry. Usually it has none; this flag saves each look the mutex.
    any: AtomicBool,
}

impl MigratingSlots {
    pub(crate) fn add(&self, slot: u16, now: BootInstant) {
        let mut seen = self.seen.lock();
        seen.insert(slot, now);
        self.any.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has(&self, slot: u16, now: BootInstant) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut seen = self.seen.lock();
        seen.retain(|_, at| now.since(*at) < LASTS);
        self.any.store(!seen.is_empty(), Ordering::SeqCst);
        seen.contains_key(&slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_migrates_for_a_while_after_it_was_sent_on() {
        let (slots, begun) = (MigratingSlots::default(), BootInstant(0));
        assert!(!slots.has(7, begun));
        slots.add(7, begun);
        assert!(slots.has(7, begun) && !slots.has(8, begun));
        slots.add(8, begun + LASTS / 2);
        assert!(!slots.has(7, begun + LASTS) && slots.has(8, begun + LASTS));
        assert!(!slots.has(8, begun + LASTS * 2));
        assert!(slots.seen.lock().is_empty());
    }
}
