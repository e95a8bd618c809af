//! The wait state of the acquire loop: the wake of the store, or a place among the waiters of this process that poll.
//!
//! If the store does not wake its waiters, one waiter per name and process, the lookout, polls the store. The others
//! sleep in the same queue until the lookout has left or this process releases the lock. The pause between two polls
//! grows from 8 ms to 64 ms (`POLL_PAUSES`), and a part of it is random.

use std::time::Duration;

use crate::engine::runtime::backoff::{ExponentialBackoff, with_jitter};
use crate::store::{Wait, Wake, WakeChannels};

/// The pauses between two polls, without their random part. Each is longer than the one before: a waiter that has
/// waited long can wait a little longer. On average half of the longest pause passes between a release and the next
/// poll, and one process sends about 18 polls per second for a name.
const POLL_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(8), Duration::from_millis(64)).growth(1.3);
/// The random part of a pause between two polls.
const POLL_JITTER: f64 = 0.25;

/// What a waiter sleeps on.
#[derive(Debug, Default)]
pub(crate) struct WaitState {
    /// A wake that the store has armed.
    wake: Option<Wake>,
    /// A place among the waiters of this process that poll.
    poll_wake: Option<Wake>,
    /// How many pauses between two polls have been taken from `POLL_PAUSES`.
    pauses: u32,
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
        let recheck = recheck.min(with_jitter(pause, POLL_JITTER));
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
        let pause = POLL_PAUSES.pause(self.pauses);
        self.pauses += 1;
        pause
    }
}
