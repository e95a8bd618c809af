//! Locks that ignore poison: the standard library's, without the question whether a thread has panicked under them.
//!
//! No code of ours panics under a lock, and code of others (wakers, stores, callbacks) is called outside or contained.
//! If a panic happened anyway, an `unwrap` would pass it on to every other user of the lock, and the steward would end.
//!
//! The tests of schedules build the library with `--cfg schedules="shuttle"`. These locks and atomics are then those of
//! shuttle, whose scheduler chooses at each of them which task runs next. The files of the engine therefore take their
//! atomics from here; see `docs/schedules.md`.

use std::time::Duration;

#[cfg(schedules = "shuttle")]
use shuttle::sync as primitives;
#[cfg(not(schedules = "shuttle"))]
use std::sync as primitives;

pub(crate) use primitives::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};
use primitives::{PoisonError, WaitTimeoutResult};

/// [`std::sync::Mutex`], whose `lock` cannot fail.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(primitives::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::RwLock`], whose `read` and `write` cannot fail.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(primitives::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(primitives::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::Condvar`], for [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(primitives::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(primitives::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits until the condition is false, at most for this time.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let waited = self.0.wait_timeout_while(guard, limit, condition);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// A thread that is not woken would sleep until its limit.
    #[test]
    fn each_thread_that_waits_is_woken() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let ((looks, looked), (tell, told)) = (mpsc::channel(), mpsc::channel());
        let wait = |_| {
            let (shared, looks, tell) = (Arc::clone(&shared), looks.clone(), tell.clone());
            std::thread::spawn(move || {
                let (is_over, changed) = &*shared;
                drop(changed.wait_timeout_while(is_over.lock(), LONG, |is_over| {
                    looks.send(()).unwrap();
                    !*is_over
                }));
                tell.send(()).unwrap();
            })
        };
        let threads = [1, 2].map(wait);
        for _ in &threads {
            looked.recv().unwrap();
        }
        // Each thread looks under the lock, and gives it back only to sleep. So both sleep when this one has it.
        let (is_over, changed) = &*shared;
        *is_over.lock() = true;
        changed.notify_all();
        for _ in &threads {
            told.recv_timeout(LONG / 10).unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
