//! At most one upgrade of an upgradeable hold at a time. Guards of one hold may be shared, and the store would grant their
//! upgrades one after the other: the second writer would overwrite what the first one has written since both have read.

use std::sync::{Arc, Weak};

use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::sync::Mutex;
use crate::store::LockKind;

/// The upgrade of one hold that waits, and the writer that one has become. Both are weak: an upgrade whose caller has left
/// no longer counts, although its request may still be in flight.
#[derive(Debug, Default)]
pub(crate) struct UpgradeSlot(Mutex<UpgradeStatus>);

#[derive(Debug, Default)]
struct UpgradeStatus {
    caller: Weak<()>,
    writer: Weak<HoldStatus>,
}

impl UpgradeSlot {
    /// Only an upgradeable hold has one. Every other hold would be 24 bytes larger for nothing.
    pub(crate) fn of(kind: LockKind) -> Option<Box<Self>> {
        kind.is_upgradeable().then(Box::default)
    }

    /// Begins the upgrade of this caller. False: that of another one waits, or its writer holds the lock.
    pub(crate) fn begin(&self, caller: &Weak<()>) -> bool {
        let mut used = self.0.lock();
        let waits = used.caller.strong_count() > 0 && !used.caller.ptr_eq(caller);
        let writer = used.writer.upgrade();
        if waits || writer.is_some_and(|writer| writer.refusal().is_none()) {
            return false;
        }
        used.caller = Weak::clone(caller);
        true
    }

    /// The upgrade of this caller has become a writer. If the caller has left, another upgrade may have begun since.
    pub(crate) fn granted(&self, caller: &Weak<()>, writer: &Arc<HoldStatus>) {
        let mut used = self.0.lock();
        if used.caller.ptr_eq(caller) {
            used.writer = Arc::downgrade(writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::lease::granted::GrantedTicket;
    use crate::store::{Clock, Name};

    fn writer() -> Arc<HoldStatus> {
        let lease = Duration::from_secs(60);
        let granted = GrantedTicket::of(Name::new("a").unwrap(), lease);
        let until = Clock::Boot.now() + lease;
        Arc::new(HoldStatus::new(granted, until, Clock::Boot))
    }

    #[test]
    fn an_upgrade_begins_when_no_other_waits() {
        let slot = UpgradeSlot::default();
        let (one, other) = (Arc::new(()), Arc::new(()));
        let begin = |caller: &Arc<()>| slot.begin(&Arc::downgrade(caller));
        assert!(begin(&one));
        assert!(begin(&one), "its own");
        assert!(!begin(&other));
        drop(one);
        assert!(begin(&other), "the first caller has left");
    }

    #[test]
    fn no_upgrade_begins_while_a_writer_holds_the_lock() {
        let slot = UpgradeSlot::default();
        let (gone, one, other) = (Arc::new(()), Arc::new(()), Arc::new(()));
        assert!(slot.begin(&Arc::downgrade(&gone)));
        let late = Arc::downgrade(&gone);
        drop(gone);
        assert!(slot.begin(&Arc::downgrade(&one)));
        let (of_gone, writer) = (writer(), writer());
        slot.granted(&late, &of_gone);
        assert!(slot.begin(&Arc::downgrade(&one)), "that one has left");
        slot.granted(&Arc::downgrade(&one), &writer);
        drop(one);
        assert!(!slot.begin(&Arc::downgrade(&other)));
        writer.end();
        assert!(slot.begin(&Arc::downgrade(&other)));
    }

    #[test]
    fn only_an_upgradeable_hold_has_a_slot() {
        assert!(UpgradeSlot::of(LockKind::UpgradeableRead).is_some());
        assert!(UpgradeSlot::of(LockKind::Read).is_none());
    }
}
