//! The flag that a close sets, and that waiting tasks listen to.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The flag that `Client::close` sets. It is never cleared.
#[derive(Debug, Default)]
pub(crate) struct CloseFlag {
    set: AtomicBool,
    notify: Notify,
}

impl CloseFlag {
    /// Sets the flag and wakes all listeners. True for the first call only.
    pub(crate) fn set(&self) -> bool {
        let first = !self.set.swap(true, Ordering::SeqCst);
        self.notify.notify_waiters();
        first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Resolves when the flag is set, at once if it is set already.
    pub(crate) async fn happened(&self) {
        let mut notify = std::pin::pin!(self.notify.notified());
        notify.as_mut().enable(); // before we read the flag; otherwise we miss a `close` in between
        if !self.is_set() {
            notify.await;
        }
    }
}
