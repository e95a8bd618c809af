//! One member of a set: a store, and the lock it contributes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, Result};
use crate::store::set::janitor::Janitor;
use crate::store::{Incarnation, LockKind, Name, Store, Ticket};

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
    run: Mutex<KnownRun>,
    /// The server must be asked for its run again, because the one of another member has restarted.
    asks_again: AtomicBool,
    pub(crate) janitor: Arc<Janitor>,
    /// A warning about this member has been logged.
    told: AtomicBool,
}

/// The run of the server, as far as it is known. Two members with the same run are one server.
enum KnownRun {
    /// The server has not answered yet.
    Unasked,
    /// The server does not tell it.
    Untold,
    /// The id of the run that answered last.
    Told(Arc<str>),
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
            run: Mutex::new(KnownRun::Unasked),
            asks_again: AtomicBool::new(false),
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

    /// Records whether this member is a twin, unless that is known. Returns what is known. Two attempts of one ticket may
    /// look at the same time: the one that looks later may see what the other one has acquired here in between, and
    /// would take a member apart for a twin. Nobody would ask that member for its part again.
    pub(crate) fn set_twin_once(&self, twin: bool) -> bool {
        let found = kinship(twin);
        let order = Ordering::SeqCst;
        let known = self.kinship.compare_exchange(UNKNOWN, found, order, order);
        known.err().unwrap_or(found) == TWIN
    }

    /// Records what the server has answered when it was asked for its run. What it told before stays known if it does not
    /// tell it now. Otherwise the votes of two addresses of one server could count twice. Returns whether the server has
    /// restarted since it was asked before.
    pub(crate) fn note_run(&self, answer: &Result<Option<Incarnation>>) -> bool {
        if answer.as_ref().is_err_and(Error::is_retryable) {
            return false;
        }
        self.asks_again.store(false, Ordering::SeqCst);
        let mut known = self.run.lock();
        if let Ok(Some(run)) = answer {
            let told = KnownRun::Told(Arc::clone(&run.id));
            let before = std::mem::replace(&mut *known, told);
            return matches!(&before, KnownRun::Told(id) if *id != run.id);
        }
        if matches!(*known, KnownRun::Unasked) {
            *known = KnownRun::Untold;
        }
        false
    }

    /// The next renewal asks the server for its run.
    pub(crate) fn ask_for_run_again(&self) {
        self.asks_again.store(true, Ordering::SeqCst);
    }

    /// Whether the server has not been asked for its run, has not answered, or must be asked again.
    pub(crate) fn must_be_asked_for_run(&self) -> bool {
        self.asks_again.load(Ordering::SeqCst) || matches!(*self.run.lock(), KnownRun::Unasked)
    }

    /// The id of the run that has answered last, if the server tells it.
    pub(crate) fn last_run(&self) -> Option<Arc<str>> {
        match &*self.run.lock() {
            KnownRun::Told(id) => Some(Arc::clone(id)),
            KnownRun::Unasked | KnownRun::Untold => None,
        }
    }
}

fn kinship(twin: bool) -> u8 {
    if twin { TWIN } else { APART }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.label, self.store.front)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{Background, Clock, Env, Timers, memory};

    #[test]
    fn the_first_look_decides_whether_a_member_is_a_twin() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let env = Env::of_limits(
            Timers::new(Clock::Boot),
            background,
            Duration::from_secs(30),
        );
        for first in [false, true] {
            let store = memory::open("", memory::CAPABILITIES, None, &env).unwrap();
            let member = Member::new(store, None, "part 1".to_owned(), None);
            assert!(!member.is_twin() && !member.is_known_apart());
            for look in [first, false, true] {
                assert_eq!(member.set_twin_once(look), first);
                assert_eq!([member.is_twin(), member.is_known_apart()], [first, !first]);
            }
        }
    }
}
