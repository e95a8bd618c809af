//! The wakes of this process, by channel: the oldest waiter of a channel is woken first.
//!
//! A channel is a string under which a store reports releases, such as the name of a lock. Several values exist in one
//! client: one per store, and one per store handle for waiters that poll. The algorithm:
//!
//! 1. A waiter arms a [`Wake`] before it sends its attempt. A release that follows the refusal therefore reaches it.
//! 2. A message of the store wakes the oldest waiter of the channel that has no wake yet. That waiter asks again.
//! 3. A message may be lost. So the oldest waiter of a channel, the lookout, also asks again at the channel's recheck
//!    time. One timer serves all waiters of the channel.
//! 4. A waiter with a recheck time of its own asks again at that time too: the lookout may be a future that is kept and
//!    not polled, and other waiters may postpone the channel's time.
//!
//! ```text
//!                 wake_one, wake_all, wake_each
//!   arm ─► asleep ─────────────────────────────► woken
//!            ▲                                     │ `woken()` resolves, or `use_up` before an attempt
//!            │  `answered`: the store has replied  ▼
//!            └──────────────────────────────── unanswered ─► may become woken again while its attempt is in flight
//!
//!   Drop leaves the channel. In state woken or unanswered it passes the wake to the next waiter.
//!   The recheck time resolves `woken()` of the lookout and changes no state.
//! ```
//!
//! Invariants:
//! 1. `wake_one` picks the oldest waiter whose `woken` flag is not set. If every waiter has a wake, we discard this
//!    one: each of them asks the store after it. An unanswered waiter can get a second wake, because the store may have
//!    decided its attempt before the release that caused the second wake.
//! 2. No wake is lost while a waiter without one remains: a waiter that leaves with a wake, or before the store has
//!    answered the attempt that the wake caused, passes it on.
//! 3. Only the lookout has a timer, and waiters with a recheck time of their own. If the lookout leaves, or the recheck
//!    time moves closer, we poke the current lookout: it runs again and sets its timer.
//! 4. A channel has an entry exactly while it has a waiter. `idle` runs after the last waiter has left and after the
//!    lock is released, so a new waiter may have come by then: the hook must check [`WakeChannels::is_watched`].
//!
//! Lock order: one lock per value, and it is the last one to take. While we hold it we take no other lock, call no
//! waker, drop no waker and do not call `idle`: an executor may run or drop a task in each of these, and that task's
//! own [`Wake`] takes the same lock. A store may hold its own lock while it calls `arm`, `is_watched` or `watched`, but
//! not while it wakes or drops a [`Wake`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::timers::{Timer, Timers};
use crate::engine::runtime::wakers::wake_all;

type IdleHook = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// The waiters of this process, by channel. A wake goes to the oldest waiter without one. A waiter that leaves and has
/// not used its wake passes it on.
#[derive(Clone)]
pub struct WakeChannels(Arc<WakeChannelsInner>);

struct WakeChannelsInner {
    /// Invariant: an entry has at least one waiter.
    entries: Mutex<HashMap<Arc<str>, WakeChannel>>,
    timers: Timers,
    /// Called with a channel whose last waiter has left. Never called under the lock.
    idle: IdleHook,
}

#[derive(Default)]
struct WakeChannel {
    /// By arrival: the first is the oldest, and the lookout.
    waiters: BTreeMap<u64, WakeWaiter>,
    next: u64,
    /// When the lookout asks again even if no message comes. It serves all waiters of the channel.
    recheck: Option<BootInstant>,
}

impl WakeChannel {
    /// Wakes the oldest waiter that has no wake yet. The caller wakes the task after it has released the lock.
    #[must_use]
    fn wake_next(&mut self) -> Option<Waker> {
        let mut asleep = self.waiters.values_mut().filter(|waiter| !waiter.woken);
        asleep.next()?.wake()
    }

    /// Returns the task of the lookout. Polled again, it reads the recheck time and sets its timer.
    #[must_use]
    fn poke_lookout(&mut self) -> Option<Waker> {
        self.waiters.first_entry()?.get_mut().waker.take()
    }
}

#[derive(Default)]
struct WakeWaiter {
    /// A wake has arrived, and neither `woken()` nor `use_up` has taken it.
    woken: bool,
    waker: Option<Waker>,
}

impl WakeWaiter {
    /// Sets the flag and returns the task. The caller wakes it after it has released the lock: an executor may run or
    /// drop a task inside `wake`, and that task's own [`Wake`] takes the lock.
    #[must_use]
    fn wake(&mut self) -> Option<Waker> {
        self.woken = true;
        self.waker.take()
    }
}

impl WakeChannels {
    /// Starts without waiters. `idle` is called when the last waiter of a channel has left, and not under the lock.
    pub fn new(timers: Timers, idle: impl Fn(&Arc<str>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(WakeChannelsInner {
            entries: Mutex::default(),
            timers,
            idle: Box::new(idle),
        }))
    }

    /// Adds a waiter behind all others of the channel. A wake can reach it from now on, so arm it before you send the
    /// attempt. Otherwise a release between the two wakes nobody.
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
        entry.waiters.insert(id, WakeWaiter::default());
        Wake {
            signals: self.clone(),
            channel,
            id,
            unanswered: false,
            timer: None,
            part: 0,
            alone: false,
            own_recheck: None,
        }
    }

    /// Wakes the oldest waiter of a channel that has no wake yet.
    pub fn wake_one(&self, channel: &str) {
        let waker = self
            .lock()
            .get_mut(channel)
            .and_then(WakeChannel::wake_next);
        wake_all(waker);
    }

    /// Wakes all waiters of a channel.
    pub fn wake_all(&self, channel: &str) {
        let wakers: Vec<Waker> = match self.lock().get_mut(channel) {
            Some(entry) => entry
                .waiters
                .values_mut()
                .filter_map(WakeWaiter::wake)
                .collect(),
            None => return,
        };
        wake_all(wakers);
    }

    /// Wakes the oldest waiter of every channel, even if it has a wake, and the oldest one that has none. Call it after a
    /// reconnect: any message may have been missed. Two of them, because the oldest may be a future that is kept and not
    /// polled.
    pub fn wake_each(&self) {
        let mut wakers: Vec<Waker> = Vec::new();
        for entry in self.lock().values_mut() {
            let oldest = entry.waiters.values_mut().next();
            wakers.extend(oldest.and_then(WakeWaiter::wake));
            wakers.extend(entry.wake_next());
        }
        wake_all(wakers);
    }

    /// Whether both values share the same waiters.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the channel has a waiter.
    pub fn is_watched(&self, channel: &str) -> bool {
        self.lock().contains_key(channel)
    }

    /// The channels that have a waiter.
    pub fn watched(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, WakeChannel>> {
        self.0.entries.lock()
    }
}

impl fmt::Debug for WakeChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals")
            .field("watched", &self.watched())
            .finish()
    }
}

/// A waiter of one channel. It keeps its position and its wake while its owner asks the store again. Dropping it leaves
/// the channel, and passes on a wake that was not used.
pub struct Wake {
    signals: WakeChannels,
    channel: Arc<str>,
    id: u64,
    /// It has taken a wake, and the store has not answered an attempt since.
    unanswered: bool,
    /// Set only while this is the lookout, or has a recheck time of its own.
    timer: Option<Timer>,
    /// In a set of stores: the number that the set has given it, which names the member that armed it.
    part: usize,
    /// It rechecks for itself, and does not leave that to the lookout.
    alone: bool,
    /// Its own recheck time. If it is the lookout and not `alone`, the channel's time counts too.
    own_recheck: Option<BootInstant>,
}

impl Wake {
    /// The same waiter, with this number of a set.
    pub(crate) fn of_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }

    /// The same waiter with a recheck time of its own: for a store in which only a waiter's own attempts keep its
    /// position.
    #[must_use]
    pub fn rechecks_alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// The number that a set has given it. It is not the index of a member.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// Call it right before an attempt: the attempt also serves a wake that has arrived by now. If this waiter leaves
    /// before the store answers, the wake still passes to the next waiter.
    pub(crate) fn use_up(&mut self) {
        let mut entries = self.signals.lock();
        let me = entries
            .get_mut(&self.channel)
            .and_then(|entry| entry.waiters.get_mut(&self.id));
        if let Some(me) = me {
            self.unanswered |= std::mem::take(&mut me.woken);
        }
    }

    /// The store has answered: this waiter no longer passes on the wake it has taken.
    pub(crate) fn answered(&mut self) {
        self.unanswered = false;
    }

    /// After [`woken`](Self::woken): whether a message woke it, and not the recheck time.
    pub(crate) fn is_by_message(&self) -> bool {
        self.unanswered
    }

    /// Sets the recheck time of the channel, for all its waiters. The latest answer of the store wins.
    pub(crate) fn recheck_after(&mut self, time: Duration) {
        let at = self.signals.0.timers.now() + time;
        if self.alone {
            self.own_recheck = Some(at);
            return;
        }
        let mut entries = self.signals.lock();
        if let Some(entry) = entries.get_mut(&self.channel) {
            // The lookout sleeps until the old time, so we poke it if the new time is sooner. If it is later, the
            // lookout finds out when the old timer fires.
            let sooner = entry.recheck.is_none_or(|old| at < old);
            entry.recheck = Some(at);
            let lookout = sooner.then(|| entry.poke_lookout()).flatten();
            drop(entries);
            wake_all(lookout);
        }
    }

    /// Lets this waiter ask again after that time, whether it is the lookout or not: the lookout, or the waiter that got the
    /// wake, may be a future that is kept and not polled. And those that ask for themselves postpone the channel's time.
    pub(crate) fn recheck_at_latest(&mut self, time: Duration) {
        if !self.alone {
            self.own_recheck = Some(self.signals.0.timers.now() + time);
        }
    }

    /// As [`recheck_after`](Self::recheck_after), but only the lookout may move a time that is set. Otherwise a stream
    /// of new waiters would postpone the recheck without end.
    pub(crate) fn look_after(&mut self, time: Duration) {
        if self.alone {
            return self.recheck_after(time);
        }
        let mut entries = self.signals.lock();
        if let Some(entry) = entries.get_mut(&self.channel) {
            let lookout = entry.waiters.first_key_value();
            if entry.recheck.is_none() || lookout.is_some_and(|(first, _)| *first == self.id) {
                entry.recheck = Some(self.signals.0.timers.now() + time);
            }
        }
    }

    /// Resolves when this waiter is woken, when it is the lookout and the recheck time has come, or at its own recheck
    /// time. Cancel-safe: a wake
    /// that the caller does not wait for stays with this waiter.
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
        let woken = std::mem::take(&mut me.woken);
        let old = std::mem::replace(&mut me.waker, (!woken).then(|| cx.waker().clone()));
        drop(entries);
        drop(old); // not under the lock: it may be the last reference to a task, whose drop takes the lock
        if woken {
            self.timer = None;
            self.unanswered = true;
            return Poll::Ready(());
        }
        let of_channel = recheck.filter(|_| lookout && !self.alone);
        let recheck = of_channel.into_iter().chain(self.own_recheck).min();
        if let Some(at) = recheck {
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
        let me = entry.waiters.remove(&self.id);
        let pass_on = self.unanswered || me.as_ref().is_some_and(|me| me.woken);
        let lookout = entry.poke_lookout(); // if we were the lookout, the next waiter is it now
        let next = pass_on.then(|| entry.wake_next()).flatten();
        let last = entry.waiters.is_empty();
        // The map entry goes with the last waiter. Otherwise every channel ever used would stay in memory.
        if last {
            entries.remove(&self.channel);
        }
        drop(entries);
        drop(me);
        wake_all(lookout.into_iter().chain(next));
        if last {
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

#[cfg(test)]
mod tests;
