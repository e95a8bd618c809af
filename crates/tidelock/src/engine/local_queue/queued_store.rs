//! A store with its local queues.

use std::sync::Arc;

use crate::engine::lease::leader_term::Queues;
use crate::engine::local_queue::queue::{LocalQueueSettings, LocalQueues};
use crate::engine::store_handle::StoreHandle;
use crate::store::Store;

/// A store with its local queues.
#[derive(Debug, Clone)]
pub(crate) struct QueuedStore {
    pub(crate) store: Arc<StoreHandle>,
    /// `None`: a set of stores, whose waiters each ask for themselves.
    pub(crate) queues: Option<Arc<LocalQueues>>,
}

impl QueuedStore {
    /// The client's own store.
    pub(crate) fn home(store: Store, settings: &LocalQueueSettings) -> Self {
        Self::new(store, None, settings)
    }

    /// The same store with the plain layout of locks, if it has one.
    pub(crate) fn plain(home: &Store, settings: &LocalQueueSettings) -> Option<Self> {
        let plain = home.plain.as_deref()?.clone();
        Some(Self::new(plain, Some("plain".into()), settings))
    }

    /// A set of stores, identified by that text.
    pub(crate) fn of_set(store: Store, identity: &str) -> Self {
        Self {
            store: StoreHandle::new(store, Some(identity.into()), None),
            queues: None,
        }
    }

    fn new(store: Store, set: Option<Arc<str>>, settings: &LocalQueueSettings) -> Self {
        let queues = LocalQueues::new(settings);
        let heard: Arc<dyn Queues> = Arc::clone(&queues) as _;
        Self {
            store: StoreHandle::new(store, set, Some(heard)),
            queues: Some(queues),
        }
    }

    /// The client is closed: calls all waiters.
    pub(crate) fn close(&self) {
        if let Some(queues) = &self.queues {
            queues.close();
        }
    }
}
