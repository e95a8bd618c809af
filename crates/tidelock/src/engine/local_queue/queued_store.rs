//! A store with its local queues.

use std::sync::Arc;

use crate::engine::lease::leader_term::Queues;
use crate::engine::local_queue::queue::{LocalQueueSettings, LocalQueues};
use crate::engine::runtime::event::Flag;
use crate::engine::store_handle::{SetMembers, StoreHandle};
use crate::engine::store_health::StoreHealth;
use crate::store::{Clock, Store};

/// A store with its local queues.
#[derive(Debug, Clone)]
pub(crate) struct QueuedStore {
    pub(crate) store: Arc<StoreHandle>,
    /// `None`: a set of stores, whose waiters each ask for themselves.
    pub(crate) queues: Option<Arc<LocalQueues>>,
}

impl QueuedStore {
    /// The client's own store, and the same store with the plain layout of locks, if it has one. Both have the same
    /// server, so they share their health. `opened`: set when the store is open. `None`: it has just answered the connect.
    pub(crate) fn of_client(
        store: Store,
        opened: Option<Arc<Flag>>,
        settings: &LocalQueueSettings,
    ) -> (Self, Option<Self>) {
        let is_open = opened.is_none();
        let health = Arc::new(StoreHealth::new(settings.timers.clock(), opened));
        if is_open {
            health.connected();
        }
        let plain = store.plain.as_deref().cloned();
        let plain = plain.map(|plain| Self::new(plain, Some("plain".into()), settings, &health));
        (Self::new(store, None, settings, &health), plain)
    }

    /// A set of stores, identified by that text.
    pub(crate) fn of_set(store: Store, identity: &str, members: SetMembers, clock: Clock) -> Self {
        Self {
            store: StoreHandle::of_set(store, identity.into(), members, clock),
            queues: None,
        }
    }

    fn new(
        store: Store,
        set: Option<Arc<str>>,
        settings: &LocalQueueSettings,
        health: &Arc<StoreHealth>,
    ) -> Self {
        let queues = LocalQueues::new(settings);
        let heard: Arc<dyn Queues> = Arc::clone(&queues) as _;
        Self {
            store: StoreHandle::new(store, set, Some(heard), Arc::clone(health)),
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
