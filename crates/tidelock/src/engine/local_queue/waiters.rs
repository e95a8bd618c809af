//! The waiters of a local queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::local_queue::waiter::QueuedRequest;
use crate::store::{BootInstant, Wake};

/// The waiters behind the leader of one local queue.
#[derive(Default)]
pub(crate) struct Waiters {
    /// By number, which is the order of arrival.
    pub(crate) waiting: BTreeMap<u64, Arc<dyn QueuedRequest>>,
    /// A wake that the store has armed, for the next leader.
    pub(crate) wake: Option<Wake>,
    /// The waiter that was called last.
    pub(crate) called: Option<Arc<dyn QueuedRequest>>,
    /// When this queue last made progress: it called a waiter, or its leader was granted the lock.
    pub(crate) moved: Option<BootInstant>,
    /// The waiters have an error of the store, which must be cleared once it answers.
    pub(crate) troubled: bool,
}

impl Waiters {
    pub(crate) fn since(now: BootInstant) -> Box<Self> {
        Box::new(Self {
            moved: Some(now),
            ..Self::default()
        })
    }
}
