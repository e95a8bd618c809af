//! The line of those who wait for one name within this process: one of them asks the store, for all; the others wait
//! for their turn behind it.
//!
//! Somebody always leads: the task that asks the store, or the one that was called to, or the tenure, which is a hold
//! that came of it and is passed on within the process. When the tenure ends, the next in line leads.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Awaited, Heard, Moment, Name, Timers, Wake};
use crate::core::caller::Caller;
use crate::core::courtesy::Courtesies;
use crate::core::crowd::Crowd;
use crate::core::debt::Ended;
use crate::core::lead::{Lead, Leading, Tenure};
use crate::core::seat::{Call, Place, Terms};
use crate::core::table::Spread;
use crate::guard::FencingToken;
use crate::hand_off::HandOff;

/// The lines of one site.
pub(crate) struct Lines {
    pub(super) inner: Mutex<Inner>,
    pub(super) rules: HandOff,
    pub(super) timers: Timers,
    /// Who does not come for so long after it was called is passed over.
    pub(super) patience: Duration,
    /// Rung when the steward is to look after those who were called.
    pub(super) bell: Arc<Notify>,
    /// There is an account of some name. For most clients there is none, and then nobody takes the mutex for it.
    owes: AtomicBool,
}

pub(super) struct Inner {
    pub(super) lines: HashMap<Name, Line, BuildHasherDefault<Spread>>,
    /// What this process owes to waiters elsewhere.
    pub(super) courtesies: Courtesies,
    pub(super) next: u64,
    /// When to look after those who wait.
    pub(super) look_at: Moment,
}

#[derive(Default)]
pub(super) struct Line {
    /// The hold that leads. `None`: a task does.
    pub(super) tenure: Option<Running>,
    /// Which task, if one does.
    pub(super) lead: u64,
    /// Those behind it. Made for the first that waits: for most locks nobody ever does.
    pub(super) crowd: Option<Box<Crowd>>,
}

pub(super) struct Running {
    pub(super) number: u64,
    pub(super) terms: Terms,
    pub(super) since: Moment,
    /// How often it may still be passed on, and until when.
    pub(super) left: u32,
    pub(super) until: Moment,
    /// The next token that was reserved, and how many are left.
    pub(super) tokens: Option<(FencingToken, u32)>,
}

/// The first task of a line.
pub(crate) enum Joined {
    Leads(Lead),
    Waits(Place),
}

/// Who gets a hold next.
pub(super) struct Heir {
    pub(super) caller: Arc<Caller>,
    pub(super) token: Option<FencingToken>,
}

impl Line {
    /// That task leads, and no hold does.
    pub(super) fn is_led_by(&self, number: u64) -> bool {
        self.lead == number && self.tenure.is_none()
    }

    fn waits(&self) -> bool {
        let crowd = self.crowd.as_ref();
        crowd.is_some_and(|crowd| !crowd.waiting.is_empty())
    }

    /// Keeps a wake for those who wait. Gives back what is of no use, to be dropped when nothing is locked.
    pub(super) fn bequeath(&mut self, wake: Option<Wake>) -> Option<Wake> {
        match &mut self.crowd {
            Some(crowd) if !crowd.waiting.is_empty() => std::mem::replace(&mut crowd.wake, wake),
            _ => wake,
        }
    }

    /// Something has happened here.
    pub(super) fn moves(&mut self, now: Moment) {
        if let Some(crowd) = &mut self.crowd {
            crowd.moved = Some(now);
        }
    }
}

impl Lines {
    pub(crate) fn new(
        rules: HandOff,
        timers: Timers,
        patience: Duration,
        bell: &Arc<Notify>,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                lines: HashMap::default(),
                courtesies: Courtesies::default(),
                next: 0,
                look_at: Moment::FAR,
            }),
            rules,
            timers,
            patience,
            bell: Arc::clone(bell),
            owes: AtomicBool::new(false),
        })
    }

    /// Leads if nobody else does, or takes a place: the last, or the one it had before.
    pub(crate) fn join(self: &Arc<Self>, caller: &Arc<Caller>, number: Option<u64>) -> Joined {
        let name = &caller.name;
        let mut inner = self.lock();
        inner.next += 1;
        let number = number.unwrap_or(inner.next);
        if let Some(line) = inner.lines.get_mut(name) {
            let crowd = line
                .crowd
                .get_or_insert_with(|| Crowd::since(self.timers.now()));
            crowd.waiting.insert(number, Arc::clone(caller));
            if inner.look_at == Moment::FAR {
                let now = self.timers.now();
                self.look_later(&mut inner, now);
            }
            drop(inner);
            return Joined::Waits(Place::new(number, Arc::clone(caller)));
        }
        let line = Line {
            lead: number,
            ..Line::default()
        };
        inner.lines.insert(name.clone(), line);
        Joined::Leads(Lead::of(Leading {
            lines: Arc::clone(self),
            name: name.clone(),
            number,
            wake: None,
            alone: true,
        }))
    }

    /// The store has granted the lock to one of those who wait: whoever leads does so in vain.
    pub(super) fn usurp(self: &Arc<Self>, name: &Name) -> Lead {
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        let line = inner.lines.entry(name.clone()).or_default();
        line.lead = number;
        line.tenure = None;
        drop(inner);
        Lead::of(Leading {
            lines: Arc::clone(self),
            name: name.clone(),
            number,
            wake: None,
            alone: false,
        })
    }

    /// A place was given up.
    pub(super) fn forget(&self, name: &Name, number: u64) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let crowd = line.and_then(|line| line.crowd.as_mut());
        let caller = crowd.and_then(|crowd| crowd.waiting.remove(&number));
        drop(inner);
        drop(caller);
    }

    /// How many are to get the lock after the first, as far as it can be known before.
    pub(super) fn followers(&self, name: &Name) -> u32 {
        let inner = self.lock();
        let waits = inner.lines.get(name).is_some_and(Line::waits);
        if waits { self.rules.times } else { 0 }
    }

    /// The store has freed the lock, and waiters elsewhere go first. `trip` is how long the release took; `kept` is how long the
    /// lock was held, for a hold that did not lead a line.
    pub(crate) fn ended(&self, name: &Name, awaited: Awaited, trip: Duration, kept: Duration) {
        if !awaited.is_anybody() && !self.owes.load(Ordering::SeqCst) {
            return;
        }
        let now = self.timers.now();
        let mut inner = self.lock();
        let running = inner.lines.get(name).and_then(|line| line.tenure.as_ref());
        // A hold with a limit is never handed on.
        let handed_on = |running: &Running| {
            let rest = self.rules.times.saturating_sub(running.left);
            rest * u32::from(running.terms.renewed)
        };
        let ended = Ended {
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

    /// How long this process must not ask for the lock yet, because others go first.
    pub(super) fn pause(&self, name: &Name, heard: impl FnOnce() -> Option<Heard>) -> Duration {
        if !self.owes.load(Ordering::SeqCst) || !self.lock().courtesies.knows(name) {
            return Duration::ZERO;
        }
        let heard = heard(); // not under the lock
        self.lock().courtesies.pause(name, self.timers.now(), heard)
    }

    /// The store has granted it to a task of this process.
    pub(super) fn granted(&self, name: &Name, heard: impl FnOnce() -> Option<Heard>) {
        if !self.owes.load(Ordering::SeqCst) || !self.lock().courtesies.knows(name) {
            return;
        }
        let heard = heard(); // not under the lock
        let now = self.timers.now();
        self.lock().courtesies.granted(name, now, heard);
    }

    /// The next who waits for a hold on these terms, if it may be passed on.
    pub(super) fn heir(&self, tenure: &Tenure, now: Moment) -> Option<Heir> {
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
        Some(Heir { caller, token })
    }

    /// A tenure is over, or cannot be passed on any more because it is lost: the next in line leads.
    pub(super) fn over(self: &Arc<Self>, name: &Name, number: u64) {
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

    /// The lock was freed by force: what leads here is not believed in any more.
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

    /// Nobody leads: calls the next. The line goes with the last.
    pub(super) fn call_next(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, name: &Name) {
        let now = self.timers.now();
        inner.next += 1;
        let number = inner.next;
        // What is dropped or woken only when the lock is free again.
        let (mut gone, mut late, mut waker, mut left) = (None, None, None, Vec::new());
        while let Some(line) = inner.lines.get_mut(name) {
            let crowd = line.crowd.as_mut();
            let next = crowd.and_then(|crowd| Some((crowd.waiting.pop_first()?.1, crowd)));
            let Some((caller, crowd)) = next else {
                gone = inner.lines.remove(name);
                break;
            };
            let lead = Lead::of(Leading {
                lines: Arc::clone(self),
                name: name.clone(),
                number,
                wake: crowd.wake.take(),
                alone: false,
            });
            match caller.seat.call(Call::Lead(Box::new(lead))) {
                Ok(asleep) => {
                    late = crowd.called.replace(caller);
                    crowd.moved = Some(now);
                    line.lead = number;
                    waker = asleep;
                    break;
                }
                // It has left just now.
                Err(call) => {
                    if let Call::Lead(lead) = call {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}
