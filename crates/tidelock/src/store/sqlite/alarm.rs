//! Tells the workers of a client that one of the files was removed or replaced.

use std::fmt;

use crate::engine::runtime::sync::Mutex;

/// What a worker does when it is told. It must not block.
type Listener = Box<dyn Fn() + Send + Sync>;

/// The workers of a client, each with what it does when a file was removed or replaced.
#[derive(Default)]
pub(crate) struct IdleAlarm(Mutex<Vec<Listener>>);

impl IdleAlarm {
    pub(crate) fn add(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.0.lock().push(Box::new(listener));
    }

    pub(crate) fn ring(&self) {
        for listener in &*self.0.lock() {
            listener();
        }
    }
}

impl fmt::Debug for IdleAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleAlarm").finish_non_exhaustive()
    }
}
