//! The wait state of the acquire loop: the wake of the store, or a place among the waiters of this process that poll.
//!
//! If the store does not wake its waiters, one waiter per name and process, the lookout, polls the store. The others
//! sleep in the same queue until the lookout has left or this process releases the lock. The pause between two polls
//! grows from `MIN_POLL_PAUSE` by `POLL_PAUSE_GROWTH` to `MAX_POLL_PAUSE`, with a random part.

use std::time::Duration;

use crate::engine::runtime::jitter;
use crate::store::{Wait, Wake, WakeChannels};

/// The first pause between two polls. Each pause is longer than the one before: a waiter that has waited long can wait
/// a little longer.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(8);
/// The ratio of one pause to the pause before.
const POLL_PAUSE_GROWTH: f64 = 1.3;
/// Bounds the pause. On average half of it passes between a release and the next poll, and one process sends about 18
/// polls per second for a name.
const MAX_POLL_PAUSE: Duration = Duration::from_millis(64);

/// What a waiter sleeps on.
#[derive(Debug)]
pub(crate) struct WaitState {
    /// A wake that the store has armed.
    wake: Option<Wake>,
    /// A place among the waiters of this process that poll.
    poll_wake: Option<Wake>,
    /// The next pause between two polls, without its random part.
    pause: Duration,
}

impl Default for WaitState {
    fn default() -> Self {
        Self {
            wake: None,
            poll_wake: None,
            pause: MIN_POLL_PAUSE,
        }
    }
}

impl WaitState {
    /// Takes the wake of the former leader.
    pub(crate) fn set_wake(&mut self, wake: Option<Wake>) {
        self.wake = wake;
    }

    /// Gives up the wake, for the next leader.
    pub(crate) fn give_up_wake(&mut self) -> Option<Wake> {
        self.wake.take()
    }

    /// Call it right before an attempt: the attempt also serves a wake that has arrived by now.
    pub(crate) fn asking(&mut self) {
        for wake in self.wake.iter_mut().chain(&mut self.poll_wake) {
            wake.use_up();
        }
    }

    /// The store has answered: this waiter no longer passes on a wake that it has used.
    pub(crate) fn answered(&mut self) {
        for wake in self.wake.iter_mut().chain(&mut self.poll_wake) {
            wake.answered();
        }
    }

    /// The wake, if one is armed. Then the store need not arm another.
    pub(crate) fn armed(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// Takes the wake that came with a refusal, if any.
    pub(crate) fn take(&mut self, wait: &mut Wait) {
        if let Some(wake) = wait.wake.take() {
            self.wake = Some(wake);
        }
    }

    /// The wake to sleep on, for at most `recheck`. `None`: the store could not arm a wake this time.
    pub(crate) fn sleep(&mut self, recheck: Duration) -> Option<&mut Wake> {
        let wake = self.wake.as_mut()?;
        wake.recheck_after(recheck);
        Some(wake)
    }

    /// As [`sleep`](Self::sleep), for a store that does not always wake, or that wakes for only some members of a set.
    /// `pause` is the time between two polls that is enough while a wake is likely.
    pub(crate) fn poll(
        &mut self,
        recheck: Duration,
        pause: Option<Duration>,
        polls: &WakeChannels,
        name: &str,
    ) -> &mut Wake {
        let pause = pause
            .filter(|_| self.wake.is_some())
            .unwrap_or_else(|| self.next_pause());
        let recheck = recheck.min(pause.mul_f64(0.75 + jitter::share() / 4.0));
        if let Some(wake) = &mut self.wake {
            wake.recheck_after(recheck);
            wake
        } else {
            let poll_wake = self.poll_wake.get_or_insert_with(|| polls.arm(name));
            poll_wake.look_after(recheck);
            poll_wake
        }
    }

    fn next_pause(&mut self) -> Duration {
        let longer = self.pause.mul_f64(POLL_PAUSE_GROWTH).min(MAX_POLL_PAUSE);
        std::mem::replace(&mut self.pause, longer)
    }
}
