//! Every timer of a client, behind one alarm on the boot clock.
//!
//! The steward's thread rings the alarm, so timers work on any executor, without tokio's time driver, and when the
//! caller's runtime has gone (a tokio `Sleep` panics then). A timer that is set and dropped again costs two map operations and wakes nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::core::clock::{Clock, Moment};
use crate::core::rt::Alarm;

/// Hands out timers. Cheap to clone; the clones share one alarm.
#[derive(Clone)]
pub struct Timers(Arc<Shared>);

struct Shared {
    clock: Clock,
    queue: Mutex<Queue>,
    /// Rung when a timer is set that is due before the alarm.
    bell: Notify,
}

struct Queue {
    waiting: BTreeMap<(Moment, u64), Waker>,
    next: u64,
    /// When the alarm will ring. It may be earlier than the first timer, never later.
    alarm: Moment,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Self {
        let queue = Queue {
            waiting: BTreeMap::new(),
            next: 0,
            alarm: Moment::FAR,
        };
        Self(Arc::new(Shared {
            clock,
            queue: Mutex::new(queue),
            bell: Notify::new(),
        }))
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// The clock these timers go by.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Resolves at that instant.
    pub fn at(&self, at: Moment) -> Timer {
        let (shared, key) = (Arc::clone(&self.0), None);
        Timer {
            at,
            place: Place { shared, key },
        }
    }

    /// Resolves after that time.
    pub fn after(&self, time: Duration) -> Timer {
        self.at(self.now() + time)
    }

    /// Runs a future, but no longer than that time. `None`: it took longer and was dropped.
    pub async fn limit<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        if time.is_zero() {
            return future.now_or_never();
        }
        self.until(self.now() + time, future).await
    }

    /// Runs a future, but only until that instant. `None`: it took longer and was dropped.
    pub async fn until<F: Future>(&self, at: Moment, future: F) -> Option<F::Output> {
        let mut place = Place {
            shared: &*self.0,
            key: None,
        };
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // The first look at the clock is the alarm's: most requests are answered before there is a second.
            if place.key.is_some() && self.now() >= at {
                return Poll::Ready(None);
            }
            place.take(at, cx);
            Poll::Pending
        })
        .await
    }

    /// Rings the alarm for ever. Runs on the steward's thread.
    pub(crate) async fn drive(self) {
        let mut alarm = Alarm::new(self.0.clock);
        loop {
            let next = self.0.lock().alarm;
            tokio::select! {
                () = alarm.until(next) => {}
                () = self.0.bell.notified() => {}
            }
            for waker in self.take_due() {
                // A foreign executor's panic would otherwise end every timer and every deadline of the client.
                if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                    tracing::error!("a task's waker panicked");
                }
            }
        }
    }

    fn take_due(&self) -> Vec<Waker> {
        let now = self.now();
        let mut queue = self.0.lock();
        if now < queue.alarm {
            // Rung for an earlier alarm. It stays, though its timer may have gone by now: were it put off, every lone
            // request would wake this thread anew.
            return Vec::new();
        }
        let later = queue
            .waiting
            .split_off(&(Moment(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut queue.waiting, later);
        queue.alarm = queue
            .waiting
            .first_key_value()
            .map_or(Moment::FAR, |((at, _), _)| *at);
        due.into_values().collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue, given up when dropped.
struct Place<S: Deref<Target = Shared>> {
    shared: S,
    key: Option<(Moment, u64)>,
}

impl<S: Deref<Target = Shared>> Place<S> {
    /// Has this task woken at that instant, at once if it has come already.
    fn take(&mut self, at: Moment, cx: &Context<'_>) {
        if at == Moment::FAR {
            return;
        }
        let mut queue = self.shared.lock();
        let key = *self.key.get_or_insert_with(|| {
            queue.next += 1;
            (at, queue.next)
        });
        let old = match queue.waiting.get_mut(&key) {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => queue.waiting.insert(key, cx.waker().clone()),
        };
        let sooner = at < queue.alarm;
        if sooner {
            queue.alarm = at;
        }
        drop(queue);
        drop(old); // not under the lock: it may be the last that keeps a task, and that task's timers
        if sooner {
            self.shared.bell.notify_one();
        }
    }

    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            let old = self.shared.lock().waiting.remove(&key);
            drop(old); // not under the lock, as above
        }
    }
}

impl<S: Deref<Target = Shared>> Drop for Place<S> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("clock", &self.0.clock)
            .finish_non_exhaustive()
    }
}

/// Resolves at its instant. Dropping it leaves nothing behind.
pub struct Timer {
    at: Moment,
    place: Place<Arc<Shared>>,
}

impl Timer {
    /// When it is due.
    pub fn due(&self) -> Moment {
        self.at
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The clock is asked before the queue: after a freeze nothing runs on in the belief that time has stood still.
        if self.place.shared.clock.now() >= self.at {
            self.place.leave();
            return Poll::Ready(());
        }
        let at = self.at;
        self.place.take(at, cx);
        Poll::Pending
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
