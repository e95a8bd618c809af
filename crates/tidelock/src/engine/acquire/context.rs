//! The context of a lock: its client and its store.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::ClientInner;
use crate::engine::instruments::HandOverStop;
use crate::engine::lease::guests::GuestContext;
use crate::engine::lease::hold::{HoldContext, NextHolder};
use crate::engine::lease::leader_term::LeaderTerm;
use crate::engine::lease::steward::StewardHandle;
use crate::engine::local_queue::queue::LocalQueues;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::store_handle::StoreHandle;
use crate::store::{BootInstant, Name};

/// The context of a lock: its client and its store. Each `Lock` value has its own, shared by its acquisitions. With a
/// single one per client, all tasks would contend for its reference count, at a higher cost than anything else they do.
#[derive(Debug)]
pub(crate) struct LockContext {
    pub(crate) core: Arc<ClientInner>,
    pub(crate) store: Arc<StoreHandle>,
    /// `None`: a set of stores, whose waiters each ask for themselves.
    pub(crate) queues: Option<Arc<LocalQueues>>,
    /// False: an owner that holds the lock may not acquire it again.
    pub(crate) reenters: bool,
    /// The locks that a multi lock consists of. `None`: any other lock.
    pub(crate) parts: Option<Arc<[LockPart]>>,
}

/// One lock of a multi lock.
#[derive(Debug, Clone)]
pub(crate) struct LockPart {
    pub(crate) context: Arc<LockContext>,
    pub(crate) name: Name,
}

impl LockContext {
    pub(crate) fn new(core: Arc<ClientInner>, store: QueuedStore) -> Arc<Self> {
        Arc::new(Self::with_parts(core, store, None))
    }

    /// The context of a multi lock of these locks.
    pub(crate) fn of_parts(
        core: Arc<ClientInner>,
        store: QueuedStore,
        parts: impl Into<Arc<[LockPart]>>,
    ) -> Arc<Self> {
        Arc::new(Self::with_parts(core, store, Some(parts.into())))
    }

    fn with_parts(
        core: Arc<ClientInner>,
        store: QueuedStore,
        parts: Option<Arc<[LockPart]>>,
    ) -> Self {
        let QueuedStore { store, queues } = store;
        Self {
            core,
            store,
            queues,
            reenters: true,
            parts,
        }
    }

    /// How long an acquire waits at least for the client to connect, or for those of the members of a set.
    pub(crate) fn connect_within(&self) -> Duration {
        let of_members = self.store.members_connect_within();
        self.core.settings.connect_within.max(of_members)
    }

    /// How long one attempt takes at most. The members of a set may be slower than the client that made it; without them an
    /// outage of such a member would look like a freeze of this process.
    pub(crate) fn response_timeout(&self) -> Duration {
        let own = self.core.settings.response_timeout;
        own.max(self.store.slowest())
    }

    /// The same context for another `Lock` value.
    pub(crate) fn copy(&self) -> Arc<Self> {
        Arc::new(self.with_reentry(self.reenters))
    }

    /// The same context for a lock that no owner re-enters.
    pub(crate) fn without_reentry(&self) -> Arc<Self> {
        Arc::new(self.with_reentry(false))
    }

    fn with_reentry(&self, reenters: bool) -> Self {
        Self {
            core: Arc::clone(&self.core),
            store: Arc::clone(&self.store),
            queues: self.queues.clone(),
            reenters,
            parts: self.parts.clone(),
        }
    }
}

impl GuestContext for LockContext {
    fn end_by_close(&self, entry: u64) -> bool {
        let steward = &self.core.steward;
        // Registered before the removal. Otherwise a `close` of this client would see neither the hold nor the release,
        // and would not wait for it.
        let _in_flight = steward.in_flight();
        let entry = steward.table.remove_by_close(entry);
        entry.map(|entry| steward.end_by_close(entry)).is_some()
    }
}

impl HoldContext for LockContext {
    fn steward(&self) -> &StewardHandle {
        &self.core.steward
    }

    fn store(&self) -> &Arc<StoreHandle> {
        &self.store
    }

    fn next_holder(
        &self,
        term: &LeaderTerm,
        now: BootInstant,
    ) -> Result<NextHolder, Option<HandOverStop>> {
        self.queues.as_ref().ok_or(None)?.next_holder(term, now)
    }
}
