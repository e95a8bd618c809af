//! Shows the other processes which locks this client holds, so that a release wakes the one that waits for it first: see
//! [`queue`](super::queue).

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ranges::Ranges;
use super::spot::Bytes;

/// The kernel keeps these locks in a list. The first process that waits for a lock that is not shown looks at the file every few milliseconds.
const MOST: usize = 256;
/// The first of the queue may have locked a byte for the moment between its waking and its question.
const TRIES: u32 = 20;

#[derive(Debug)]
pub(super) struct Shown {
    lock: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ranges: Option<Ranges>,
    held: HashSet<i64>,
}

impl Shown {
    pub(super) fn beside(lock: &Path) -> Self {
        Self {
            lock: lock.to_owned(),
            inner: Mutex::default(),
        }
    }

    /// It holds that lock.
    pub(super) fn show(&self, name: &str) {
        let mut inner = self.lock();
        let Inner { ranges, held } = &mut *inner;
        if ranges.is_none() {
            *ranges = Ranges::on(&self.lock).ok();
        }
        let byte = Bytes::of(name).held;
        let Some(ranges) = ranges.as_ref().filter(|_| held.len() < MOST) else {
            return;
        };
        for _ in 0..TRIES {
            if ranges.try_lock(byte).unwrap_or(false) {
                held.insert(byte);
                return;
            }
            std::thread::yield_now();
        }
    }

    /// It does not hold that lock any more.
    pub(super) fn hide(&self, name: &str) {
        let mut inner = self.lock();
        let byte = Bytes::of(name).held;
        if inner.held.remove(&byte)
            && let Some(ranges) = &inner.ranges
        {
            ranges.unlock(byte);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
