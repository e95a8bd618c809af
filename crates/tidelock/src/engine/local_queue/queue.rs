//! The local queues: the tasks of this process that wait for the same lock, one queue for each name.
//!
//! Only the leader of a queue sends requests to the store. The algorithm:
//!
//! 1. A request that finds no queue creates one and leads it. Every other request becomes a waiter at the end.
//! 2. A grant to the leader begins a leader term. When the holder releases, `next_holder` picks the next waiter and the
//!    hold passes to it without a request to the store, with a reserved fencing token of its own.
//! 3. The term allows a number of hand-offs and a time (`HandOff`), so that waiters of other processes get the lock.
//!    Then the hold is released in the store, and the next waiter is called to lead. It is also called if the leader
//!    gives up, or if the hold is lost or removed by force.
//! 4. A queue without progress for `patience` has a leader that is perhaps kept and not polled. The steward takes back
//!    a notification that was not taken, or tells the next waiter to ask the store once. If that is granted, the waiter
//!    takes leadership (`take_leadership`).
//!
//! ```text
//!              join                            begin (granted)
//!   no queue ────────► led by a task ───────────────────────────► led by a hold (leader term)
//!      ▲                │         ▲                                 │  ▲   │
//!      │ no waiter      │ leader  │ next waiter called              │  └───┘ next_holder: hand-off
//!      │                ▼ dropped │                                 │
//!      └───────────── call_next ──┘◄────────────────────────────────┘ end_term: released in the store, lost, forced
//!
//!   any state ── take_leadership: the store has granted the lock to a waiter ──► led by the task of that waiter
//! ```
//!
//! Invariants:
//! 1. A queue exists exactly while it has a leader: a task (`term` is `None`) or a hold. A task that was called to
//!    lead counts from the call on; if it leaves without taking the notification, the drop of the notification calls
//!    the next waiter.
//! 2. No two leaders have the same number, and a leader begins at most one term, which has its number. A leader or a
//!    term whose number is not current any more changes nothing: its `begin` starts no term, its hold is not handed off,
//!    and its drop calls no waiter.
//! 3. Waiters are served in the order of their numbers. A waiter that joins again keeps its number. A hold goes only to
//!    the first waiter, and only if that waiter asked for the same terms; otherwise it is released in the store.
//! 4. A waiter is removed from the queue before it is called, so no waiter is called twice for one place.
//! 5. While any queue has a waiter, `check_at` is not `FAR`: the steward will look after it.
//!
//! Lock order: the lock of all queues (`inner`), then the lock of one waiter. The lock of the lease table is never held
//! together with `inner`. We wake waiters and drop wakes, notifications and requests after `inner` is released: a
//! dropped notification passes on the leader role or the hold in it and takes `inner` again, and a woken task may run
//! inside the wake. Only the steward is notified under `inner`.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::fairness::FairnessDelays;
use crate::engine::instruments::HandOverStop;
use crate::engine::lease::hold::NextHolder;
use crate::engine::lease::leader_term::{LeaderTerm, Queues};
use crate::engine::local_queue::last_answer::LastAnswer;
use crate::engine::local_queue::leader::{AcquireTerms, Leader};
use crate::engine::local_queue::waiter::{Notification, QueuedRequest, WaiterFuture};
use crate::engine::local_queue::waiters::Waiters;
use crate::engine::runtime::id_hasher::IdHasher;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::wakers::wake_all;
use crate::hand_off::HandOff;
use crate::store::{BootInstant, Name, ReleasesSeen, Timers, Wake};
use crate::types::FencingToken;

/// Settings of the local queues.
#[derive(Debug, Clone)]
pub(crate) struct LocalQueueSettings {
    pub(crate) hand_off: HandOff,
    pub(crate) timers: Timers,
    /// Bounds how long a queue may go without progress. After that the steward takes back a notification that was not
    /// taken, or lets the next waiter ask the store.
    pub(crate) patience: Duration,
    /// Tells the steward that a queue has a waiter, so that it looks after `patience`.
    pub(crate) notify: Arc<Notify>,
}

/// The local queues of one store.
pub(crate) struct LocalQueues {
    pub(crate) inner: Mutex<LocalQueuesState>,
    pub(crate) rules: HandOff,
    pub(crate) timers: Timers,
    /// Bounds how long a queue may go without progress before the steward acts.
    pub(crate) patience: Duration,
    /// Tells the steward that `check_at` has changed from `FAR`.
    pub(crate) notify: Arc<Notify>,
    /// Itself, for the leaders that it calls.
    own: Weak<Self>,
    /// Whether `fairness_delays` has an entry. For most clients it has none; this flag saves them the mutex.
    pub(crate) has_delays: AtomicBool,
}

/// The state under the lock.
pub(crate) struct LocalQueuesState {
    pub(crate) queues: HashMap<Name, LocalQueue, BuildHasherDefault<IdHasher>>,
    /// Tokens below these are handed to nobody any more, though a leader term has reserved them: the counter was raised.
    /// An entry goes when a grant reaches it.
    pub(crate) raised: HashMap<Name, FencingToken>,
    /// The fairness delays, for names that other processes wait for.
    pub(crate) fairness_delays: FairnessDelays,
    /// The last number given to a waiter or a leader. No number is used for two leaders.
    pub(crate) next: u64,
    /// When the steward looks for queues without progress. `FAR` only if no queue has a waiter.
    pub(crate) check_at: BootInstant,
}

/// The local queue of one name.
#[derive(Default)]
pub(crate) struct LocalQueue {
    /// What the leader term still allows. `None`: a task leads.
    pub(crate) term: Option<TermLimits>,
    /// The number of the task that leads, or that led before the term began.
    pub(crate) leader: u64,
    /// What the store last said to the leaders. It lacks the first attempt of a new queue, until that is answered.
    pub(crate) last_answer: LastAnswer,
    /// The waiters behind the leader. Created for the first one, because most locks never have a waiter.
    pub(crate) waiters: Option<Box<Waiters>>,
}

/// What a leader term still allows: the granted hold passes from waiter to waiter.
pub(crate) struct TermLimits {
    pub(crate) number: u64,
    /// A waiter gets the hold only if its own terms equal these.
    pub(crate) terms: AcquireTerms,
    pub(crate) since: BootInstant,
    /// How many hand-offs are left. Zero from the start if the hold is not renewed.
    pub(crate) left: u32,
    /// No hand-off after this instant.
    pub(crate) until: BootInstant,
    /// The next reserved fencing token, and how many are left. `None`: a lock without tokens.
    pub(crate) tokens: Option<(FencingToken, u32)>,
}

impl TermLimits {
    /// Whether a waiter with those terms may have the hold now.
    fn allows(&self, terms: &AcquireTerms, now: BootInstant) -> Result<(), HandOverStop> {
        if self.left == 0 {
            Err(HandOverStop::Count)
        } else if now >= self.until {
            Err(HandOverStop::Time)
        } else if *terms != self.terms {
            Err(HandOverStop::Doubt)
        } else {
            Ok(())
        }
    }
}

/// The result of joining a queue.
pub(crate) enum Joined<R: QueuedRequest> {
    Leads(Leader),
    Waits(WaiterFuture<R>),
}

impl LocalQueue {
    /// Whether the task with that number leads, and no term has begun.
    pub(crate) fn is_led_by(&self, number: u64) -> bool {
        self.leader == number && self.term.is_none()
    }

    pub(crate) fn waits(&self) -> bool {
        let waiters = self.waiters.as_ref();
        waiters.is_some_and(|waiters| !waiters.waiting.is_empty())
    }

    /// Keeps the wake for the next leader. Returns a wake that is not needed; drop it after the lock is released.
    pub(crate) fn pass_wake(&mut self, wake: Option<Wake>) -> Option<Wake> {
        match &mut self.waiters {
            Some(waiters) if !waiters.waiting.is_empty() => {
                std::mem::replace(&mut waiters.wake, wake)
            }
            _ => wake,
        }
    }

    /// Records that the queue has made progress.
    pub(crate) fn moves(&mut self, now: BootInstant) {
        if let Some(waiters) = &mut self.waiters {
            waiters.moved = Some(now);
        }
    }
}

impl LocalQueues {
    pub(crate) fn new(settings: &LocalQueueSettings) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            inner: Mutex::new(LocalQueuesState {
                queues: HashMap::default(),
                raised: HashMap::new(),
                fairness_delays: FairnessDelays::default(),
                next: 0,
                check_at: BootInstant::FAR,
            }),
            rules: settings.hand_off,
            timers: settings.timers.clone(),
            patience: settings.patience,
            notify: Arc::clone(&settings.notify),
            own: Weak::clone(own),
            has_delays: AtomicBool::new(false),
        })
    }

    /// Leads if there is no queue. Otherwise waits: at the end, or at the old position if `number` is given.
    pub(crate) fn join<R: QueuedRequest>(
        self: &Arc<Self>,
        request: &Arc<R>,
        number: Option<u64>,
    ) -> Joined<R> {
        let name = request.name();
        let mut inner = self.lock();
        inner.next += 1;
        let number = number.unwrap_or(inner.next);
        if let Some(queue) = inner.queues.get_mut(name) {
            let waiters = queue
                .waiters
                .get_or_insert_with(|| Waiters::since(self.timers.now()));
            waiters.waiting.insert(number, Arc::clone(request) as _);
            // The first waiter of any queue: from now on the steward must look for queues without progress.
            if inner.check_at == BootInstant::FAR {
                let now = self.timers.now();
                self.schedule_check(&mut inner, now);
            }
            drop(inner);
            return Joined::Waits(WaiterFuture::new(Arc::clone(self) as _, number, request));
        }
        let queue = LocalQueue {
            leader: number,
            ..LocalQueue::default()
        };
        inner.queues.insert(name.clone(), queue);
        Joined::Leads(Leader::of_new_queue(Arc::clone(self) as _, name, number))
    }

    /// Takes leadership: the store has granted the lock to a waiter, so the former leader no longer has an effect.
    pub(crate) fn take_leadership(self: &Arc<Self>, name: &Name) -> Leader {
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        let queue = inner.queues.entry(name.clone()).or_default();
        queue.leader = number;
        queue.term = None;
        drop(inner);
        Leader::new(Some(Arc::clone(self) as _), name, number, None)
    }

    /// What this queue knows of the lock. A hold of this process is the hold of another owner.
    pub(crate) fn last_answer(&self, name: &Name) -> LastAnswer {
        let now = self.timers.now();
        let inner = self.lock();
        let Some(queue) = inner.queues.get(name) else {
            return LastAnswer::default();
        };
        let mut last = queue.last_answer;
        if queue.term.is_some() {
            last.answered(true, now);
        }
        last
    }

    /// How much longer this process must not ask for the lock. `releases_seen` reads what the store knows of the others.
    pub(crate) fn pause(
        &self,
        name: &Name,
        releases_seen: impl FnOnce() -> Option<ReleasesSeen>,
    ) -> Duration {
        if !self.has_delays.load(Ordering::SeqCst) || !self.lock().fairness_delays.knows(name) {
            return Duration::ZERO;
        }
        let releases_seen = releases_seen(); // without our lock: this is code of the store, which may take its own
        self.lock()
            .fairness_delays
            .pause(name, self.timers.now(), releases_seen)
    }

    /// The store has granted the lock to a task of this process: adapts the fairness delay.
    pub(crate) fn granted(
        &self,
        name: &Name,
        releases_seen: impl FnOnce() -> Option<ReleasesSeen>,
    ) {
        if !self.has_delays.load(Ordering::SeqCst) || !self.lock().fairness_delays.knows(name) {
            return;
        }
        let releases_seen = releases_seen(); // without our lock, as in `pause`
        let now = self.timers.now();
        self.lock()
            .fairness_delays
            .granted(name, now, releases_seen);
    }

    /// Takes the first waiter out of the queue, for a hand-off.
    ///
    /// # Errors
    /// `None`: no waiter, or another number. Otherwise the reason why the waiter may not have the hold: other terms, or
    /// the limits of the term. The hold must then be released in the store.
    pub(crate) fn next_holder(
        &self,
        term: &LeaderTerm,
        now: BootInstant,
    ) -> Result<NextHolder, Option<HandOverStop>> {
        let mut inner = self.lock();
        let least = inner.raised.get(term.name()).copied();
        let queue = inner.queues.get_mut(term.name()).ok_or(None)?;
        let running = queue.term.as_mut();
        let running = running
            .filter(|own| own.number == term.number())
            .ok_or(None)?;
        let waiters = queue.waiters.as_mut().ok_or(None)?;
        let next = waiters.waiting.first_entry().ok_or(None)?;
        running.allows(next.get().terms(), now).map_err(Some)?;
        let token = match &mut running.tokens {
            None => None,
            Some((_, 0)) => return Err(Some(HandOverStop::Doubt)),
            Some((token, _)) if least.is_some_and(|least| *token < least) => {
                return Err(Some(HandOverStop::Doubt));
            }
            Some((token, left)) => {
                let given = *token;
                *token = token.next();
                *left -= 1;
                Some(given)
            }
        };
        running.left -= 1;
        let waiter = next.remove();
        let old = waiters.called.replace(Arc::clone(&waiter));
        waiters.moved = Some(now);
        drop(inner);
        drop(old);
        Ok(NextHolder { waiter, token })
    }

    /// The token counter was raised: hands no smaller token to a waiter.
    pub(crate) fn raised(&self, name: &Name, least: FencingToken) {
        let mut inner = self.lock();
        // Only a leader term has reserved tokens, and it belongs to a queue. Otherwise every name whose counter was ever
        // raised would stay in memory.
        let LocalQueuesState { queues, raised, .. } = &mut *inner;
        raised.retain(|known, _| queues.contains_key(known));
        if queues.contains_key(name) {
            let known = raised.entry(name.clone()).or_insert(least);
            *known = least.max(*known);
        }
    }

    /// The lock was released by force: ends the leader term, because its hold does not have the lock any more.
    pub(crate) fn forced(&self, name: &Name) {
        let number = self
            .lock()
            .queues
            .get(name)
            .and_then(|queue| Some(queue.term.as_ref()?.number));
        if let Some(number) = number {
            self.end_term(name, number);
        }
    }

    /// The leader is gone: calls the first waiter to lead. Removes the queue if there is none.
    pub(crate) fn call_next(&self, mut inner: MutexGuard<'_, LocalQueuesState>, name: &Name) {
        let now = self.timers.now();
        inner.next += 1;
        let number = inner.next;
        // Dropped or woken only after the lock is released: see the lock order above.
        let (mut gone, mut late, mut waker, mut left) = (None, None, None, Vec::new());
        while let Some(queue) = inner.queues.get_mut(name) {
            let waiters = queue.waiters.as_mut();
            let next = waiters.and_then(|waiters| Some((waiters.waiting.pop_first()?.1, waiters)));
            let Some((request, waiters)) = next else {
                gone = inner.queues.remove(name);
                break;
            };
            let own = self.own.upgrade().map(|own| own as _);
            let leader = Leader::new(own, name, number, waiters.wake.take());
            let notification = Notification::TakeLeadership(Box::new(leader));
            match request.waiter().call(notification) {
                Ok(asleep) => {
                    late = waiters.called.replace(request);
                    waiters.moved = Some(now);
                    queue.leader = number;
                    waker = asleep;
                    break;
                }
                // This waiter has just left. We try the one behind it, with the same wake.
                Err(notification) => {
                    if let Notification::TakeLeadership(leader) = notification {
                        waiters.wake = leader.give_up();
                    }
                    left.push(request);
                }
            }
        }
        drop(inner);
        drop((gone, late, left));
        wake_all(waker);
    }

    /// Schedules a look of the steward after `patience`, unless one is scheduled.
    pub(crate) fn schedule_check(&self, inner: &mut LocalQueuesState, now: BootInstant) {
        if inner.check_at == BootInstant::FAR {
            inner.check_at = now + self.patience;
            self.notify.notify_one();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LocalQueuesState> {
        self.inner.lock()
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueues").finish_non_exhaustive()
    }
}
