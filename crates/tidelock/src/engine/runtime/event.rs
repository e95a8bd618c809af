//! Events: a task sleeps until some state has changed, and misses no change.
//!
//! Two orders matter. The side that listens registers its task before it reads the state, on every poll: a change
//! between a read and the registration would wake nobody. The side that notifies changes the state before it calls
//! [`Event::notify`]. So either the listener reads the new state, or the notification finds the listener.
//!
//! Lock order: the lock of an event is the last one to take. We wake tasks and drop wakers after it is released: an
//! executor may run or drop a task in both, and that task may listen to the same event.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::wakers::wake_all;

/// Wakes the tasks that wait for a change of some state. It has no state of its own, so a notification that finds no
/// listener leaves nothing behind.
#[derive(Default)]
pub(crate) struct Event(Mutex<EventListeners>);

#[derive(Default)]
struct EventListeners {
    /// By slot. `None`: the slot is free, or its listener was woken and has not been polled since.
    wakers: Vec<Option<Waker>>,
    /// The free slots, counted from 1.
    free: Vec<usize>,
}

impl Event {
    /// Wakes all listeners. Change the state before.
    pub(crate) fn notify(&self) {
        let mut listeners = self.lock();
        let wakers: Vec<Waker> = listeners
            .wakers
            .iter_mut()
            .filter_map(Option::take)
            .collect();
        drop(listeners);
        wake_all(wakers);
    }

    /// Resolves when the condition is true, at once if it is true already. Notify after each change that may make it
    /// true.
    pub(crate) async fn until(&self, mut is_true: impl FnMut() -> bool) {
        self.until_some(|| is_true().then_some(())).await;
    }

    /// Resolves to the first value that `read` returns.
    pub(crate) async fn until_some<T>(&self, mut read: impl FnMut() -> Option<T>) -> T {
        let mut listener = EventListener::new(self);
        std::future::poll_fn(|cx| listener.poll_until_some(cx, &mut read)).await
    }

    fn lock(&self) -> MutexGuard<'_, EventListeners> {
        self.0.lock()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

/// A task that listens to an event. Dropping it leaves nothing behind.
pub(crate) struct EventListener<E: Deref<Target = Event>> {
    event: E,
    /// Its slot, counted from 1. 0: it is not registered. Not an `Option`, because this is a part of a small public
    /// future.
    slot: usize,
}

impl<E: Deref<Target = Event>> EventListener<E> {
    pub(crate) fn new(event: E) -> Self {
        Self { event, slot: 0 }
    }

    /// Registers the task, then reads the state. In the other order a change between the two would wake nobody.
    pub(crate) fn poll_until_some<T>(
        &mut self,
        cx: &Context<'_>,
        read: impl FnOnce() -> Option<T>,
    ) -> Poll<T> {
        self.register(cx);
        read().map_or(Poll::Pending, Poll::Ready)
    }

    fn register(&mut self, cx: &Context<'_>) {
        let mut listeners = self.event.lock();
        if self.slot == 0 {
            self.slot = listeners.take_slot();
        }
        let waker = &mut listeners.wakers[self.slot - 1];
        if waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            return;
        }
        let old = waker.replace(cx.waker().clone());
        drop(listeners);
        drop(old);
    }
}

impl EventListeners {
    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len()
        })
    }
}

impl<E: Deref<Target = Event>> Drop for EventListener<E> {
    fn drop(&mut self) {
        if self.slot != 0 {
            let mut listeners = self.event.lock();
            let old = listeners.wakers[self.slot - 1].take();
            listeners.free.push(self.slot);
            drop(listeners);
            drop(old);
        }
    }
}

/// A flag that is set once and never cleared, and that tasks can wait for.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    /// Shared with futures that outlive a borrow of the flag.
    event: Arc<Event>,
}

impl Flag {
    /// Sets the flag and wakes all listeners. True for the first call only.
    pub(crate) fn set(&self) -> bool {
        let first = !self.is_set.swap(true, Ordering::SeqCst);
        self.event.notify();
        first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    /// Notified when the flag is set.
    pub(crate) fn event(&self) -> Arc<Event> {
        Arc::clone(&self.event)
    }

    /// Resolves when the flag is set, at once if it is set already.
    pub(crate) async fn happened(&self) {
        self.event.until(|| self.is_set()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake as Task;

    use futures_util::FutureExt;

    use super::*;

    /// Counts its wakes. The one with the flag panics instead.
    #[derive(Default)]
    struct Woken {
        times: AtomicUsize,
        panics: bool,
    }

    impl Task for Woken {
        fn wake(self: Arc<Self>) {
            assert!(!self.panics, "this waker always panics");
            self.times.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn listen<'a>(flag: &'a Flag, task: &Arc<Woken>) -> EventListener<&'a Event> {
        let mut listener = EventListener::new(&*flag.event);
        let waker = Waker::from(Arc::clone(task));
        let cx = Context::from_waker(&waker);
        let polled = listener.poll_until_some(&cx, || flag.is_set().then_some(()));
        assert!(polled.is_pending());
        listener
    }

    #[test]
    fn a_change_between_the_read_and_the_sleep_is_not_missed() {
        let (flag, task) = (Flag::default(), Arc::<Woken>::default());
        let mut listener = EventListener::new(&*flag.event);
        let waker = Waker::from(Arc::clone(&task));
        let polled = listener.poll_until_some(&Context::from_waker(&waker), || {
            let seen = flag.is_set();
            flag.set(); // another thread, right after the read
            seen.then_some(())
        });
        assert!(polled.is_pending());
        assert_eq!(task.times.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_flag_is_set_once_and_seen_by_early_and_late_listeners() {
        let flag = Flag::default();
        let early: Vec<_> = (0..3).map(|_| Box::pin(flag.happened())).collect();
        let mut early: Vec<_> = early.into_iter().map(FutureExt::fuse).collect();
        for listener in &mut early {
            assert!(listener.now_or_never().is_none());
        }
        assert!(flag.set() && !flag.set());
        for listener in &mut early {
            assert!(listener.now_or_never().is_some());
        }
        assert!(flag.happened().now_or_never().is_some());
    }

    #[test]
    fn a_listener_that_leaves_is_not_woken_and_its_slot_is_used_again() {
        let (flag, task) = (Flag::default(), Arc::<Woken>::default());
        for _ in 0..1000 {
            let (one, two) = (listen(&flag, &task), listen(&flag, &task));
            drop((one, two));
        }
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(flag.event.lock().wakers.len(), 2);
        flag.set();
        assert_eq!(task.times.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_panicking_waker_harms_nobody_else() {
        let flag = Flag::default();
        let panics = Arc::new(Woken {
            panics: true,
            ..Woken::default()
        });
        let task = Arc::<Woken>::default();
        let order = [&task, &panics, &task, &panics, &task];
        let listeners = order.map(|task| listen(&flag, task));
        flag.set();
        assert_eq!(task.times.load(Ordering::SeqCst), 3);
        drop(listeners);
    }
}
