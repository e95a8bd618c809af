//! Who waits for what in this process: one entry per channel, first come, first woken.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::core::clock::Moment;
use crate::core::timers::{Timer, Timers};

type IdleHook = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// The waiters of a process, by channel. A wake-up goes to one of them, the oldest; one that leaves without having
/// used it passes it on.
#[derive(Clone)]
pub struct Signals(Arc<Shared>);

struct Shared {
    entries: Mutex<HashMap<Arc<str>, Entry>>,
    timers: Timers,
    idle: IdleHook,
}

#[derive(Default)]
struct Entry {
    /// By arrival, oldest first.
    waiters: BTreeMap<u64, Waiter>,
    next: u64,
    /// When the lookout, the oldest waiter, asks again although no message came. One timer for all that wait.
    recheck: Option<Moment>,
}

#[derive(Default)]
struct Waiter {
    woken: bool,
    waker: Option<Waker>,
}

impl Waiter {
    fn wake(&mut self) {
        self.woken = true;
        self.poke();
    }

    fn poke(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Signals {
    /// Nobody waits yet. `idle` is called, not under the lock, when the last waiter of a channel has left.
    pub fn new(timers: Timers, idle: impl Fn(&Arc<str>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            entries: Mutex::default(),
            timers,
            idle: Box::new(idle),
        }))
    }

    /// Takes a place behind all that wait. From now on a wake-up can reach it, so arm it before the question is asked.
    pub fn arm(&self, channel: &str) -> Wake {
        let mut entries = self.lock();
        let (channel, entry) = if let Some((known, _)) = entries.get_key_value(channel) {
            let known = Arc::clone(known);
            (Arc::clone(&known), entries.entry(known).or_default())
        } else {
            let channel: Arc<str> = channel.into();
            (Arc::clone(&channel), entries.entry(channel).or_default())
        };
        entry.next += 1;
        let id = entry.next;
        entry.waiters.insert(id, Waiter::default());
        Wake {
            signals: self.clone(),
            channel,
            id,
            unanswered: false,
            timer: None,
        }
    }

    /// Wakes the oldest waiter that has not been woken.
    pub fn wake_one(&self, channel: &str) {
        if let Some(entry) = self.lock().get_mut(channel)
            && let Some(waiter) = entry.waiters.values_mut().find(|waiter| !waiter.woken)
        {
            waiter.wake();
        }
    }

    /// Wakes all waiters of a channel.
    pub fn wake_all(&self, channel: &str) {
        if let Some(entry) = self.lock().get_mut(channel) {
            entry.waiters.values_mut().for_each(Waiter::wake);
        }
    }

    /// Wakes the oldest waiter of every channel: after a reconnect any message may have been missed.
    pub fn wake_each(&self) {
        for entry in self.lock().values_mut() {
            if let Some(mut waiter) = entry.waiters.first_entry() {
                waiter.get_mut().wake();
            }
        }
    }

    /// These are the same waiters.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Somebody waits for that channel.
    pub fn is_watched(&self, channel: &str) -> bool {
        self.lock().contains_key(channel)
    }

    /// The channels somebody waits for.
    pub fn watched(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Entry>> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals")
            .field("watched", &self.watched())
            .finish()
    }
}

/// A place among the waiters of one channel. It keeps its place and its wake-up while the question is asked again.
pub struct Wake {
    signals: Signals,
    channel: Arc<str>,
    id: u64,
    /// A wake-up was received, and the store has not been asked since.
    unanswered: bool,
    timer: Option<Timer>,
}

impl Wake {
    /// The store has answered: the wake-up is used up.
    pub(crate) fn answered(&mut self) {
        self.unanswered = false;
    }

    /// What the store last said about when to ask again. Shared by all waiters of the channel.
    pub(crate) fn recheck_after(&self, time: Duration) {
        let at = self.signals.0.timers.now() + time;
        let mut entries = self.signals.lock();
        if let Some(entry) = entries.get_mut(&self.channel) {
            let sooner = entry.recheck.is_none_or(|old| at < old);
            entry.recheck = Some(at);
            if sooner && let Some(mut lookout) = entry.waiters.first_entry() {
                lookout.get_mut().poke();
            }
        }
    }

    /// Resolves when this waiter is woken, or when it is the lookout and the time to ask again has come.
    pub(crate) fn woken(&mut self) -> Woken<'_> {
        Woken(self)
    }

    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let signals = self.signals.clone();
        let mut entries = signals.lock();
        let Some(entry) = entries.get_mut(&self.channel) else {
            return Poll::Ready(());
        };
        let lookout = entry
            .waiters
            .first_key_value()
            .is_some_and(|(first, _)| *first == self.id);
        let recheck = entry.recheck;
        let Some(me) = entry.waiters.get_mut(&self.id) else {
            return Poll::Ready(());
        };
        if std::mem::take(&mut me.woken) {
            me.waker = None;
            self.timer = None;
            self.unanswered = true;
            return Poll::Ready(());
        }
        me.waker = Some(cx.waker().clone());
        drop(entries);
        if let Some(at) = recheck.filter(|_| lookout) {
            if self.timer.as_ref().is_none_or(|timer| timer.due() != at) {
                self.timer = Some(signals.0.timers.at(at));
            }
            self.timer
                .as_mut()
                .map_or(Poll::Pending, |timer| Pin::new(timer).poll(cx))
        } else {
            self.timer = None;
            Poll::Pending
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let mut entries = self.signals.lock();
        let Some(entry) = entries.get_mut(&self.channel) else {
            return;
        };
        let mut pass_on = self.unanswered;
        pass_on |= entry.waiters.remove(&self.id).is_some_and(|me| me.woken);
        if let Some(mut lookout) = entry.waiters.first_entry() {
            lookout.get_mut().poke(); // perhaps it is the lookout only now
        }
        if pass_on && let Some(waiter) = entry.waiters.values_mut().find(|waiter| !waiter.woken) {
            waiter.wake();
        }
        if entry.waiters.is_empty() {
            entries.remove(&self.channel);
            drop(entries);
            (self.signals.0.idle)(&self.channel);
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// See [`Wake::woken`].
#[derive(Debug)]
pub(crate) struct Woken<'a>(&'a mut Wake);

impl Future for Woken<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_woken(cx)
    }
}
