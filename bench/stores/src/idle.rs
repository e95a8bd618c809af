//! Connections that are kept for the next run.

use std::sync::{Arc, Mutex, PoisonError};

/// The idle connections of a process. A task takes one at its first acquisition and returns it at its end. Otherwise
/// each run would measure how connections are made.
#[derive(Debug)]
pub(crate) struct Idle<T>(Arc<Mutex<Vec<T>>>);

impl<T> Idle<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn put(&self, connection: T) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
    }
}

impl<T> Clone for Idle<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
