//! The local queues: the tasks of this process that wait for the same lock, one queue for each name.
//!
//! Only the leader of a queue sends requests to the store. The algorithm:
//!
//! 1. A request that finds no queue creates one and leads it. Every other request becomes a waiter at the end.
//! 2. A grant to the leader begins a leader term. When the holder releases, `heir` picks the next waiter and the hold
//!    passes to it without a request to the store, with a reserved fencing token of its own.
//! 3. The term allows a number of hand-offs and a time (`HandOff`), so that waiters of other processes get the lock.
//!    Then the hold is released in the store, and the next waiter is called to lead. It is also called if the leader
//!    gives up, or if the hold is lost or removed by force.
//! 4. A queue without progress for `patience` has a leader that is perhaps kept and not polled. The steward takes back
//!    a call that was not answered, or tells the next waiter to ask the store once. If that is granted, the waiter
//!    takes leadership (`usurp`).
//!
//! ```text
//!              join                            begin (granted)
//!   no queue ────────► led by a task ───────────────────────────► led by a hold (leader term)
//!      ▲                │         ▲                                 │  ▲   │
//!      │ no waiter      │ leader  │ next waiter called              │  └───┘ heir: hand-off to the next waiter
//!      │                ▼ dropped │                                 │
//!      └───────────── call_next ──┘◄────────────────────────────────┘ over: released in the store, lost, forced
//!
//!   any state ── usurp: the store has granted the lock to a waiter ──► led by the task of that waiter
//! ```
//!
//! Invariants:
//! 1. A queue exists exactly while it has a leader: a task (`tenure` is `None`) or a hold. A task that was called to
//!    lead counts from the call on; if it leaves without taking the call, the drop of the call calls the next waiter.
//! 2. No two leaders and no two terms have the same number. A leader or a term whose number is not current any more
//!    changes nothing: its `begin` starts no term, its hold is not handed off, and its drop calls no waiter.
//! 3. Waiters are served in the order of their numbers. A waiter that joins again keeps its number. A hold goes only to
//!    the first waiter, and only if that waiter asked for the same terms; otherwise it is released in the store.
//! 4. A waiter is removed from the queue before it is called, so no waiter is called twice for one place.
//! 5. While any queue has a waiter, `look_at` is not `FAR`: the steward will look after it.
//!
//! Lock order: the lock of all queues (`inner`), then the lock of one waiter. The lock of the lease table is never held
//! together with `inner`. We wake waiters and drop wakes, calls and requests after `inner` is released: a dropped call
//! passes on the leader role or the hold in it and takes `inner` again, and a woken task may run inside the wake.
//! Only the steward is notified under `inner`.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::acquire::request::AcquireRequest;
use crate::engine::lease::table::IdHasher;
use crate::engine::local_queue::fairness::FairnessDelays;
use crate::engine::local_queue::fairness_debt::EndedTurn;
use crate::engine::local_queue::leader::{Leader, LeaderState, LeaderTerm};
use crate::engine::local_queue::waiter::{AcquireTerms, Notification, WaiterFuture};
use crate::engine::local_queue::waiters::Waiters;
use crate::guard::FencingToken;
use crate::hand_off::HandOff;
use crate::store::{Awaited, BootInstant, Heard, Name, Timers, Wake};

/// The local queues of one store.
pub(crate) struct LocalQueues {
    pub(crate) inner: Mutex<LocalQueuesState>,
    pub(crate) rules: HandOff,
    pub(crate) timers: Timers,
    /// Bounds how long a queue may go without progress before the steward acts.
    pub(crate) patience: Duration,
    /// Tells the steward that `look_at` has changed from `FAR`.
    pub(crate) bell: Arc<Notify>,
    /// Whether `courtesies` has an entry. For most clients it has none; this flag saves them the mutex.
    owes: AtomicBool,
}

/// The state under the lock.
pub(crate) struct LocalQueuesState {
    pub(crate) lines: HashMap<Name, LocalQueue, BuildHasherDefault<IdHasher>>,
    /// The fairness delays, for names that other processes wait for.
    pub(crate) courtesies: FairnessDelays,
    /// The last number given to a waiter, a leader or a term. No number is used for two leaders or two terms.
    pub(crate) next: u64,
    /// When the steward looks for queues without progress. `FAR` only if no queue has a waiter.
    pub(crate) look_at: BootInstant,
}

/// The local queue of one name.
#[derive(Default)]
pub(crate) struct LocalQueue {
    /// The leader term. `None`: a task leads.
    pub(crate) tenure: Option<HolderTerm>,
    /// The number of the task that leads, or that led before the term began.
    pub(crate) lead: u64,
    /// The waiters behind the leader. Created for the first one, because most locks never have a waiter.
    pub(crate) crowd: Option<Box<Waiters>>,
}

/// A leader term: a granted hold that passes from waiter to waiter.
pub(crate) struct HolderTerm {
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

/// The result of joining a queue.
pub(crate) enum Joined {
    Leads(Leader),
    Waits(WaiterFuture),
}

/// The next holder of a hand-off, and its fencing token.
pub(crate) struct HandOffTarget {
    pub(crate) caller: Arc<AcquireRequest>,
    pub(crate) token: Option<FencingToken>,
}

impl LocalQueue {
    /// Whether the task with that number leads, and no term has begun.
    pub(crate) fn is_led_by(&self, number: u64) -> bool {
        self.lead == number && self.tenure.is_none()
    }

    fn waits(&self) -> bool {
        let crowd = self.crowd.as_ref();
        crowd.is_some_and(|crowd| !crowd.waiting.is_empty())
    }

    /// Keeps the wake for the next leader. Returns a wake that is not needed; drop it after the lock is released.
    pub(crate) fn bequeath(&mut self, wake: Option<Wake>) -> Option<Wake> {
        match &mut self.crowd {
            Some(crowd) if !crowd.waiting.is_empty() => std::mem::replace(&mut crowd.wake, wake),
            _ => wake,
        }
    }

    /// Records that the queue has made progress.
    pub(crate) fn moves(&mut self, now: BootInstant) {
        if let Some(crowd) = &mut self.crowd {
            crowd.moved = Some(now);
        }
    }
}

impl LocalQueues {
    pub(crate) fn new(
        rules: HandOff,
        timers: Timers,
        patience: Duration,
        bell: &Arc<Notify>,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(LocalQueuesState {
                lines: HashMap::default(),
                courtesies: FairnessDelays::default(),
                next: 0,
                look_at: BootInstant::FAR,
            }),
            rules,
            timers,
            patience,
            bell: Arc::clone(bell),
            owes: AtomicBool::new(false),
        })
    }

    /// Leads if there is no queue. Otherwise waits: at the end, or at the old position if `number` is given.
    pub(crate) fn join(
        self: &Arc<Self>,
        caller: &Arc<AcquireRequest>,
        number: Option<u64>,
    ) -> Joined {
        let name = &caller.name;
        let mut inner = self.lock();
        inner.next += 1;
        let number = number.unwrap_or(inner.next);
        if let Some(line) = inner.lines.get_mut(name) {
            let crowd = line
                .crowd
                .get_or_insert_with(|| Waiters::since(self.timers.now()));
            crowd.waiting.insert(number, Arc::clone(caller));
            // The first waiter of any queue: from now on the steward must look for queues without progress.
            if inner.look_at == BootInstant::FAR {
                let now = self.timers.now();
                self.look_later(&mut inner, now);
            }
            drop(inner);
            return Joined::Waits(WaiterFuture::new(number, Arc::clone(caller)));
        }
        let line = LocalQueue {
            lead: number,
            ..LocalQueue::default()
        };
        inner.lines.insert(name.clone(), line);
        Joined::Leads(Leader::of(LeaderState {
            lines: Arc::clone(self),
            name: name.clone(),
            number,
            wake: None,
            alone: true,
        }))
    }

    /// Takes leadership: the store has granted the lock to a waiter, so the former leader no longer has an effect.
    pub(crate) fn usurp(self: &Arc<Self>, name: &Name) -> Leader {
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        let line = inner.lines.entry(name.clone()).or_default();
        line.lead = number;
        line.tenure = None;
        drop(inner);
        Leader::of(LeaderState {
            lines: Arc::clone(self),
            name: name.clone(),
            number,
            wake: None,
            alone: false,
        })
    }

    /// Removes a waiter that has left.
    pub(crate) fn forget(&self, name: &Name, number: u64) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let crowd = line.and_then(|line| line.crowd.as_mut());
        let caller = crowd.and_then(|crowd| crowd.waiting.remove(&number));
        drop(inner);
        drop(caller);
    }

    /// How many fencing tokens to reserve for hand-offs. Zero if nobody waits now.
    pub(crate) fn followers(&self, name: &Name) -> u32 {
        let inner = self.lock();
        let waits = inner.lines.get(name).is_some_and(LocalQueue::waits);
        if waits { self.rules.times } else { 0 }
    }

    /// The store has freed the lock: starts the fairness delay if other processes wait for it. `trip` is how long the
    /// release took; `kept` is how long the lock was held, for a hold without a leader term.
    pub(crate) fn ended(&self, name: &Name, awaited: Awaited, trip: Duration, kept: Duration) {
        if !awaited.is_anybody() && !self.owes.load(Ordering::SeqCst) {
            return;
        }
        let now = self.timers.now();
        let mut inner = self.lock();
        let running = inner.lines.get(name).and_then(|line| line.tenure.as_ref());
        // A hold that is not renewed is never handed off. Its `left` is zero from the start, so we must not count it.
        let handed_on = |running: &HolderTerm| {
            let rest = self.rules.times.saturating_sub(running.left);
            rest * u32::from(running.terms.renewed)
        };
        let ended = EndedTurn {
            now,
            kept: running.map_or(kept, |running| now.since(running.since)),
            turns: running.map_or(0, handed_on).saturating_add(1),
            trip,
            awaited,
        };
        inner.courtesies.ended(name, &ended);
        self.owes
            .store(!inner.courtesies.is_empty(), Ordering::SeqCst);
    }

    /// How much longer this process must not ask for the lock. `heard` reads what the store knows of the others.
    pub(crate) fn pause(&self, name: &Name, heard: impl FnOnce() -> Option<Heard>) -> Duration {
        if !self.owes.load(Ordering::SeqCst) || !self.lock().courtesies.knows(name) {
            return Duration::ZERO;
        }
        let heard = heard(); // without our lock: this is code of the store, which may take its own
        self.lock().courtesies.pause(name, self.timers.now(), heard)
    }

    /// The store has granted the lock to a task of this process: adapts the fairness delay.
    pub(crate) fn granted(&self, name: &Name, heard: impl FnOnce() -> Option<Heard>) {
        if !self.owes.load(Ordering::SeqCst) || !self.lock().courtesies.knows(name) {
            return;
        }
        let heard = heard(); // without our lock, as in `pause`
        let now = self.timers.now();
        self.lock().courtesies.granted(name, now, heard);
    }

    /// Takes the first waiter out of the queue, for a hand-off. `None`: no waiter, another number, other terms, or the
    /// limits of the term are reached. The hold must then be released in the store.
    pub(crate) fn heir(&self, tenure: &LeaderTerm, now: BootInstant) -> Option<HandOffTarget> {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(tenure.name())?;
        let running = line
            .tenure
            .as_mut()
            .filter(|own| own.number == tenure.number())?;
        let crowd = line.crowd.as_mut()?;
        let next = crowd.waiting.first_entry()?;
        if running.left == 0 || now >= running.until || next.get().terms != running.terms {
            return None;
        }
        let token = match &mut running.tokens {
            None => None,
            Some((_, 0)) => return None,
            Some((token, left)) => {
                let given = *token;
                *token = token.next();
                *left -= 1;
                Some(given)
            }
        };
        running.left -= 1;
        let caller = next.remove();
        let old = crowd.called.replace(Arc::clone(&caller));
        crowd.moved = Some(now);
        drop(inner);
        drop(old);
        Some(HandOffTarget { caller, token })
    }

    /// Ends a leader term: its hold was released in the store, or is lost. Calls the next waiter to lead.
    pub(crate) fn over(self: &Arc<Self>, name: &Name, number: u64) {
        let mut inner = self.lock();
        let Some(line) = inner.lines.get_mut(name) else {
            return;
        };
        if line.tenure.as_ref().is_none_or(|own| own.number != number) {
            return;
        }
        line.tenure = None;
        self.call_next(inner, name);
    }

    /// The lock was released by force: ends the leader term, because its hold does not have the lock any more.
    pub(crate) fn forced(self: &Arc<Self>, name: &Name) {
        let number = self
            .lock()
            .lines
            .get(name)
            .and_then(|line| Some(line.tenure.as_ref()?.number));
        if let Some(number) = number {
            self.over(name, number);
        }
    }

    /// The leader is gone: calls the first waiter to lead. Removes the queue if there is none.
    pub(crate) fn call_next(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, LocalQueuesState>,
        name: &Name,
    ) {
        let now = self.timers.now();
        inner.next += 1;
        let number = inner.next;
        // Dropped or woken only after the lock is released: see the lock order above.
        let (mut gone, mut late, mut waker, mut left) = (None, None, None, Vec::new());
        while let Some(line) = inner.lines.get_mut(name) {
            let crowd = line.crowd.as_mut();
            let next = crowd.and_then(|crowd| Some((crowd.waiting.pop_first()?.1, crowd)));
            let Some((caller, crowd)) = next else {
                gone = inner.lines.remove(name);
                break;
            };
            let lead = Leader::of(LeaderState {
                lines: Arc::clone(self),
                name: name.clone(),
                number,
                wake: crowd.wake.take(),
                alone: false,
            });
            match caller.seat.call(Notification::Lead(Box::new(lead))) {
                Ok(asleep) => {
                    late = crowd.called.replace(caller);
                    crowd.moved = Some(now);
                    line.lead = number;
                    waker = asleep;
                    break;
                }
                // This waiter has just left. We try the one behind it, with the same wake.
                Err(call) => {
                    if let Notification::Lead(lead) = call {
                        crowd.wake = lead.into_wake();
                    }
                    left.push(caller);
                }
            }
        }
        drop(inner);
        drop((gone, late, left));
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LocalQueuesState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}
