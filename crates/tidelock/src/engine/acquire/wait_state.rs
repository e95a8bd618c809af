//! The wait state of the acquire loop: the wake of the store, or a place among the waiters of this process that poll.
//!
//! If the store does not wake its waiters, one waiter per name and process, the lookout, polls the store. The others
//! sleep in the same queue until the lookout has left or this process releases the lock. The pause between two polls
//! grows from 8 ms to 64 ms ([`PollPace`]), and with the number of processes ahead, where the store counts them.
//!
//! The waiters of a set, and those for permits on Redis, have no local queue, whose steward passes over a waiter that is kept and not polled. So each of
//! them asks for itself after a while. Otherwise one such waiter would take the only wake, or would be the lookout that
//! does not poll, and all others of this process would sleep although the lock is free.
//!
//! The leader of a local queue asks for itself at each recheck. A former leader that was passed over, and is kept and not
//! polled, stays the lookout, and nobody would ask in its place.

use std::time::Duration;

use crate::engine::runtime::poll_pace::{PollPace, jittered};
use crate::store::{Wait, Wake, WakeChannels};

/// The longest pause of a process that polls behind others. Those ahead may all be dead, and count for some seconds longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The pause of a process that polls behind so many others, as a multiple of that of the first.
///
/// The first polls as if it were alone, so the lock is found as soon. The second does not pause twice as long: the first may
/// have been killed or frozen, and counts for some seconds longer. The lock is then found within one and a half pauses. A
/// hundred processes together poll eight times as often as one.
fn times_as_long(ahead: u32) -> f64 {
    1.0 + f64::from(ahead) / 2.0
}

/// What a waiter sleeps on.
#[derive(Debug, Default)]
pub(crate) struct WaitState {
    /// A wake that the store has armed.
    wake: Option<Wake>,
    /// A place among the waiters of this process that poll.
    poll_wake: Option<Wake>,
    pace: PollPace,
    /// After what time this waiter asks for itself, whatever the other waiters of this process do. `None`: it has a local
    /// queue, or a position of its own in the store.
    asks_after: Option<Duration>,
    /// It leads a local queue, so it asks for itself at each recheck. A process has one such waiter per name.
    leads: bool,
}

impl WaitState {
    /// A waiter without a local queue, which asks for itself after that time.
    pub(crate) fn without_queue(asks_after: Duration) -> Self {
        Self {
            asks_after: Some(asks_after),
            ..Self::default()
        }
    }

    /// The leader of a local queue.
    pub(crate) fn leading() -> Self {
        Self {
            leads: true,
            ..Self::default()
        }
    }

    /// After what time this waiter asks for itself, if the next recheck comes after `recheck`.
    fn own_recheck(&self, recheck: Duration) -> Option<Duration> {
        self.asks_after.or(self.leads.then_some(recheck))
    }

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
        let own = self.own_recheck(recheck);
        let wake = self.wake.as_mut()?;
        wake.recheck_after(recheck);
        Some(asking_after(wake, own))
    }

    /// As [`sleep`](Self::sleep), for a store that does not always wake, or that wakes for only some members of a set.
    /// `pause` is the time between two polls that is enough while a wake is likely. `ahead`: the other processes that poll
    /// and came before this one.
    pub(crate) fn poll(
        &mut self,
        recheck: Duration,
        pause: Option<Duration>,
        ahead: u32,
        polls: &WakeChannels,
        name: &str,
    ) -> &mut Wake {
        let pause = match pause {
            Some(pause) if self.wake.is_some() => jittered(pause),
            _ => self
                .pace
                .pause(ahead, times_as_long(ahead))
                .min(LONGEST_PAUSE),
        };
        let recheck = recheck.min(pause);
        let own = self.own_recheck(recheck);
        let wake = if let Some(wake) = &mut self.wake {
            wake.recheck_after(recheck);
            wake
        } else {
            let poll_wake = self.poll_wake.get_or_insert_with(|| polls.arm(name));
            poll_wake.look_after(recheck);
            poll_wake
        };
        asking_after(wake, own)
    }
}

fn asking_after(wake: &mut Wake, time: Option<Duration>) -> &mut Wake {
    if let Some(time) = time {
        wake.recheck_at_latest(time);
    }
    wake
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::store::{Background, Clock, Timers};

    const LONG: Duration = Duration::from_secs(60);

    fn wakes() -> WakeChannels {
        WakeChannels::new(Timers::new(Clock::Boot), |_| {})
    }

    fn is_woken(wake: &mut Wake) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(wake.woken()).poll(&mut cx).is_ready()
    }

    fn waiting(wakes: &WakeChannels) -> WaitState {
        let mut waiting = WaitState::default();
        waiting.set_wake(Some(wakes.arm("a")));
        waiting
    }

    /// The next leader need not ask the store to arm another.
    #[test]
    fn a_leader_gives_its_wake_to_the_next() {
        let mut former = waiting(&wakes());
        assert!(former.armed().is_some());
        let mut next = WaitState::default();
        assert!(next.armed().is_none());
        next.set_wake(former.give_up_wake());
        assert!(next.armed().is_some() && former.armed().is_none());
    }

    /// The attempt comes after the release that the wake tells of. With the wake the loop would ask twice.
    #[test]
    fn an_attempt_uses_up_a_wake_that_came_before_it() {
        let wakes = wakes();
        let mut waiting = waiting(&wakes);
        wakes.wake_one("a");
        waiting.asking();
        assert!(!is_woken(waiting.sleep(LONG).unwrap()));
        wakes.wake_one("a");
        assert!(is_woken(waiting.sleep(LONG).unwrap()));
    }

    /// While a wake is likely, the waiter polls rarely. Without one it would find the lock late.
    #[tokio::test(start_paused = true)]
    async fn only_a_waiter_with_a_wake_polls_rarely() {
        let rarely = Duration::from_secs(8);
        let (background, _stop) = Background::start(Clock::Simulated).unwrap();
        let timers = Timers::new(Clock::Simulated);
        background.spawn(timers.clone().drive());
        let wakes = WakeChannels::new(timers, |_| {});
        for (mut waiting, polls_rarely) in [(waiting(&wakes), true), (WaitState::default(), false)]
        {
            let asleep = tokio::time::Instant::now();
            let wake = waiting.poll(LONG, Some(rarely), 0, &wakes, "a");
            wake.woken().await;
            assert_eq!(asleep.elapsed() > rarely / 2, polls_rarely);
        }
    }

    #[test]
    fn a_waiter_passes_its_wake_on_unless_the_store_has_answered() {
        for answered in [false, true] {
            let wakes = wakes();
            let (mut waiting, mut next) = (waiting(&wakes), wakes.arm("a"));
            wakes.wake_one("a");
            waiting.asking();
            if answered {
                waiting.answered();
            }
            drop(waiting);
            assert_eq!(is_woken(&mut next), !answered);
        }
    }
}
