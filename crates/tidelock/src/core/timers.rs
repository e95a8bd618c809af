//! Every timer of a client, behind one alarm on the boot clock.
//!
//! The steward's thread rings the alarm, so timers work on any executor, without tokio's time driver, and when the
//! caller's runtime has gone (a tokio `Sleep` panics then). A timer that is set and dropped again wakes nobody.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::core::clock::{Clock, Moment};
use crate::core::queue::{self, Queue};
use crate::core::rt::Alarm;
use crate::core::signals::wake;

/// Hands out timers. Cheap to clone; the clones share one alarm.
#[derive(Clone)]
pub struct Timers(Arc<Shared>);

struct Shared {
    clock: Clock,
    /// Each thread has a desk of its own, as far as there are enough: a timer is set and dropped for every request, and
    /// threads would wait for each other there more than anywhere else.
    desks: [Desk; DESKS],
    /// Rung when a timer is set that is due before the alarm.
    bell: Notify,
}

const DESKS: usize = 8;

/// On cache lines of its own.
#[repr(align(128))]
struct Desk(Mutex<Due>);

struct Due {
    queue: Queue,
    /// When the alarm will ring. It may be earlier than the first timer, never later.
    alarm: Moment,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Self {
        let desk = || {
            Desk(Mutex::new(Due {
                queue: Queue::default(),
                alarm: Moment::FAR,
            }))
        };
        Self(Arc::new(Shared {
            clock,
            desks: std::array::from_fn(|_| desk()),
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
        let (shared, place) = (Arc::clone(&self.0), None);
        Timer {
            at,
            seat: Seat {
                shared,
                desk: own_desk(),
                place,
            },
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
        let mut seat = Seat {
            shared: &*self.0,
            desk: own_desk(),
            place: None,
        };
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // The first look at the clock is the alarm's: most requests are answered before there is a second.
            if seat.place.is_some() && self.now() >= at {
                return Poll::Ready(None);
            }
            seat.take(at, cx, Queue::join);
            Poll::Pending
        })
        .await
    }

    /// Rings the alarm for ever. Runs on the steward's thread.
    pub(crate) async fn drive(self) {
        let mut alarm = Alarm::new(self.0.clock);
        loop {
            let next = (0..DESKS).map(|desk| self.0.lock(desk).alarm).min();
            let next = next.unwrap_or(Moment::FAR);
            tokio::select! {
                biased;
                () = alarm.until(next) => {}
                () = self.0.bell.notified() => {}
            }
            for waker in self.take_due() {
                wake(waker);
            }
        }
    }

    fn take_due(&self) -> Vec<Waker> {
        let now = self.now();
        let mut wakers = Vec::new();
        for desk in 0..DESKS {
            let mut due = self.0.lock(desk);
            // An alarm that has not come yet stays, though its timer may have gone by now: were it put off, every lone
            // request would wake this thread anew.
            if now >= due.alarm {
                wakers.extend(due.queue.take_due(now));
                due.alarm = due.queue.first();
            }
        }
        wakers
    }
}

impl Shared {
    fn lock(&self, desk: usize) -> MutexGuard<'_, Due> {
        let Desk(due) = &self.desks[desk % DESKS];
        due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The desk of this thread.
fn own_desk() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static DESK: usize = THREADS.fetch_add(1, Ordering::Relaxed) % DESKS;
    }
    // While a thread ends any desk will do.
    DESK.try_with(|desk| *desk).unwrap_or(0)
}

/// A place in the queue, given up when dropped.
struct Seat<S: Deref<Target = Shared>> {
    shared: S,
    desk: usize,
    place: Option<queue::Place>,
}

impl<S: Deref<Target = Shared>> Seat<S> {
    /// Has this task woken at that instant, at once if it has come already.
    fn take(
        &mut self,
        at: Moment,
        cx: &Context<'_>,
        new: impl FnOnce(&mut Queue, Moment, &Context<'_>) -> queue::Place,
    ) {
        if at == Moment::FAR {
            return;
        }
        let mut due = self.shared.lock(self.desk);
        let (seated, old) = self
            .place
            .map_or((false, None), |place| due.queue.renew(place, cx));
        if !seated {
            self.place = Some(new(&mut due.queue, at, cx));
        }
        let sooner = at < due.alarm;
        if sooner {
            due.alarm = at;
        }
        drop(due);
        drop(old); // not under the lock: it may be the last that keeps a task, and that task's timers
        if sooner {
            self.shared.bell.notify_one();
        }
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            let old = self.shared.lock(self.desk).queue.remove(place);
            drop(old); // not under the lock, as above
        }
    }
}

impl<S: Deref<Target = Shared>> Drop for Seat<S> {
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
    seat: Seat<Arc<Shared>>,
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
        if self.seat.shared.clock.now() >= self.at {
            self.seat.leave();
            return Poll::Ready(());
        }
        let at = self.at;
        self.seat.take(at, cx, Queue::add);
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
