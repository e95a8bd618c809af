//! Counts the operations in flight, so that `close` can wait for them.

use crate::engine::runtime::sync::atomic::{AtomicUsize, Ordering};
use std::ops::Deref;

use crate::engine::runtime::event::Event;

/// The number of operations that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct InFlightCounter {
    count: AtomicUsize,
    /// Notified when `count` falls to zero.
    zero: Event,
}

impl InFlightCounter {
    /// Resolves when no operation is in flight.
    pub(crate) async fn none(&self) {
        self.zero.until(|| self.is_zero()).await;
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.count() == 0
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// Counts one operation as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<C: Deref<Target = InFlightCounter>>(C);

impl<C: Deref<Target = InFlightCounter>> InFlight<C> {
    pub(crate) fn new(counter: C) -> Self {
        counter.count.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl<C: Deref<Target = InFlightCounter>> Drop for InFlight<C> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.zero.notify();
        }
    }
}
