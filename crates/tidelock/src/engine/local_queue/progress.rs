//! How the queues go on: a lock was freed, a leader term ended, or a leader makes no progress.

use crate::engine::runtime::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::fairness::debt::EndedTurn;
use crate::engine::lease::leader_term::Queues;
use crate::engine::local_queue::queue::{LocalQueues, TermLimits};
use crate::engine::local_queue::waiter::Notification;
use crate::engine::runtime::wakers::wake_all;
use crate::store::{Awaited, BootInstant, Name};

impl Queues for LocalQueues {
    /// Starts the fairness delay if other processes wait for the lock.
    fn freed(&self, name: &Name, awaited: Awaited, trip: Duration, kept: Duration) {
        if !awaited.is_anybody() && !self.has_delays.load(Ordering::SeqCst) {
            return;
        }
        let now = self.timers.now();
        let mut inner = self.lock();
        let running = inner.queues.get(name).and_then(|queue| queue.term.as_ref());
        // A hold that is not renewed is never handed off. Its `left` is zero from the start, so we must not count it.
        let handed_on = |running: &TermLimits| {
            let rest = self.rules.times.saturating_sub(running.left);
            rest * u32::from(running.terms.renewed)
        };
        let ended = EndedTurn {
            now,
            kept: running.map_or(kept, |running| now.since(running.since)),
            turns: running.map_or(0, handed_on).saturating_add(1),
            trip,
            awaited,
        };
        inner.fairness_delays.ended(name, &ended);
        // There is an account now: of this name if somebody waits for it, of another name otherwise.
        self.has_delays.store(true, Ordering::SeqCst);
    }

    fn end_term(&self, name: &Name, number: u64) {
        let now = self.timers.now();
        let mut inner = self.lock();
        let Some(queue) = inner.queues.get_mut(name) else {
            return;
        };
        if queue.term.as_ref().is_none_or(|own| own.number != number) {
            return;
        }
        queue.term = None;
        // Until now a hold of this process had the lock.
        queue.last_answer.answered(true, now);
        self.call_next(inner, name);
    }

    fn next_check(&self) -> BootInstant {
        self.lock().check_at
    }

    /// Acts on each queue that has made no progress for `patience`: its leader may be a future that is kept and not
    /// polled. Takes back a notification that was not taken. If there is none, the next waiter asks the store for
    /// itself, and leads if it is granted the lock. Otherwise one stopped task would lock out all waiters of this
    /// process.
    fn check_stalled(&self, now: BootInstant) {
        let mut inner = self.lock();
        if now < inner.check_at {
            return;
        }
        inner.check_at = BootInstant::FAR;
        let (mut late, mut probes, mut old) = (Vec::new(), Vec::new(), Vec::new());
        let mut waiting = false;
        for (name, queue) in &mut inner.queues {
            let Some(waiters) = &mut queue.waiters else {
                continue;
            };
            let called = waiters
                .called
                .as_ref()
                .is_some_and(|one| one.waiter().is_called());
            waiting |= called || !waiters.waiting.is_empty();
            if now < *waiters.moved.get_or_insert(now) + self.patience {
                continue;
            }
            waiters.moved = Some(now);
            old.extend(waiters.called.take());
            if called && let Some(notification) = old.last().and_then(|one| one.waiter().call_off())
            {
                late.push((name.clone(), notification));
            } else if let Some((_, request)) = waiters.waiting.pop_first() {
                match request.waiter().call(Notification::Probe) {
                    Ok(waker) => {
                        waiters.called = Some(request);
                        probes.push((name.clone(), waker));
                    }
                    Err(_) => old.push(request),
                }
            }
        }
        if waiting {
            inner.check_at = now + self.patience;
        }
        drop(inner);
        // In the order of names, not of the map. Otherwise a replayed simulation would take another course.
        late.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        probes.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        // Dropping a notification passes the leader role or the hold to the next waiter.
        drop((late, old));
        wake_all(probes.into_iter().filter_map(|(_, waker)| waker));
    }
}
