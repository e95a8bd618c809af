//! What a waiter has in hand while it waits for its turn: a wake of the store, or its place in this process's polling.
//!
//! A store that wakes nobody is asked again and again, but by one waiter of a name and process only, the lookout. The
//! others sleep in the same queue: until the lookout has left, or until a lock is released in this process.

use std::time::Duration;

use crate::backend::{Signals, Wait, Wake};
use crate::core::chance;

/// The first pause between two looks. Each is longer than the one before: who has waited long can wait a little longer.
const FIRST: Duration = Duration::from_millis(8);
const GROWTH: f64 = 1.3;
/// The longest pause: half of it is what a hand-over costs, and one process asks about 18 times a second for a name.
const LONGEST: Duration = Duration::from_millis(64);

#[derive(Debug)]
pub(super) struct Turn {
    /// Armed by the store.
    wake: Option<Wake>,
    /// A place in the polling of this process.
    place: Option<Wake>,
    pause: Duration,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            wake: None,
            place: None,
            pause: FIRST,
        }
    }
}

impl Turn {
    /// Goes on with the wake of the one who led before.
    pub(super) fn inherit(&mut self, wake: Option<Wake>) {
        self.wake = wake;
    }

    /// The wake, for the one who leads next.
    pub(super) fn bequeath(&mut self) -> Option<Wake> {
        self.wake.take()
    }

    /// A question is about to be sent: whatever has woken us until now, it answers.
    pub(super) fn asking(&mut self) {
        for wake in self.wake.iter_mut().chain(&mut self.place) {
            wake.use_up();
        }
    }

    /// The store has answered: a wake-up is used up.
    pub(super) fn answered(&mut self) {
        for wake in self.wake.iter_mut().chain(&mut self.place) {
            wake.answered();
        }
    }

    /// The store need not arm another wake.
    pub(super) fn armed(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// Takes what came with a refusal.
    pub(super) fn take(&mut self, wait: &mut Wait) {
        if let Some(wake) = wait.wake.take() {
            self.wake = Some(wake);
        }
    }

    /// The wake to sleep on, no longer than `recheck`. `None`: the store wakes, but could not arm a wake just now.
    pub(super) fn sleep(&mut self, recheck: Duration) -> Option<&mut Wake> {
        let wake = self.wake.as_mut()?;
        wake.recheck_after(recheck);
        Some(wake)
    }

    /// As [`sleep`](Self::sleep), for a store that does not wake, or not for all of its parts. `pause`: what is enough for
    /// one that is likely to be woken.
    pub(super) fn poll(
        &mut self,
        recheck: Duration,
        pause: Option<Duration>,
        polls: &Signals,
        name: &str,
    ) -> &mut Wake {
        let pause = pause
            .filter(|_| self.wake.is_some())
            .unwrap_or_else(|| self.next_pause());
        let recheck = recheck.min(pause.mul_f64(0.75 + chance::share() / 4.0));
        if let Some(wake) = &mut self.wake {
            wake.recheck_after(recheck);
            wake
        } else {
            let place = self.place.get_or_insert_with(|| polls.arm(name));
            place.look_after(recheck);
            place
        }
    }

    fn next_pause(&mut self) -> Duration {
        let longer = self.pause.mul_f64(GROWTH).min(LONGEST);
        std::mem::replace(&mut self.pause, longer)
    }
}
