//! How members wait: behind a lock that somebody else frees.
//!
//! No store tells of a change of a mark, and every store with read-write locks tells waiters of a release. So the first
//! member that waits takes the write side of the lock `NAME%barrier`, and all members, the first too, wait for the read
//! side of it. Whoever changes the barrier frees the lock by force, and all of them get in at once, leave it, and look.
//!
//! The lock decides nothing. If its holder dies, they look and find nothing new, and one of them takes it again. A signal
//! may come between a look and the request for the read side, when somebody else has taken the write side again. So each
//! member also looks by itself, seldom: first after [`FIRST_LOOK`], then with growing pauses, at least each third of a
//! lease. Such a look also finds members that have died.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;

use crate::closing::Closing;
use crate::engine::ClientInner;
use crate::engine::lease::release;
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::Result;
use crate::guard::Guard;
use crate::lock::{Acquire, Lock};
use crate::options::AcquireOptions;
use crate::store::{BootInstant, LockKind, Name};

/// When a member first looks by itself.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// The pause after signals that brought nothing new: several members may try to take the freed lock again.
const NOTHING_NEW: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(4), Duration::from_millis(250)).jitter(0.5);

/// The wait of one member.
pub(super) struct SignalWait {
    core: Arc<ClientInner>,
    read: Lock,
    write: Lock,
    /// The write side, if this member has taken it.
    raised: Option<SignalHold>,
    /// The wait for the read side. It goes on while the member looks by itself.
    passing: Option<Acquire>,
    looks: u32,
    passes: u32,
}

impl SignalWait {
    pub(super) fn new(core: &Arc<ClientInner>, signal: &Name) -> Self {
        let side = |kind| Lock::named(core, kind, signal.clone());
        Self {
            core: Arc::clone(core),
            read: side(LockKind::Read),
            write: side(LockKind::Write),
            raised: None,
            passing: None,
            looks: 0,
            passes: 0,
        }
    }

    /// Waits until it is time to look, at the latest at `end`.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`] that a retry cannot fix.
    pub(super) async fn next(&mut self, end: Option<BootInstant>) -> Result<()> {
        let timers = &self.core.timers;
        if self.passing.is_none() {
            // Without the lock there is nothing to wait behind. An error shows in the wait itself.
            if let Ok(Some(guard)) = self.write.try_acquire().await {
                self.raised = Some(SignalHold(Some(guard)));
            }
        }
        let longest = self.core.settings.lease / 3;
        let looks = ExponentialBackoff::new(FIRST_LOOK.min(longest), longest).jitter(0.25);
        let mut until = timers.now() + looks.pause(self.looks);
        if let Some(end) = end {
            until = until.min(end);
        }
        let passing = self.passing.get_or_insert_with(|| {
            let mut options = AcquireOptions::new();
            options.waits_long = true;
            self.read.acquire_with(options)
        });
        let Some(passed) = timers.until(until, passing).await else {
            self.looks += 1;
            self.passes = 0;
            return Ok(());
        };
        self.passing = None;
        self.raised = None;
        match passed {
            Ok(guard) => drop(SignalHold(Some(guard))),
            Err(error) if error.is_retryable() => self.passes += 1,
            Err(error) => return Err(error),
        }
        if self.passes > 0 {
            let pause = timers.after(NOTHING_NEW.pause(self.passes - 1));
            // The timers stop with the client. So its close ends the pause too; otherwise it would not end.
            let pause = select(pause, Closing::new(&self.core.steward.closed));
            match end {
                Some(end) => drop(timers.until(end, pause).await),
                None => drop(pause.await),
            }
            self.core.refuse_if_closed()?;
        }
        self.passes += 1;
        Ok(())
    }
}

/// A hold of the lock behind which members wait. A signal frees the lock by force, so the end of this hold is no loss.
struct SignalHold(Option<Guard>);

impl Drop for SignalHold {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            release::in_background_if_held(guard.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;

    use super::*;
    use crate::client::Client;

    /// Timers may ring a moment late.
    const MOMENT: Duration = Duration::from_millis(10);

    async fn waiting() -> (Client, SignalWait) {
        let builder = Client::builder().simulated_time();
        let client = builder.connect("memory:").await.unwrap();
        let signal = Name::new("solver").unwrap().of_barrier();
        let wait = SignalWait::new(client.core(), &signal);
        (client, wait)
    }

    /// A signal may be missed, and a member that has died sends none.
    #[tokio::test(start_paused = true)]
    async fn a_member_looks_by_itself_with_growing_pauses_and_in_time() {
        let (client, mut wait) = waiting().await;
        let (timers, lease) = (&client.core().timers, client.core().settings.lease);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let begun = timers.now();
            wait.next(None).await.unwrap();
            pauses.push(timers.now().since(begun));
        }
        assert!(pauses[0] <= FIRST_LOOK + MOMENT, "{pauses:?}");
        let last = pauses[11];
        assert!(
            last >= lease / 5 && last <= lease / 3 + MOMENT,
            "{pauses:?}"
        );
        let end = timers.now() + MOMENT;
        wait.next(Some(end)).await.unwrap();
        assert!(timers.now().since(end) <= MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_the_wait_at_once() {
        let (client, mut wait) = waiting().await;
        let timers = &client.core().timers;
        for _ in 0..5 {
            wait.next(None).await.unwrap();
        }
        let begun = timers.now();
        let signals = async {
            timers.after(MOMENT).await;
            client.lock("solver%barrier").force_release().await
        };
        let (looks, signalled) = join(wait.next(None), signals).await;
        assert!(signalled.unwrap() && looks.is_ok());
        assert!(timers.now().since(begun) <= MOMENT * 3);
    }
}
