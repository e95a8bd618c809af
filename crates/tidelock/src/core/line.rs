//! The line of those who wait for one name within this process: one of them asks the store, for all; the others wait
//! for their turn behind it.
//!
//! Somebody always leads: the task that asks the store, or the one that was called to, or the tenure, which is a hold
//! that came of it and is passed on within the process. When the tenure ends, the next in line leads.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Moment, Name, Timers, Wake};
use crate::core::courtesy::Courtesy;
use crate::core::lead::{Lead, Leading, Tenure};
use crate::core::seat::{Call, Place, Seat, Terms};
use crate::error::Error;
use crate::guard::FencingToken;
use crate::hand_off::HandOff;

/// The lines of one site.
pub(crate) struct Lines {
    pub(super) inner: Mutex<Inner>,
    pub(super) rules: HandOff,
    pub(super) timers: Timers,
    /// Who does not come for so long after it was called is passed over.
    patience: Duration,
    /// Rung when the steward is to look after those who were called.
    bell: Arc<Notify>,
}

pub(super) struct Inner {
    pub(super) lines: HashMap<Name, Line>,
    /// Names that we have just released, and that others wait for elsewhere.
    courtesy: HashMap<Name, Courtesy>,
    pub(super) next: u64,
    /// When to look after those who were called.
    look_at: Moment,
}

#[derive(Default)]
pub(super) struct Line {
    /// In the order in which they came.
    pub(super) waiting: BTreeMap<u64, Arc<Seat>>,
    /// The hold that leads. `None`: a task does.
    pub(super) tenure: Option<Running>,
    /// Armed for whoever leads next.
    pub(super) wake: Option<Wake>,
    /// Who was called last, and when.
    called: Option<(Arc<Seat>, Moment)>,
}

pub(super) struct Running {
    pub(super) number: u64,
    pub(super) terms: Terms,
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
    pub(super) seat: Arc<Seat>,
    pub(super) token: Option<FencingToken>,
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
                lines: HashMap::new(),
                courtesy: HashMap::new(),
                next: 0,
                look_at: Moment::FAR,
            }),
            rules,
            timers,
            patience,
            bell: Arc::clone(bell),
        })
    }

    /// Leads if nobody else does, or takes the last place.
    pub(crate) fn join(self: &Arc<Self>, name: &Name, seat: impl FnOnce() -> Arc<Seat>) -> Joined {
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        if let Some(line) = inner.lines.get_mut(name) {
            let seat = seat();
            line.waiting.insert(number, Arc::clone(&seat));
            drop(inner);
            let (lines, name) = (Arc::clone(self), name.clone());
            return Joined::Waits(Place {
                lines,
                name,
                number,
                seat,
            });
        }
        inner.lines.insert(name.clone(), Line::default());
        Joined::Leads(Lead::of(Leading {
            lines: Arc::clone(self),
            name: name.clone(),
            wake: None,
            alone: true,
            courtesy: inner.courtesy.get(name).copied(),
        }))
    }

    /// A place was given up.
    pub(super) fn forget(&self, name: &Name, number: u64) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let seat = line.and_then(|line| line.waiting.remove(&number));
        drop(inner);
        drop(seat);
    }

    /// How many are to get the lock after the first, as far as it can be known before.
    pub(super) fn followers(&self, name: &Name) -> u32 {
        let inner = self.lock();
        let waits = inner
            .lines
            .get(name)
            .is_some_and(|line| !line.waiting.is_empty());
        if waits { self.rules.times } else { 0 }
    }

    /// Lets those go first who wait elsewhere. `trip` is how long the release took.
    pub(crate) fn give_way(&self, name: &Name, others: u32, trip: Duration) {
        let now = self.timers.now();
        let courtesy = Courtesy::after(now, others, trip);
        let mut inner = self.lock();
        inner.courtesy.retain(|_, other| other.first > now);
        inner.courtesy.insert(name.clone(), courtesy);
    }

    /// The next who waits for a hold on these terms, if it may be passed on.
    pub(super) fn heir(&self, tenure: &Tenure, now: Moment) -> Option<Heir> {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(tenure.name())?;
        let running = line
            .tenure
            .as_mut()
            .filter(|own| own.number == tenure.number())?;
        let next = line.waiting.first_entry()?;
        if running.left == 0 || now >= running.until || next.get().terms != running.terms {
            return None;
        }
        let token = match &mut running.tokens {
            None => None,
            Some((_, 0)) => return None,
            Some((token, left)) => {
                let given = *token;
                *token = FencingToken::new(token.get() + 1);
                *left -= 1;
                Some(given)
            }
        };
        running.left -= 1;
        let seat = next.remove();
        let old = line.called.replace((Arc::clone(&seat), now));
        self.look_later(&mut inner, now);
        drop(inner);
        drop(old);
        Some(Heir { seat, token })
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
        let courtesy = inner.courtesy.get(name).copied();
        // What is dropped or woken only when the lock is free again.
        let (mut gone, mut late, mut waker) = (None, None, None);
        while let Some(line) = inner.lines.get_mut(name) {
            let Some((_, seat)) = line.waiting.pop_first() else {
                gone = inner.lines.remove(name);
                break;
            };
            let lead = Lead::of(Leading {
                lines: Arc::clone(self),
                name: name.clone(),
                wake: line.wake.take(),
                alone: false,
                courtesy,
            });
            match seat.call(Call::Lead(Box::new(lead))) {
                Ok(asleep) => {
                    late = line.called.replace((seat, now));
                    self.look_later(&mut inner, now);
                    waker = asleep;
                    break;
                }
                // It has left just now.
                Err(Call::Lead(lead)) => line.wake = lead.into_wake(),
                Err(_) => {}
            }
        }
        drop(inner);
        drop((gone, late));
        waker.into_iter().for_each(Waker::wake);
    }

    /// What keeps the store from answering, for all who wait here: it says more than that the time is up. `None`: it answers.
    pub(super) fn trouble(&self, name: &Name, error: Option<&Error>) {
        let inner = self.lock();
        if let Some(line) = inner.lines.get(name) {
            for seat in line.waiting.values() {
                seat.caller.set_trouble(error.map(Error::retold));
            }
        }
    }

    /// Nobody waits any longer: the store has not answered for too long.
    pub(super) fn dismiss(&self, name: &Name, error: &Error) {
        let mut inner = self.lock();
        let Some(line) = inner.lines.get_mut(name) else {
            return;
        };
        let all = std::mem::take(&mut line.waiting);
        drop(inner);
        for seat in all.into_values() {
            if let Ok(Some(waker)) = seat.call(Call::Failed(error.retold())) {
                waker.wake();
            }
        }
    }

    fn look_later(&self, inner: &mut Inner, now: Moment) {
        if inner.look_at == Moment::FAR {
            inner.look_at = now + self.patience;
            self.bell.notify_one();
        }
    }

    /// When the steward is to look next.
    pub(crate) fn next_look(&self) -> Moment {
        self.lock().look_at
    }

    /// Passes over those who were called and did not come: a task that holds its future and does not poll it would else
    /// keep everybody out.
    pub(crate) fn look_after_the_called(&self, now: Moment) {
        let mut inner = self.lock();
        if now < inner.look_at {
            return;
        }
        inner.look_at = Moment::FAR;
        let mut late = Vec::new();
        let mut called = false;
        for (name, line) in &mut inner.lines {
            match &line.called {
                Some((_, since)) if now < *since + self.patience => called = true,
                Some((seat, _)) => {
                    late.extend(seat.call_off().map(|call| (name.clone(), call)));
                    line.called = None;
                }
                None => {}
            }
        }
        if called {
            inner.look_at = now + self.patience;
        }
        drop(inner);
        // In an order of its own: a simulation that is told again must not find another one.
        late.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        drop(late);
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
