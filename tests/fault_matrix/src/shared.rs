//! Results that several threads write.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock. A thread that panicked has left a result that is shorter, and no other harm.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
