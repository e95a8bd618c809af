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
