//! Counts what is under way, so that `close` can wait for it.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many operations have begun and are not done.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicUsize,
    notify: Notify,
}

impl Counter {
    /// Resolves when nothing is under way.
    pub(crate) async fn none(&self) {
        loop {
            let mut last = std::pin::pin!(self.notify.notified());
            last.as_mut().enable(); // before we read the count; otherwise the last one might end in between
            if self.is_zero() {
                return;
            }
            last.await;
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

/// One operation that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<C: Deref<Target = Counter>>(C);

impl<C: Deref<Target = Counter>> InFlight<C> {
    pub(crate) fn new(counter: C) -> Self {
        counter.count.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl<C: Deref<Target = Counter>> Drop for InFlight<C> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.notify.notify_waiters();
        }
    }
}
