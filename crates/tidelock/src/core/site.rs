//! Where a lock lives: the client's own store, or a set of stores that is asked as one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Backend, Kind, Name, Signals, Store, Timers};
use crate::core::Core;
use crate::core::line::Lines;
use crate::hand_off::HandOff;

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
    /// Which locks of which stores it is made of, in writing; or which other locks of one store. `None`: a store's own locks.
    set: Option<Arc<str>>,
    /// Who polls for what, where the store does not wake.
    polls: OnceLock<Signals>,
    /// The same store with locks of another layout.
    plain: Option<Arc<Site>>,
    /// Who waits for what in this process. `None`: a set, whose members are asked for apart.
    lines: Option<Arc<Lines>>,
}

/// What the lines of a client's own store need.
#[derive(Debug, Clone)]
pub(crate) struct Manners {
    pub(crate) hand_off: HandOff,
    pub(crate) timers: Timers,
    /// Who does not come for so long after it was called is passed over.
    pub(crate) patience: Duration,
    /// Rung when the steward is to look after those who were called.
    pub(crate) bell: Arc<Notify>,
}

impl Manners {
    fn lines(&self) -> Arc<Lines> {
        Lines::new(
            self.hand_off,
            self.timers.clone(),
            self.patience,
            &self.bell,
        )
    }
}

impl Site {
    /// The client's own store.
    pub(crate) fn home(store: Store, manners: &Manners) -> Arc<Self> {
        let plain = match (store.front.plain(), store.back.plain()) {
            (Some(front), Some(back)) => {
                let store = Store { front, back };
                let lines = Some(manners.lines());
                Some(Self::new(store, Some("plain".into()), None, lines))
            }
            _ => None,
        };
        Self::new(store, None, plain, Some(manners.lines()))
    }

    /// A set, told from others by that text.
    pub(crate) fn of_set(store: Store, identity: &str) -> Arc<Self> {
        Self::new(store, Some(identity.into()), None, None)
    }

    fn new(
        store: Store,
        set: Option<Arc<str>>,
        plain: Option<Arc<Self>>,
        lines: Option<Arc<Lines>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            set,
            polls: OnceLock::new(),
            plain,
            lines,
        })
    }

    /// Where the same store keeps its plain locks, if it has any.
    pub(crate) fn plain(&self) -> Option<&Arc<Site>> {
        self.plain.as_ref()
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

    /// Each that waits for such a lock has a place in the store itself, and gives it up by its own withdrawal.
    pub(crate) fn queues(&self, kind: Kind) -> bool {
        kind.is_read_write() || self.front().capabilities().queues
    }

    /// Who waits for what in this process.
    pub(crate) fn lines(&self) -> Option<&Arc<Lines>> {
        self.lines.as_ref()
    }

    /// The client is closed: who stands in a line of this store comes to know.
    pub(crate) fn close_lines(&self) {
        let plain = self.plain().and_then(|plain| plain.lines());
        self.lines()
            .into_iter()
            .chain(plain)
            .for_each(|l| l.close());
    }

    /// The waiters of this process, for a store that does not wake them.
    pub(crate) fn polls(&self, timers: &Timers) -> &Signals {
        self.polls
            .get_or_init(|| Signals::new(timers.clone(), |_| {}))
    }

    /// A lock was released here: who polls for it in this process need not wait for its next look.
    pub(crate) fn freed(&self, name: &Name) {
        if let Some(polls) = self.polls.get() {
            polls.wake_one(name.as_str());
        }
    }
}
