//! The queue of one timer shard: wakers, ordered by the instant at which they are due.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Waker};

use crate::engine::runtime::clock::BootInstant;

/// Bounds the capacity, in wakers, that an empty `entries` keeps. A larger one is freed.
const ROOM_KEPT: usize = 1024;

/// Most timers guard a request. They are set for the same duration and removed soon, in about the order in which they
/// were set. These go to `entries`, a deque, where both operations take constant time. All others go to `tree`.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    /// Ordered by time. A waker that is removed leaves a gap (`None`); the gap goes when it reaches the front.
    /// Invariant: the front is no gap.
    entries: VecDeque<(BootInstant, Option<Waker>)>,
    /// How many slots have left the front of `entries`. The first slot has this number.
    gone: u64,
    tree: BTreeMap<(BootInstant, u64), Waker>,
    /// Makes the keys of timers with the same instant differ.
    next: u64,
}

/// The slot of one waker. No later waker gets the same slot, so a stale one finds nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimerSlot {
    /// The number of the slot, counted over the whole life of `entries`.
    Queue(u64),
    Tree(BootInstant, u64),
}

impl TimerQueue {
    /// Adds a waker that will probably be removed before it is due. It goes to `tree` if it is due before the last
    /// one of `entries`, because `entries` is ordered.
    pub(crate) fn join(&mut self, at: BootInstant, cx: &Context<'_>) -> TimerSlot {
        if self.entries.back().is_some_and(|(last, _)| at < *last) {
            return self.add(at, cx);
        }
        let place = self.gone + self.entries.len() as u64;
        self.entries.push_back((at, Some(cx.waker().clone())));
        TimerSlot::Queue(place)
    }

    /// Adds a waker that may stay long. In `entries` it could stay at the front and keep the gaps behind it in memory.
    pub(crate) fn add(&mut self, at: BootInstant, cx: &Context<'_>) -> TimerSlot {
        self.next += 1;
        self.tree.insert((at, self.next), cx.waker().clone());
        TimerSlot::Tree(at, self.next)
    }

    /// Replaces the waker if the task has changed, and returns the old one. The caller drops it where no lock is held.
    /// `false`: the slot is empty.
    pub(crate) fn renew(&mut self, place: TimerSlot, cx: &Context<'_>) -> (bool, Option<Waker>) {
        let Some(waker) = self.at(place) else {
            return (false, None);
        };
        if waker.will_wake(cx.waker()) {
            return (true, None);
        }
        (true, Some(std::mem::replace(waker, cx.waker().clone())))
    }

    fn at(&mut self, place: TimerSlot) -> Option<&mut Waker> {
        match place {
            TimerSlot::Queue(number) => self.entries.get_mut(self.index(number)?)?.1.as_mut(),
            TimerSlot::Tree(at, number) => self.tree.get_mut(&(at, number)),
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.gone)?).ok()
    }

    /// Removes a waker and returns it. The caller drops it where no lock is held.
    pub(crate) fn remove(&mut self, place: TimerSlot) -> Option<Waker> {
        match place {
            TimerSlot::Queue(number) => {
                let index = self.index(number)?;
                let waker = self.entries.get_mut(index)?.1.take();
                self.close_ranks();
                waker
            }
            TimerSlot::Tree(at, number) => self.tree.remove(&(at, number)),
        }
    }

    /// Removes the gaps at the front of `entries`, and frees the memory of an empty one.
    fn close_ranks(&mut self) {
        while matches!(self.entries.front(), Some((_, None))) {
            self.entries.pop_front();
            self.gone += 1;
        }
        if self.entries.is_empty() && self.entries.capacity() > ROOM_KEPT {
            self.entries = VecDeque::new();
        }
    }

    /// When the first waker is due. `FAR`: the queue is empty.
    pub(crate) fn first(&self) -> BootInstant {
        let entries = self.entries.front().map_or(BootInstant::FAR, |(at, _)| *at);
        let tree = self.tree.first_key_value();
        entries.min(tree.map_or(BootInstant::FAR, |((at, _), _)| *at))
    }

    /// Removes and returns all wakers that are due by `now`.
    pub(crate) fn take_due(&mut self, now: BootInstant) -> Vec<Waker> {
        let later = self
            .tree
            .split_off(&(BootInstant(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut self.tree, later);
        let mut due: Vec<Waker> = due.into_values().collect();
        while self.entries.front().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.entries.pop_front().and_then(|(_, waker)| waker));
            self.gone += 1;
        }
        self.close_ranks();
        due
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len() + self.tree.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant(nanos)
    }

    #[test]
    fn those_that_are_due_are_woken_wherever_they_stand() {
        let mut queue = TimerQueue::default();
        let cx = Context::from_waker(Waker::noop());
        for nanos in [20, 10, 30] {
            queue.join(at(nanos), &cx); // 10 is due before 20, so it goes to the tree
            queue.add(at(nanos + 5), &cx);
        }
        assert_eq!(queue.first(), at(10));
        assert_eq!(queue.take_due(at(20)).len(), 3);
        assert_eq!(queue.first(), at(25));
        assert_eq!(queue.take_due(at(100)).len(), 3);
        assert_eq!(queue.first(), BootInstant::FAR);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn an_acquisition_that_is_dropped_leaves_nothing() {
        let mut queue = TimerQueue::default();
        let cx = Context::from_waker(Waker::noop());
        let places: Vec<_> = (1..=4).map(|nanos| queue.join(at(nanos), &cx)).collect();
        for leaving in [1, 3, 0] {
            assert!(queue.remove(places[leaving]).is_some());
            assert!(queue.remove(places[leaving]).is_none(), "once only");
            assert!(!queue.renew(places[leaving], &cx).0);
        }
        assert_eq!(queue.first(), at(3));
        assert_eq!(queue.take_due(at(9)).len(), 1);
        assert_eq!(queue.len(), 0);
        let next = queue.join(at(5), &cx);
        assert!(
            queue.remove(places[2]).is_none(),
            "an old place is nobody's"
        );
        assert!(queue.remove(next).is_some());
    }

    /// Requests of one instant have the same timeout. In the tree each would cost more.
    #[test]
    fn timers_of_one_instant_share_the_queue() {
        let mut queue = TimerQueue::default();
        let cx = Context::from_waker(Waker::noop());
        for number in 0..3 {
            assert!(matches!(queue.join(at(5), &cx), TimerSlot::Queue(n) if n == number));
        }
        assert!(matches!(queue.join(at(4), &cx), TimerSlot::Tree(..)));
    }

    #[test]
    fn who_leaves_a_crowd_takes_nobody_along() {
        let mut queue = TimerQueue::default();
        let cx = Context::from_waker(Waker::noop());
        let crowd = ROOM_KEPT as u64 * 2;
        let places: Vec<_> = (0..crowd).map(|n| queue.join(at(n), &cx)).collect();
        assert!(queue.remove(places[0]).is_some());
        let due = queue.take_due(at(crowd)).len() as u64;
        assert_eq!(due, crowd - 1);
    }

    /// Otherwise the next request would allocate it again.
    #[test]
    fn an_empty_queue_keeps_its_memory_up_to_the_bound() {
        let mut queue = TimerQueue {
            entries: VecDeque::with_capacity(ROOM_KEPT),
            ..TimerQueue::default()
        };
        let place = queue.join(at(1), &Context::from_waker(Waker::noop()));
        assert!(queue.remove(place).is_some());
        assert_eq!(queue.entries.capacity(), ROOM_KEPT);
    }

    #[test]
    #[cfg_attr(miri, ignore = "one thread and very many steps")]
    fn a_crowd_that_has_gone_keeps_no_memory() {
        let mut queue = TimerQueue::default();
        let cx = Context::from_waker(Waker::noop());
        let places: Vec<_> = (0..100_000).map(|n| queue.join(at(n), &cx)).collect();
        for place in places {
            queue.remove(place);
        }
        assert!(queue.entries.capacity() <= ROOM_KEPT);
    }
}
