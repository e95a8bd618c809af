//! Who waits for what in this process: one entry per channel, first come, first woken.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

impl Entry {
    /// The oldest that has not been woken.
    #[must_use]
    fn wake_next(&mut self) -> Option<Waker> {
        let mut asleep = self.waiters.values_mut().filter(|waiter| !waiter.woken);
        asleep.next()?.wake()
    }

    /// The oldest is to look at its timer again.
    #[must_use]
    fn poke_lookout(&mut self) -> Option<Waker> {
        self.waiters.first_entry()?.get_mut().waker.take()
    }
}

#[derive(Default)]
struct Waiter {
    woken: bool,
    waker: Option<Waker>,
}

impl Waiter {
    /// What is returned is to be woken when the lock is free again: an executor may run or drop a task inside of
    /// `wake`, and that task's own [`Wake`] needs the lock.
    #[must_use]
    fn wake(&mut self) -> Option<Waker> {
        self.woken = true;
        self.waker.take()
    }
}

fn ring(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
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
            part: 0,
        }
    }

    /// Wakes the oldest waiter that has not been woken.
    pub fn wake_one(&self, channel: &str) {
        let waker = self.lock().get_mut(channel).and_then(Entry::wake_next);
        ring(waker);
    }

    /// Wakes all waiters of a channel.
    pub fn wake_all(&self, channel: &str) {
        let wakers: Vec<Waker> = match self.lock().get_mut(channel) {
            Some(entry) => entry
                .waiters
                .values_mut()
                .filter_map(Waiter::wake)
                .collect(),
            None => return,
        };
        ring(wakers);
    }

    /// Wakes the oldest waiter of every channel: after a reconnect any message may have been missed.
    pub fn wake_each(&self) {
        let wakers: Vec<Waker> = self
            .lock()
            .values_mut()
            .filter_map(|entry| entry.waiters.first_entry()?.get_mut().wake())
            .collect();
        ring(wakers);
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
    /// Of a set: which member it belongs to.
    part: usize,
}

impl Wake {
    /// The same place, as a wake of that member of a set.
    pub(crate) fn of_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }

    /// Which member of a set it belongs to.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// The store is asked now: a wake-up that has come by now needs no further question. It still goes on to the next
    /// if this waiter leaves without an answer.
    pub(crate) fn use_up(&mut self) {
        let mut entries = self.signals.lock();
        let me = entries
            .get_mut(&self.channel)
            .and_then(|entry| entry.waiters.get_mut(&self.id));
        if let Some(me) = me {
            self.unanswered |= std::mem::take(&mut me.woken);
        }
    }

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
            let lookout = sooner.then(|| entry.poke_lookout()).flatten();
            drop(entries);
            ring(lookout);
        }
    }

    /// As [`recheck_after`](Self::recheck_after), but only the lookout may put off what is due: else waiters that keep
    /// coming would put off its look for ever.
    pub(crate) fn look_after(&self, time: Duration) {
        let mut entries = self.signals.lock();
        if let Some(entry) = entries.get_mut(&self.channel) {
            let lookout = entry.waiters.first_key_value();
            if entry.recheck.is_none() || lookout.is_some_and(|(first, _)| *first == self.id) {
                entry.recheck = Some(self.signals.0.timers.now() + time);
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
        let woken = std::mem::take(&mut me.woken);
        let old = std::mem::replace(&mut me.waker, (!woken).then(|| cx.waker().clone()));
        drop(entries);
        drop(old); // not under the lock: it may be the last that keeps a task
        if woken {
            self.timer = None;
            self.unanswered = true;
            return Poll::Ready(());
        }
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
        let me = entry.waiters.remove(&self.id);
        let pass_on = self.unanswered || me.as_ref().is_some_and(|me| me.woken);
        let lookout = entry.poke_lookout(); // perhaps it is the lookout only now
        let next = pass_on.then(|| entry.wake_next()).flatten();
        let last = entry.waiters.is_empty();
        if last {
            entries.remove(&self.channel);
        }
        drop(entries);
        drop(me);
        ring(lookout.into_iter().chain(next));
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

/// Wakes a task of whatever executor. A panic of that would otherwise end what many others depend on: a connection, every
/// timer and every deadline of the client, or the calls to those who come after it in line.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a task's waker panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake as Task;

    use super::*;
    use crate::core::clock::Clock;

    /// A task whose executor drops it inside of `wake`, and with it the wait of a neighbour.
    struct Dropped(Mutex<Option<Wake>>);

    impl Task for Dropped {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }

    #[test]
    fn a_task_that_is_dropped_while_it_is_woken_harms_nobody() {
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for how in 0..5 {
                let signals = Signals::new(Timers::new(Clock::Boot), |_| {});
                let (mut first, second) = (signals.arm("a"), signals.arm("a"));
                let waker = Waker::from(Arc::new(Dropped(Mutex::new(Some(second)))));
                let mut cx = Context::from_waker(&waker);
                assert!(Pin::new(&mut first.woken()).poll(&mut cx).is_pending());
                match how {
                    0 => signals.wake_one("a"),
                    1 => signals.wake_all("a"),
                    2 => signals.wake_each(),
                    3 => first.recheck_after(Duration::ZERO),
                    _ => {
                        drop(waker);
                        let other = Waker::noop();
                        let mut cx = Context::from_waker(other);
                        // The old waker goes, and with it the task.
                        let _ = Pin::new(&mut first.woken()).poll(&mut cx);
                    }
                }
                drop(first);
                assert!(signals.watched().is_empty());
            }
            done.send(()).unwrap();
        });
        finished
            .recv_timeout(Duration::from_secs(10))
            .expect("no lock is held while a task is woken");
    }
}
