//! Shows the other processes which locks this client holds, so that a release wakes the first waiting process: see
//! [`queue`](crate::store::sqlite::queue).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::sqlite::byte_locks::ByteLocks;
use crate::store::sqlite::queue_place::NameBytes;

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
    held: HashSet<i64>,
}

impl HolderBytes {
    pub(crate) fn beside(lock: &Path) -> Self {
        Self {
            lock: lock.to_owned(),
            inner: Mutex::default(),
        }
    }

    /// Shows that this client holds the lock.
    pub(crate) fn show(&self, name: &str) {
        let mut inner = self.lock();
        let HolderBytesInner { ranges, held } = &mut *inner;
        // We open `-lock` on first use, because it may not exist when the client starts.
        if ranges.is_none() {
            *ranges = ByteLocks::on(&self.lock).ok();
        }
        let byte = NameBytes::of(name).held;
        let Some(ranges) = ranges.as_ref().filter(|_| held.len() < MAX_NAMES) else {
            return;
        };
        for _ in 0..MAX_BYTE_TRIES {
            if ranges.try_lock(byte).unwrap_or(false) {
                held.insert(byte);
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Shows that this client no longer holds the lock.
    pub(crate) fn hide(&self, name: &str) {
        let mut inner = self.lock();
        let byte = NameBytes::of(name).held;
        if inner.held.remove(&byte)
            && let Some(ranges) = &inner.ranges
        {
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
        for number in 0..=MAX_NAMES {
            own.show(&number.to_string());
        }
        assert!(is_shown(0) && is_shown(MAX_NAMES - 1));
        assert!(!is_shown(MAX_NAMES));
        own.hide("0");
        assert!(!is_shown(0));
        own.show(&MAX_NAMES.to_string());
        assert!(is_shown(MAX_NAMES), "there is room again");
    }
}
