//! Fuzz target: the invariants of the timer queue, for any order of operations.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::task::{Context, Waker};

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::timer_queue::{TimerQueue, TimerSlot};

/// Runs the steps and asserts the invariants. A step is an operation, and a due time or the index of a timer.
pub(crate) fn holds(steps: &[(u8, u16)]) {
    let mut queue = TimerQueue::default();
    let cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<(BootInstant, TimerSlot)> = Vec::new();
    let mut now = BootInstant(0);
    for &(step, number) in steps {
        let at = BootInstant(u64::from(number));
        match step % 5 {
            0 => waiting.push((at, queue.join(at, &cx))),
            1 => waiting.push((at, queue.add(at, &cx))),
            2 if !waiting.is_empty() => {
                let (_, place) = waiting.swap_remove(usize::from(number) % waiting.len());
                assert!(queue.remove(place).is_some(), "it had not rung");
                assert!(queue.remove(place).is_none(), "it is gone");
            }
            3 if !waiting.is_empty() => {
                let (_, place) = waiting[usize::from(number) % waiting.len()];
                assert!(queue.renew(place, &cx).0);
            }
            _ => {
                now = now.max(at);
                let rung = queue.take_due(now).len();
                let before = waiting.len();
                waiting.retain(|(at, _)| *at > now);
                assert_eq!(
                    rung,
                    before - waiting.len(),
                    "all that are due, and none else"
                );
            }
        }
        // The alarm is never set for later than the first due time.
        let first = waiting.iter().map(|(at, _)| *at).min();
        assert!(queue.first() <= first.unwrap_or(BootInstant::FAR));
    }
    assert_eq!(
        queue.take_due(BootInstant(u64::MAX - 1)).len(),
        waiting.len()
    );
    assert_eq!(queue.first(), BootInstant::FAR);
}
