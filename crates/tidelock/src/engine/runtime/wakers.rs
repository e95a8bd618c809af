//! Wakes a task of any executor, and survives a waker that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes tasks of any executor, each as [`wake`] does. The caller holds no lock: an executor may run or drop a task
/// inside the wake.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(wake);
}

/// Wakes a task of any executor and contains a panic of its waker. Otherwise the panic would end something that others
/// depend on: a connection, all timers and deadlines of the client, the steward, or the wakes of the tasks behind it.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a task's waker panicked");
    }
}
