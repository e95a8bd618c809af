//! One member of a set: a store, and the lock it contributes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, Result};
use crate::store::set::janitor::Janitor;
use crate::store::{BootInstant, Incarnation, LockKind, Name, Store, Ticket};

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
    /// The run that answered last.
    Told {
        id: Arc<str>,
        /// When it answered for the first time.
        first: BootInstant,
        /// When it answered for the last time.
        last: BootInstant,
        /// When the run before it answered for the last time, if we know of one. So this run began later.
        begun_after: Option<BootInstant>,
    },
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
    pub(crate) fn note_run(&self, answer: &Result<Option<Incarnation>>, now: BootInstant) -> bool {
        if answer.as_ref().is_err_and(Error::is_retryable) {
            return false;
        }
        self.asks_again.store(false, Ordering::SeqCst);
        let mut known = self.run.lock();
        let Ok(Some(run)) = answer else {
            if matches!(*known, KnownRun::Unasked) {
                *known = KnownRun::Untold;
            }
            return false;
        };
        let begun_after = match &mut *known {
            KnownRun::Told { id, last, .. } if *id == run.id => {
                *last = now.max(*last);
                return false;
            }
            KnownRun::Told { last, .. } => Some(*last),
            KnownRun::Unasked | KnownRun::Untold => None,
        };
        *known = KnownRun::Told {
            id: Arc::clone(&run.id),
            first: now,
            last: now,
            begun_after,
        };
        begun_after.is_some()
    }

    /// The minimum time that a run which was noted has been up. We correct what the server tells by what we have seen. Redis
    /// subtracts two times of its wall clock: if that clock is set ahead after a start, the run seems older than it is, and
    /// if it is set back, younger.
    pub(crate) fn least_uptime(&self, run: &Incarnation, now: BootInstant) -> Duration {
        match &*self.run.lock() {
            KnownRun::Told {
                id,
                first,
                begun_after,
                ..
            } if *id == run.id => {
                let most = begun_after.map_or(Duration::MAX, |instant| now.since(instant));
                run.up.min(most).max(now.since(*first))
            }
            // Another request has noted another run meanwhile, so the server has just restarted.
            KnownRun::Told { .. } | KnownRun::Unasked | KnownRun::Untold => Duration::ZERO,
        }
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
            KnownRun::Told { id, .. } => Some(Arc::clone(id)),
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
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::{Background, Clock, Env, Timers, memory};

    fn env(background: Background) -> Env {
        let limit = Duration::from_secs(30);
        Env::of_limits(Timers::new(Clock::Boot), background, limit)
    }

    fn member(env: &Env) -> Member {
        let store = memory::open("", memory::CAPABILITIES, None, env).unwrap();
        Member::new(store, None, "part 1".to_owned(), None)
    }

    fn told(id: &str, up: Duration) -> Incarnation {
        Incarnation { id: id.into(), up }
    }

    /// The clock of the server was set ahead after its restart.
    #[test]
    fn a_run_is_no_older_than_the_last_answer_of_the_run_before_it() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let member = member(&env(background));
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let begun = BootInstant::from_nanos(7);
        let note = |run: &Incarnation, now| member.note_run(&Ok(Some(run.clone())), now);
        let (old, new) = (told("old", day), told("new", day));
        assert!(!note(&old, begun));
        assert_eq!(member.least_uptime(&old, begun), day);
        assert!(!note(&old, begun + second));
        assert!(note(&new, begun + second * 2));
        assert_eq!(member.least_uptime(&new, begun + second * 2), second);
        assert!(!note(&new, begun + second * 3));
        assert_eq!(member.least_uptime(&new, begun + second * 3), second * 2);
        // A late answer of the run before.
        assert_eq!(member.least_uptime(&old, begun + day), Duration::ZERO);
    }

    /// The clock of the server was set back after its start.
    #[test]
    fn a_run_is_at_least_as_old_as_its_first_answer() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let member = member(&env(background));
        let (begun, minute) = (BootInstant::from_nanos(7), Duration::from_secs(60));
        let run = told("a", Duration::ZERO);
        assert!(!member.note_run(&Ok(Some(run.clone())), begun));
        assert_eq!(member.least_uptime(&run, begun), Duration::ZERO);
        assert!(!member.note_run(&Ok(Some(run.clone())), begun + minute));
        assert_eq!(member.least_uptime(&run, begun + minute), minute);
    }

    #[test]
    fn the_first_look_decides_whether_a_member_is_a_twin() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let env = env(background);
        for first in [false, true] {
            let member = member(&env);
            assert!(!member.is_twin() && !member.is_known_apart());
            for look in [first, false, true] {
                assert_eq!(member.set_twin_once(look), first);
                assert_eq!([member.is_twin(), member.is_known_apart()], [first, !first]);
            }
        }
    }

    #[test]
    fn a_member_is_asked_for_its_run_until_it_has_answered() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let (member, now) = (member(&env(background)), BootInstant::from_nanos(7));
        let silence = Err(Error::new(ErrorKind::Unavailable));
        assert!(member.must_be_asked_for_run());
        assert!(!member.note_run(&silence, now) && member.must_be_asked_for_run());
        assert!(!member.note_run(&Ok(None), now) && !member.must_be_asked_for_run());
        member.ask_for_run_again();
        assert!(member.must_be_asked_for_run());
        member.note_run(&Ok(None), now);
        assert!(!member.must_be_asked_for_run());
    }

    #[test]
    fn a_warning_about_a_member_is_news_once() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let member = member(&env(background));
        assert!(member.is_news() && !member.is_news());
    }
}
