//! The store handle of a lock: the client's own store, or a set of stores that act as one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::ClientInner;
use crate::engine::local_queue::queue::LocalQueues;
use crate::hand_off::HandOff;
use crate::store::{Backend, LockKind, Name, ReleasesSeen, Store, Timers, WakeChannels};

/// The context of a lock: its client and its store. Each `Lock` value has its own, shared by its acquisitions. With a
/// single one per client, all tasks would contend for its reference count, at a higher cost than anything else they do.
#[derive(Debug)]
pub(crate) struct LockContext {
    pub(crate) core: Arc<ClientInner>,
    pub(crate) store: Arc<StoreHandle>,
}

impl LockContext {
    pub(crate) fn new(core: Arc<ClientInner>, store: Arc<StoreHandle>) -> Arc<Self> {
        Arc::new(Self { core, store })
    }
}

/// A store, and what this process keeps for it. Everything that handles a ticket carries the handle of the ticket's
/// store, because one client can have tickets in several stores.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    store: Store,
    /// Text that identifies a set of stores and its locks, or another layout of the locks of one store. `None`: the
    /// client's own store in its own layout.
    set: Option<Arc<str>>,
    /// The waiters that poll, for a store that does not wake them. Created at first use.
    polls: OnceLock<WakeChannels>,
    /// The same store with the plain layout of locks, if it has one.
    plain: Option<Arc<StoreHandle>>,
    /// The local queues. `None`: a set of stores, whose waiters each ask for themselves.
    queues: Option<Arc<LocalQueues>>,
}

/// Settings of the local queues.
#[derive(Debug, Clone)]
pub(crate) struct LocalQueueSettings {
    pub(crate) hand_off: HandOff,
    pub(crate) timers: Timers,
    /// Bounds how long a queue may go without progress. After that the steward takes back a call that was not answered,
    /// or lets the next waiter ask the store.
    pub(crate) patience: Duration,
    /// Tells the steward that a queue has a waiter, so that it looks after `patience`.
    pub(crate) notify: Arc<Notify>,
}

impl LocalQueueSettings {
    fn queues(&self) -> Arc<LocalQueues> {
        LocalQueues::new(
            self.hand_off,
            self.timers.clone(),
            self.patience,
            &self.notify,
        )
    }
}

impl StoreHandle {
    /// The client's own store.
    pub(crate) fn home(store: Store, settings: &LocalQueueSettings) -> Arc<Self> {
        let plain = store.plain.as_deref().map(|plain| {
            let queues = Some(settings.queues());
            Self::new(plain.clone(), Some("plain".into()), None, queues)
        });
        Self::new(store, None, plain, Some(settings.queues()))
    }

    /// A set of stores, identified by that text.
    pub(crate) fn of_set(store: Store, identity: &str) -> Arc<Self> {
        Self::new(store, Some(identity.into()), None, None)
    }

    fn new(
        store: Store,
        set: Option<Arc<str>>,
        plain: Option<Arc<Self>>,
        queues: Option<Arc<LocalQueues>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            set,
            polls: OnceLock::new(),
            plain,
            queues,
        })
    }

    /// The handle for the plain locks of the same store, if it has any.
    pub(crate) fn plain(&self) -> Option<&Arc<StoreHandle>> {
        self.plain.as_ref()
    }

    /// Both the front and the back.
    pub(crate) fn sides(&self) -> &Store {
        &self.store
    }

    /// The backend for the callers' tasks.
    pub(crate) fn front(&self) -> &dyn Backend {
        &*self.store.front
    }

    /// The backend for the steward's thread.
    pub(crate) fn back(&self) -> &dyn Backend {
        &*self.store.back
    }

    /// The releases of this lock that this client has noticed. `None`: the store does not tell, or nobody listens.
    pub(crate) fn releases_seen(&self, name: &Name) -> Option<ReleasesSeen> {
        self.front().extensions().releases?.seen(name)
    }

    /// The text that distinguishes a set from a single lock of the same name, and from other sets. Two
    /// sets that were made the same way have the same text.
    pub(crate) fn set(&self) -> Option<&Arc<str>> {
        self.set.as_ref()
    }

    /// Whether the store keeps a queue position for each waiter of such a lock. Such a waiter bypasses the local queue,
    /// and gives up its position by a withdrawal of its ticket.
    pub(crate) fn queues_in_store(&self, kind: LockKind) -> bool {
        kind.is_read_write() || self.front().capabilities().queues
    }

    /// The local queues. `None` for a set of stores.
    pub(crate) fn queues(&self) -> Option<&Arc<LocalQueues>> {
        self.queues.as_ref()
    }

    /// The client is closed: calls all waiters in the local queues of this store.
    pub(crate) fn close_queues(&self) {
        let plain = self.plain().and_then(|plain| plain.queues());
        self.queues()
            .into_iter()
            .chain(plain)
            .for_each(|l| l.close());
    }

    /// The waiters of this process that poll, for a store that does not wake them.
    pub(crate) fn polls(&self, timers: &Timers) -> &WakeChannels {
        self.polls
            .get_or_init(|| WakeChannels::new(timers.clone(), |_| {}))
    }

    /// This process has released a lock: wakes one waiter that polls for it, which then need not wait for its next
    /// poll.
    pub(crate) fn freed(&self, name: &Name) {
        if let Some(polls) = self.polls.get() {
            polls.wake_one(name.as_str());
        }
    }
}
