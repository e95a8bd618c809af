//! One member of a set: a store, and the lock it contributes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::error::Result;
use crate::store::set::janitor::Janitor;
use crate::store::{LockKind, Name, Store, Ticket};

/// The owner of the member's store. The set keeps it alive, and with it the timers that bound the store's requests.
pub(crate) trait Host: Send + Sync + 'static {
    /// Fails if the owner was closed.
    fn refuse_if_closed(&self) -> Result<()>;
}

/// One member of a set.
pub(crate) struct Member {
    pub(crate) store: Store,
    /// The lock at this member. `None`: the one that the ticket names.
    lock: Option<Name>,
    /// The name of the member in messages.
    pub(crate) label: String,
    host: Option<Arc<dyn Host>>,
    /// Whether this member is the same lock as an earlier one: `UNKNOWN`, `APART` or `TWIN`.
    kinship: AtomicU8,
    pub(crate) janitor: Arc<Janitor>,
    /// A warning about this member has been logged.
    told: AtomicBool,
}

const UNKNOWN: u8 = 0;
const APART: u8 = 1;
const TWIN: u8 = 2;

impl Member {
    pub(crate) fn new(
        store: Store,
        lock: Option<Name>,
        label: String,
        host: Option<Arc<dyn Host>>,
    ) -> Self {
        let janitor = Arc::new(Janitor::new(Arc::clone(&store.back), label.clone()));
        Self {
            store,
            lock,
            label,
            host,
            kinship: AtomicU8::new(UNKNOWN),
            janitor,
            told: AtomicBool::new(false),
        }
    }

    pub(crate) fn name<'a>(&'a self, whole: &'a Name) -> &'a Name {
        self.lock.as_ref().unwrap_or(whole)
    }

    /// The ticket of the same acquisition at this member.
    pub(crate) fn ticket(&self, whole: &Ticket) -> Ticket {
        Ticket {
            kind: LockKind::Mutex,
            name: self.name(&whole.name).clone(),
            owner: whole.owner.clone(),
        }
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        match &self.host {
            Some(host) => host.refuse_if_closed(),
            None => Ok(()),
        }
    }

    /// True on the first call only, so that a warning about this member is logged once.
    pub(crate) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::SeqCst)
    }

    /// This member is the same lock as an earlier one, reached by another address.
    pub(crate) fn is_twin(&self) -> bool {
        self.kinship.load(Ordering::SeqCst) == TWIN
    }

    pub(crate) fn is_known_apart(&self) -> bool {
        self.kinship.load(Ordering::SeqCst) == APART
    }

    pub(crate) fn set_twin(&self, twin: bool) {
        let found = if twin { TWIN } else { APART };
        self.kinship.store(found, Ordering::SeqCst);
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.label, self.store.front)
    }
}
