//! Where a lock lives: the client's own store, or a set of stores that is asked as one.

use std::sync::Arc;

use crate::backend::{Backend, Store};
use crate::core::Core;

/// Who keeps a lock, and where it lives. Each value of a `Lock` has one of its own, which its acquisitions share: tasks
/// that count themselves in and out of one thing for all of them spend more time on that counter than on anything else.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) core: Arc<Core>,
    pub(crate) site: Arc<Site>,
}

impl Base {
    pub(crate) fn new(core: Arc<Core>, site: Arc<Site>) -> Arc<Self> {
        Arc::new(Self { core, site })
    }
}

/// A store, carried by everything that concerns one of its tickets: not all tickets of a client live in one place.
#[derive(Debug)]
pub(crate) struct Site {
    store: Store,
    /// Which locks of which stores it is made of, in writing. `None`: it is one store.
    set: Option<Arc<str>>,
}

impl Site {
    /// The client's own store.
    pub(crate) fn home(store: Store) -> Arc<Self> {
        Arc::new(Self { store, set: None })
    }

    /// A set, told from others by that text.
    pub(crate) fn of_set(store: Store, identity: &str) -> Arc<Self> {
        let set = Some(identity.into());
        Arc::new(Self { store, set })
    }

    /// Both faces.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// For the callers' own tasks.
    pub(crate) fn front(&self) -> &dyn Backend {
        &*self.store.front
    }

    /// For the steward's thread.
    pub(crate) fn back(&self) -> &dyn Backend {
        &*self.store.back
    }

    /// Tells a set from a single lock of the same name, and from other sets. Two that were made alike are the same.
    pub(crate) fn set(&self) -> Option<&Arc<str>> {
        self.set.as_ref()
    }
}
