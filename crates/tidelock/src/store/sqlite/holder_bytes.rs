//! Shows the other processes which locks this client holds, so that a release wakes the first waiting process: see
//! [`queue`](crate::store::sqlite::queue).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::sqlite::byte_locks::ByteLocks;
use crate::store::sqlite::queue_place::NameBytes;
use crate::types::OwnerId;

/// Bounds the shown locks, because the kernel keeps them in a linear list. The first waiter of a lock that is not shown
/// checks the file every few milliseconds instead.
const MAX_NAMES: usize = 256;
/// Bounds the retries of a lock call: the first process of the queue may lock the byte for a moment between its wake
/// and its attempt.
const MAX_BYTE_TRIES: u32 = 20;

#[derive(Debug)]
pub(crate) struct HolderBytes {
    lock: PathBuf,
    inner: Mutex<HolderBytesInner>,
}

#[derive(Debug, Default)]
struct HolderBytesInner {
    ranges: Option<ByteLocks>,
    /// The owner of each shown lock.
    held: HashMap<i64, OwnerId>,
}

impl HolderBytes {
    pub(crate) fn beside(lock: &Path) -> Self {
        Self {
            lock: lock.to_owned(),
            inner: Mutex::default(),
        }
    }

    /// Shows that this owner of this client holds the lock.
    pub(crate) fn show(&self, name: &str, owner: &OwnerId) {
        let mut inner = self.lock();
        let HolderBytesInner { ranges, held } = &mut *inner;
        // We open `-lock` on first use, because it may not exist when the client starts.
        if ranges.is_none() {
            *ranges = ByteLocks::on(&self.lock).ok();
        }
        let byte = NameBytes::of(name).held;
        // The byte may still be that of an owner whose lease has ended. Then it must become that of this one, also if
        // there is no room for another: otherwise nothing would unlock it.
        let has_room = held.len() < MAX_NAMES || held.contains_key(&byte);
        let Some(ranges) = ranges.as_ref().filter(|_| has_room) else {
            return;
        };
        for _ in 0..MAX_BYTE_TRIES {
            if ranges.try_lock(byte).unwrap_or(false) {
                held.insert(byte, owner.clone());
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Shows that this owner no longer holds the lock. If another owner of this client holds it, as when a waiter for the
    /// fair lock of this name gives up, nothing changes. Otherwise the first waiting process would be woken for nothing.
    pub(crate) fn hide(&self, name: &str, owner: &OwnerId) {
        let mut inner = self.lock();
        let byte = NameBytes::of(name).held;
        if inner.held.get(&byte) != Some(owner) {
            return;
        }
        inner.held.remove(&byte);
        if let Some(ranges) = &inner.ranges {
            ranges.unlock(byte);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HolderBytesInner> {
        self.inner.lock()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    #[test]
    fn so_many_locks_are_shown_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x-lock");
        std::fs::write(&file, "").unwrap();
        let (own, others) = (HolderBytes::beside(&file), ByteLocks::on(&file).unwrap());
        let is_shown = |number: usize| {
            let byte = NameBytes::of(&number.to_string()).held;
            others.is_taken(byte)
        };
        let (owner, later) = (OwnerMint::new().fresh(), OwnerMint::new().fresh());
        for number in 0..=MAX_NAMES {
            own.show(&number.to_string(), &owner);
        }
        assert!(is_shown(0) && is_shown(MAX_NAMES - 1));
        assert!(!is_shown(MAX_NAMES));
        own.show("0", &later);
        own.hide("0", &owner);
        assert!(is_shown(0), "it is that of the later owner");
        own.hide("0", &later);
        assert!(!is_shown(0));
        own.show(&MAX_NAMES.to_string(), &owner);
        assert!(is_shown(MAX_NAMES), "there is room again");
    }
}
