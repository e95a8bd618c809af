use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::watch;

/// A number that only grows. Blocking and async code can wait for it.
#[derive(Debug)]
pub(super) struct Signal {
    count: Mutex<u64>,
    grown: Condvar,
    shared: watch::Sender<u64>,
}

impl Signal {
    pub(super) fn new() -> Self {
        Self {
            count: Mutex::new(0),
            grown: Condvar::new(),
            shared: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self) -> u64 {
        *self.lock()
    }

    pub(super) fn bump(&self) {
        let mut count = self.lock();
        *count += 1;
        self.shared.send_replace(*count);
        self.grown.notify_all();
    }

    /// Blocks while `waiting` returns true. We call it without the lock, so it may take other locks.
    pub(super) fn wait_while(
        &self,
        timeout: Duration,
        waiting: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let seen = self.get();
            if !waiting(seen) {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("it did not happen within {timeout:?}");
            }
            let same = |count: &mut u64| *count == seen;
            drop(self.grown.wait_timeout_while(self.lock(), left, same));
        }
    }

    pub(super) async fn until(&self, reached: impl Fn(u64) -> bool) {
        let mut changes = self.shared.subscribe();
        loop {
            let seen = *changes.borrow_and_update();
            // The sender lives as long as `self`, so an error cannot occur.
            if reached(seen) || changes.changed().await.is_err() {
                return;
            }
        }
    }
}
