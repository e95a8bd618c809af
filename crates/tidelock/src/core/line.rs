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
    /// When to look after those who wait.
    look_at: Moment,
}

#[derive(Default)]
pub(super) struct Line {
    /// The hold that leads. `None`: a task does.
    pub(super) tenure: Option<Running>,
    /// Which task, if one does.
    pub(super) lead: u64,
    /// Those behind it. Made for the first that waits: for most locks nobody ever does.
    crowd: Option<Box<Crowd>>,
}

#[derive(Default)]
struct Crowd {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Arc<Seat>>,
    /// Armed for whoever leads next.
    wake: Option<Wake>,
    /// Who was called last.
    called: Option<Arc<Seat>>,
    /// When something last happened here.
    moved: Option<Moment>,
    /// Those who wait have been told why the store does not answer.
    troubled: bool,
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

impl Crowd {
    fn since(now: Moment) -> Box<Self> {
        Box::new(Self {
            moved: Some(now),
            ..Self::default()
        })
    }
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

    /// Leads if nobody else does, or takes a place: the last, or the one it had before.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: &Name,
        number: Option<u64>,
        seat: impl FnOnce() -> Arc<Seat>,
    ) -> Joined {
        let mut inner = self.lock();
        inner.next += 1;
        let number = number.unwrap_or(inner.next);
        if let Some(line) = inner.lines.get_mut(name) {
            let seat = seat();
            let crowd = line
                .crowd
                .get_or_insert_with(|| Crowd::since(self.timers.now()));
            crowd.waiting.insert(number, Arc::clone(&seat));
            if inner.look_at == Moment::FAR {
                let now = self.timers.now();
                self.look_later(&mut inner, now);
            }
            drop(inner);
            let (lines, name) = (Arc::clone(self), name.clone());
            return Joined::Waits(Place {
                lines,
                name,
                number,
                seat,
            });
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
            courtesy: self.courtesy(&inner, name),
        }))
    }

    fn courtesy(&self, inner: &Inner, name: &Name) -> Option<Courtesy> {
        let courtesy = inner.courtesy.get(name)?;
        courtesy.stands(self.timers.now()).then_some(*courtesy)
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
            courtesy: None,
        })
    }

    /// A place was given up.
    pub(super) fn forget(&self, name: &Name, number: u64) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let crowd = line.and_then(|line| line.crowd.as_mut());
        let seat = crowd.and_then(|crowd| crowd.waiting.remove(&number));
        drop(inner);
        drop(seat);
    }

    /// How many are to get the lock after the first, as far as it can be known before.
    pub(super) fn followers(&self, name: &Name) -> u32 {
        let inner = self.lock();
        let waits = inner.lines.get(name).is_some_and(Line::waits);
        if waits { self.rules.times } else { 0 }
    }

    /// Lets those go first who wait elsewhere. `trip` is how long the release took.
    pub(crate) fn give_way(&self, name: &Name, others: u32, trip: Duration) {
        let now = self.timers.now();
        let courtesy = Courtesy::after(now, others, trip);
        let mut inner = self.lock();
        inner.courtesy.retain(|_, other| other.stands(now));
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
                *token = FencingToken::new(token.get() + 1);
                *left -= 1;
                Some(given)
            }
        };
        running.left -= 1;
        let seat = next.remove();
        let old = crowd.called.replace(Arc::clone(&seat));
        crowd.moved = Some(now);
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
        let courtesy = self.courtesy(&inner, name);
        inner.next += 1;
        let number = inner.next;
        // What is dropped or woken only when the lock is free again.
        let (mut gone, mut late, mut waker) = (None, None, None);
        while let Some(line) = inner.lines.get_mut(name) {
            let crowd = line.crowd.as_mut();
            let next = crowd.and_then(|crowd| Some((crowd.waiting.pop_first()?.1, crowd)));
            let Some((seat, crowd)) = next else {
                gone = inner.lines.remove(name);
                break;
            };
            let lead = Lead::of(Leading {
                lines: Arc::clone(self),
                name: name.clone(),
                number,
                wake: crowd.wake.take(),
                alone: false,
                courtesy,
            });
            match seat.call(Call::Lead(Box::new(lead))) {
                Ok(asleep) => {
                    late = crowd.called.replace(seat);
                    crowd.moved = Some(now);
                    line.lead = number;
                    waker = asleep;
                    break;
                }
                // It has left just now.
                Err(Call::Lead(lead)) => crowd.wake = lead.into_wake(),
                Err(_) => {}
            }
        }
        drop(inner);
        drop((gone, late));
        waker.into_iter().for_each(Waker::wake);
    }

    /// What keeps the store from answering, for all who wait here: it says more than that the time is up. `None`: it answers.
    pub(super) fn trouble(&self, name: &Name, error: Option<&Error>) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        if let Some(crowd) = line.and_then(|line| line.crowd.as_mut())
            && (error.is_some() || crowd.troubled)
        {
            crowd.troubled = error.is_some();
            for seat in crowd.waiting.values() {
                seat.caller.set_trouble(error.map(Error::retold));
            }
        }
    }

    /// Nobody waits any longer: the store has not answered for too long.
    pub(super) fn dismiss(&self, name: &Name, error: &Error) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let Some(crowd) = line.and_then(|line| line.crowd.as_mut()) else {
            return;
        };
        let all = std::mem::take(&mut crowd.waiting);
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

    /// Where nothing has happened for long, whoever leads may have stopped: its future is kept and not polled. Takes back
    /// a call that was not answered, or has the next in line ask the store for itself: if it is granted the lock, it leads.
    pub(crate) fn look_after_the_waiting(&self, now: Moment) {
        let mut inner = self.lock();
        if now < inner.look_at {
            return;
        }
        inner.look_at = Moment::FAR;
        let (mut late, mut scouts) = (Vec::new(), Vec::new());
        let mut waiting = false;
        for (name, line) in &mut inner.lines {
            let Some(crowd) = &mut line.crowd else {
                continue;
            };
            let called = crowd.called.as_ref().is_some_and(|seat| seat.is_called());
            waiting |= called || !crowd.waiting.is_empty();
            if now < *crowd.moved.get_or_insert(now) + self.patience {
                continue;
            }
            crowd.moved = Some(now);
            if let Some(call) = crowd.called.take().and_then(|seat| seat.call_off()) {
                late.push((name.clone(), call));
            } else if let Some((_, seat)) = crowd.waiting.pop_first()
                && let Ok(waker) = seat.call(Call::Scout)
            {
                crowd.called = Some(seat);
                scouts.push((name.clone(), waker));
            }
        }
        if waiting {
            inner.look_at = now + self.patience;
        }
        drop(inner);
        // In an order of its own: a simulation that is told again must not find another one.
        late.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        scouts.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        drop(late);
        for (_, waker) in scouts {
            waker.into_iter().for_each(Waker::wake);
        }
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
