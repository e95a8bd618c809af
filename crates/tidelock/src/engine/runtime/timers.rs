//! Every timer of a client, behind one alarm on the boot clock.
//!
//! The alarm runs on the steward's thread. So timers work on every executor, without tokio's time driver, and after the
//! caller's runtime is gone (a tokio `Sleep` panics then). The algorithm:
//!
//! 1. Timers lie in 8 shards. A shard has a queue of wakers and an instant, `alarm`, at which the driver looks at it.
//!    A timer belongs to the shard of the thread that creates it, so that threads seldom contend for a lock.
//! 2. The first poll of a timer adds its waker to the queue. If it is due before `alarm`, we set `alarm` to that
//!    instant and notify the driver.
//! 3. Dropping a timer removes its waker. `alarm` stays where it is. So requests that set a response timeout and drop
//!    it again notify the driver once per shard and timeout period, and not once each.
//! 4. The driver sleeps until the earliest `alarm` of all shards, or until it is notified. In each shard whose `alarm`
//!    has come it takes the wakers that are due and sets `alarm` to the first timer that is left. Then it wakes them.
//!
//! ```text
//!   created ──poll, not due──► queued ──alarm──► woken ──poll──► resolved
//!      └──poll, due──► resolved
//!   Drop in any state leaves no waker behind.
//! ```
//!
//! Invariants:
//! 1. `alarm` of a shard is never later than the first timer in its queue. It may be earlier: the driver then wakes up
//!    and finds nothing due.
//! 2. Setting a timer can only bring `alarm` forward. Only the driver moves it back, and only after that instant.
//! 3. A [`Timer`] resolves by the clock and not by the alarm: each poll reads the clock first. So a future that was
//!    frozen notices its timeout on the first poll afterwards, even if the alarm has not run yet.
//! 4. A timer stays in the shard in which it was created, on whichever thread it is polled or dropped.
//!
//! Lock order: the lock of a shard is the last one to take, and a thread holds at most one of them. We call no waker
//! and drop none under it: an executor may run or drop a task in both, and that task may set or drop timers. The driver
//! reads the shards one after the other; a timer set in between leaves a permit in the `Notify`, so it is not missed.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::engine::runtime::background::Alarm;
use crate::engine::runtime::clock::{BootInstant, Clock};
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::timer_queue;
use crate::engine::runtime::timer_queue::TimerQueue;
use crate::engine::runtime::wakers::wake;

/// Hands out timers. Cheap to clone; the clones share one alarm.
#[derive(Clone)]
pub struct Timers(Arc<TimersInner>);

struct TimersInner {
    clock: Clock,
    /// The shards. Every request sets a timer and drops it, so with a single queue threads would contend for its lock
    /// more than for any other.
    shards: [TimerShard; DESKS],
    /// Notifies the driver that a timer is due before the `alarm` of its shard.
    notify: Notify,
}

/// Bounds the number of shards. With more threads than this, threads share one.
const DESKS: usize = 8;

/// One shard, on cache lines of its own: neighbours in the array would otherwise slow each other down.
#[repr(align(128))]
struct TimerShard(Mutex<TimerShardState>);

struct TimerShardState {
    queue: TimerQueue,
    /// When the driver looks at this queue. Invariant: never later than the first timer; it may be earlier.
    alarm: BootInstant,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Self {
        let shard = || {
            TimerShard(Mutex::new(TimerShardState {
                queue: TimerQueue::default(),
                alarm: BootInstant::FAR,
            }))
        };
        Self(Arc::new(TimersInner {
            clock,
            shards: std::array::from_fn(|_| shard()),
            notify: Notify::new(),
        }))
    }

    /// The current instant.
    pub fn now(&self) -> BootInstant {
        self.0.clock.now()
    }

    /// The clock of these timers.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// A timer that resolves at that instant.
    pub fn at(&self, at: BootInstant) -> Timer {
        let (shared, slot) = (Arc::clone(&self.0), None);
        Timer {
            at,
            registration: TimerRegistration {
                shared,
                shard: own_shard(),
                slot,
            },
        }
    }

    /// A timer that resolves after that duration, counted from this call.
    pub fn after(&self, time: Duration) -> Timer {
        self.at(self.now() + time)
    }

    /// Runs a future for at most that duration. `None`: it took longer and was dropped. With zero it is polled once.
    pub async fn limit<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        if time.is_zero() {
            return future.now_or_never();
        }
        self.until(self.now() + time, future).await
    }

    /// Runs a future until that instant at the latest. `None`: it took longer and was dropped.
    pub async fn until<F: Future>(&self, at: BootInstant, future: F) -> Option<F::Output> {
        let mut registration = TimerRegistration {
            shared: &*self.0,
            shard: own_shard(),
            slot: None,
        };
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // The first poll does not read the clock: most requests are answered by the second. If the instant has
            // passed already, the alarm fires at once.
            if registration.slot.is_some() && self.now() >= at {
                return Poll::Ready(None);
            }
            registration.take(at, cx, TimerQueue::join);
            Poll::Pending
        })
        .await
    }

    /// The driver: waits for the alarm and wakes the timers that are due. Runs on the steward's thread, and never ends.
    pub(crate) async fn drive(self) {
        let mut alarm = Alarm::new(self.0.clock);
        loop {
            let next = (0..DESKS).map(|shard| self.0.lock(shard).alarm).min();
            let next = next.unwrap_or(BootInstant::FAR);
            tokio::select! {
                biased;
                () = alarm.until(next) => {}
                () = self.0.notify.notified() => {}
            }
            for waker in self.take_due() {
                wake(waker);
            }
        }
    }

    fn take_due(&self) -> Vec<Waker> {
        let now = self.now();
        let mut wakers = Vec::new();
        for shard in 0..DESKS {
            let mut due = self.0.lock(shard);
            // We keep an alarm that has not come yet, even if its timer was dropped. If we moved it back, the next
            // single request would be due before it again and would wake this thread.
            if now >= due.alarm {
                wakers.extend(due.queue.take_due(now));
                due.alarm = due.queue.first();
            }
        }
        wakers
    }
}

impl TimersInner {
    fn lock(&self, shard: usize) -> MutexGuard<'_, TimerShardState> {
        let TimerShard(due) = &self.shards[shard % DESKS];
        due.lock()
    }
}

/// The shard of this thread: threads get them in turn, at their first timer.
fn own_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static DESK: usize = THREADS.fetch_add(1, Ordering::Relaxed) % DESKS;
    }
    // A thread that is ending has no thread-local storage any more. Any shard will do.
    DESK.try_with(|shard| *shard).unwrap_or(0)
}

/// A registration in the queue of one shard. Dropping it removes the waker.
struct TimerRegistration<S: Deref<Target = TimersInner>> {
    shared: S,
    shard: usize,
    /// `None`: not registered. It may name a slot that the driver has emptied since.
    slot: Option<timer_queue::TimerSlot>,
}

impl<S: Deref<Target = TimersInner>> TimerRegistration<S> {
    /// Registers this task to be woken at that instant, or at once if the instant has passed. `FAR` registers nothing.
    fn take(
        &mut self,
        at: BootInstant,
        cx: &Context<'_>,
        new: impl FnOnce(&mut TimerQueue, BootInstant, &Context<'_>) -> timer_queue::TimerSlot,
    ) {
        if at == BootInstant::FAR {
            return;
        }
        let mut due = self.shared.lock(self.shard);
        let (seated, old) = self
            .slot
            .map_or((false, None), |slot| due.queue.renew(slot, cx));
        if !seated {
            self.slot = Some(new(&mut due.queue, at, cx));
        }
        let sooner = at < due.alarm;
        if sooner {
            due.alarm = at;
        }
        drop(due);
        drop(old); // not under the lock: it may be the last reference to a task, whose drop removes its timers
        if sooner {
            self.shared.notify.notify_one();
        }
    }

    fn leave(&mut self) {
        if let Some(slot) = self.slot.take() {
            let old = self.shared.lock(self.shard).queue.remove(slot);
            drop(old); // not under the lock, as above
        }
    }
}

impl<S: Deref<Target = TimersInner>> Drop for TimerRegistration<S> {
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

/// A future that resolves at its instant. Dropping it leaves nothing behind.
pub struct Timer {
    at: BootInstant,
    registration: TimerRegistration<Arc<TimersInner>>,
}

impl Timer {
    /// When it is due.
    pub fn due(&self) -> BootInstant {
        self.at
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // We read the clock before we use the queue. Otherwise a task that was frozen would go on as if no time had
        // passed, until the alarm runs.
        if self.registration.shared.clock.now() >= self.at {
            self.registration.leave();
            return Poll::Ready(());
        }
        let at = self.at;
        self.registration.take(at, cx, TimerQueue::add);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// With one lock for all timers, the threads of a busy program would contend for it at each request.
    #[test]
    fn each_shard_has_a_lock_of_its_own() {
        let timers = Timers::new(Clock::Boot);
        let place = |shard| std::ptr::from_ref(&*timers.0.lock(shard)).addr();
        let places: BTreeSet<usize> = (0..DESKS).map(place).collect();
        assert_eq!(places.len(), DESKS);
    }

    /// Other tests take shards at the same time, so these threads need not get all of them.
    #[test]
    fn threads_do_not_share_one_shard() {
        let own = |_| std::thread::spawn(own_shard).join().unwrap();
        let shards: BTreeSet<usize> = (0..DESKS * 4).map(own).collect();
        assert!(shards.len() > 1, "{shards:?}");
    }

    #[test]
    fn a_timer_that_is_dropped_leaves_no_waker_behind() {
        let timers = Timers::new(Clock::Boot);
        let minute = Duration::from_secs(60);
        let is_queued = || {
            let mut shards = 0..DESKS;
            shards.any(|shard| timers.0.lock(shard).queue.first() != BootInstant::FAR)
        };
        let mut timer = timers.after(minute);
        assert!((&mut timer).now_or_never().is_none() && is_queued());
        drop(timer);
        assert!(!is_queued());
        let mut request = Box::pin(timers.limit(minute, std::future::pending::<()>()));
        assert!(request.as_mut().now_or_never().is_none() && is_queued());
        drop(request);
        assert!(!is_queued());
    }
}
