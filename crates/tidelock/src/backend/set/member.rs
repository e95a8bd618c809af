//! One member of a set: a store, and which lock of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::janitor::Janitor;
use crate::backend::{Kind, Name, Store, Ticket};
use crate::error::Result;

/// Whose store it is. While the set lives so does its host, and with it the timers the store's requests are bounded by.
pub(crate) trait Host: Send + Sync + 'static {
    /// Whether it may still be asked for locks.
    fn refuse_if_closed(&self) -> Result<()>;
}

/// One store of a set.
pub(crate) struct Member {
    pub(super) store: Store,
    /// Which lock. `None`: the one the ticket names.
    lock: Option<Name>,
    /// What it is called in messages.
    pub(super) label: String,
    host: Option<Arc<dyn Host>>,
    kinship: AtomicU8,
    pub(super) janitor: Janitor,
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
        Self {
            store,
            lock,
            label,
            host,
            kinship: AtomicU8::new(UNKNOWN),
            janitor: Janitor::default(),
            told: AtomicBool::new(false),
        }
    }

    pub(super) fn name<'a>(&'a self, whole: &'a Name) -> &'a Name {
        self.lock.as_ref().unwrap_or(whole)
    }

    /// The same acquisition, as this member knows it.
    pub(super) fn ticket(&self, whole: &Ticket) -> Ticket {
        Ticket {
            kind: Kind::Mutex,
            name: self.name(&whole.name).clone(),
            owner: whole.owner.clone(),
        }
    }

    pub(super) fn refuse_if_closed(&self) -> Result<()> {
        match &self.host {
            Some(host) => host.refuse_if_closed(),
            None => Ok(()),
        }
    }

    /// What is to be said of it once has not been said.
    pub(super) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::SeqCst)
    }

    /// It has turned out to be the same lock as an earlier member, reached by another address.
    pub(super) fn is_twin(&self) -> bool {
        self.kinship.load(Ordering::SeqCst) == TWIN
    }

    pub(super) fn is_known_apart(&self) -> bool {
        self.kinship.load(Ordering::SeqCst) == APART
    }

    pub(super) fn set_twin(&self, twin: bool) {
        let found = if twin { TWIN } else { APART };
        self.kinship.store(found, Ordering::SeqCst);
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.label, self.store.front)
    }
}
