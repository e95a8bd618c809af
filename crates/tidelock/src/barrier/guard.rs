//! The guard of a member that is inside a barrier.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::barrier::member::BarrierMember;
use crate::barrier::register::WriteInDoubt;
use crate::barrier::signal::SignalWait;
use crate::barrier::state::{BarrierState, BarrierStep};
use crate::engine::runtime::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;

/// A member that has entered a [`Barrier`](crate::Barrier) and is inside. [`leave`](Self::leave) waits until the others
/// have left too. Its drop leaves in the background, and waits for nobody.
///
/// It has all methods of a [`Guard`]: the client renews the lease of the member while it lives, and
/// [`lost`](Guard::lost) resolves before the others can take the member for dead.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let inside = client.barrier("solver", 1).enter().await?;
/// inside.while_held(async { /* one step of the work */ }).await?;
/// inside.leave().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused, the member leaves at once"]
#[clippy::has_significant_drop]
pub struct BarrierGuard {
    member: BarrierMember,
    /// The owners of all members that entered together.
    together: Vec<String>,
}

impl BarrierGuard {
    pub(super) fn new(member: BarrierMember, state: BarrierState) -> Self {
        Self {
            member,
            together: state.together,
        }
    }

    /// Leaves, and waits until all members that entered together have left, or their leases have ended.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if this member was lost before: the others did not wait for it.
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store does not answer for a lease,
    /// [`Unavailable`](ErrorKind::Unavailable) if it answers no more during the wait, [`WrongType`](ErrorKind::WrongType) and
    /// [`Refused`](ErrorKind::Refused) as [`Barrier::enter`](crate::Barrier::enter), and [`Closed`](ErrorKind::Closed).
    /// After any error this member has left, or leaves in the background, at the latest with its lease.
    ///
    /// # Cancel safety
    /// If the future is dropped, the member leaves in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let solver = client.barrier("solver", 2);
    /// let (one, other) = tokio::try_join!(solver.enter(), solver.enter())?;
    /// tokio::try_join!(one.leave(), other.leave())?;
    /// # Ok(()) }
    /// ```
    pub async fn leave(self) -> Result<()> {
        Box::pin(self.leave_within(None)).await
    }

    /// As [`leave`](Self::leave), but waits for the others for at most this long.
    ///
    /// # Errors
    /// As [`leave`](Self::leave), and [`TimedOut`](ErrorKind::TimedOut) if others are still inside. This member has left.
    ///
    /// # Cancel safety
    /// As [`leave`](Self::leave).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let solver = client.barrier("solver", 2);
    /// let (one, other) = tokio::try_join!(solver.enter(), solver.enter())?;
    /// let error = one.leave_timeout(Duration::from_millis(5)).await.unwrap_err();
    /// assert!(error.is_timeout()); // the other one is still inside
    /// other.leave().await?;
    /// # Ok(()) }
    /// ```
    pub async fn leave_timeout(self, limit: Duration) -> Result<()> {
        Box::pin(self.leave_within(Some(limit))).await
    }

    /// The owner ids of all members that entered together, this one included, in the order in which they came. All of these
    /// members get the same list, so a place in it may be a member's share of the work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let solver = client.barrier("solver", 2);
    /// let (one, other) = tokio::try_join!(solver.enter(), solver.enter())?;
    /// assert_eq!(one.together(), other.together());
    /// assert!(one.together().contains(&other.owner_id()));
    /// # Ok(()) }
    /// ```
    pub fn together(&self) -> &[String] {
        &self.together
    }

    async fn leave_within(self, limit: Option<Duration>) -> Result<()> {
        let name = self.member.guard.hold().granted().ticket.name.clone();
        let left = self.leave_and_wait(limit).await;
        left.map_err(|error| error.on_lock(&name))
    }

    async fn leave_and_wait(self, limit: Option<Duration>) -> Result<()> {
        let Self {
            mut member,
            together,
        } = self;
        let (core, register) = (member.core.clone(), member.register.clone());
        let end = limit.map(|limit| core.timers.now() + limit);
        let lost = member.guard.hold().status.refusal();
        let lease = core.settings.lease;
        if let Some(lost) = lost {
            // Its drop removes the member in the background. The store may be what was lost.
            return Err(lost);
        }
        let rest = patience(core.timers.now(), end, lease).max(core.settings.response_timeout);
        let mut state = member.step(BarrierStep::Leave, rest).await?;
        drop(member);
        let mut wait = SignalWait::new(&core, &register.signal);
        loop {
            let others = together.iter().filter(|owner| state.is_inside(owner));
            let others = others.count();
            if others == 0 {
                return Ok(());
            }
            if end.is_some_and(|end| core.timers.now() >= end) {
                return Err(Error::new(ErrorKind::TimedOut).because(format!(
                    "{others} of {} members are still inside",
                    together.len()
                )));
            }
            wait.next(end).await?;
            let patience = patience(core.timers.now(), end, lease);
            let nobody = WriteInDoubt::default();
            let looked = register.step(&core, BarrierStep::Look, ("", &nobody), patience);
            // This member has left, so no step of it is in doubt.
            state = looked.await.map_err(Error::without_effect)?;
        }
    }

    /// The guard of the member's hold, for the blocking API.
    #[cfg(feature = "blocking")]
    pub(crate) fn hold_guard(&self) -> Guard {
        self.member.guard.reenter()
    }
}

/// How long an outage may last: a lease, or the rest of the caller's time.
pub(super) fn patience(now: BootInstant, end: Option<BootInstant>, lease: Duration) -> Duration {
    end.map_or(lease, |end| end.since(now).min(lease))
}

impl Deref for BarrierGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.member.guard
    }
}

impl fmt::Debug for BarrierGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierGuard")
            .field("guard", &self.member.guard)
            .field("together", &self.together)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::SystemTime;

    use super::*;
    use crate::client::Client;
    use crate::store::{Backend, BoxFuture, MarkChange, Marks, Name};
    use crate::testing::{Twist, Twisted};

    /// From when it is armed, it makes one more change of a mark, whose reply is lost, and is away after that.
    #[derive(Debug)]
    struct AwayAfterAChange {
        inner: Arc<dyn Backend>,
        is_armed: Arc<AtomicBool>,
        is_away: AtomicBool,
    }

    impl AwayAfterAChange {
        fn sound(&self) -> Result<&dyn Marks> {
            if self.is_away.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Unavailable));
            }
            self.inner.extensions().need_marks()
        }
    }

    impl Twist for AwayAfterAChange {
        fn marks<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
            Some(self)
        }
    }

    impl Marks for AwayAfterAChange {
        fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
            Box::pin(async move { self.sound()?.now(name).await })
        }

        fn read<'a>(
            &'a self,
            name: &'a Name,
            slot: &'a str,
        ) -> BoxFuture<'a, Result<Option<String>>> {
            Box::pin(async move { self.sound()?.read(name, slot).await })
        }

        fn replace<'a>(
            &'a self,
            name: &'a Name,
            change: MarkChange<'a>,
        ) -> BoxFuture<'a, Result<bool>> {
            Box::pin(async move {
                let changed = self.sound()?.replace(name, change).await?;
                if self.is_armed.load(Ordering::SeqCst) {
                    self.is_away.store(true, Ordering::SeqCst);
                    return Err(Error::new(ErrorKind::OutcomeUnknown));
                }
                Ok(changed)
            })
        }

        fn history<'a>(
            &'a self,
            name: &'a Name,
            limit: u32,
        ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
            Box::pin(async move { self.sound()?.history(name, limit).await })
        }
    }

    /// The last error says that nothing was changed, and that is true of the last try only.
    #[tokio::test(start_paused = true)]
    async fn a_member_that_left_without_a_reply_is_in_doubt() {
        let is_armed = Arc::<AtomicBool>::default();
        let armed = Arc::clone(&is_armed);
        let builder = Client::builder()
            .simulated_time()
            .publish_process_info(false);
        let client = builder.connect_to(async move |env| {
            let store = crate::testing::open("memory:", env).await?;
            let twist = AwayAfterAChange {
                inner: Arc::clone(&store.front),
                is_armed: armed,
                is_away: AtomicBool::new(false),
            };
            Ok(Twisted::wrap(store, twist))
        });
        let client = client.await.unwrap();
        let barrier = client.barrier("solver", 1);
        let inside = barrier.enter().await.unwrap();
        is_armed.store(true, Ordering::SeqCst);
        let error = inside.leave().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(error.lock_name(), Some("solver"));
    }

    #[test]
    fn an_outage_may_last_a_lease_or_the_rest_of_the_time_of_the_caller() {
        let (now, secs) = (BootInstant::from_nanos(1 << 40), Duration::from_secs);
        let lease = secs(3);
        assert_eq!(patience(now, None, lease), lease);
        for (rest, expected) in [(0, 0), (1, 1), (3, 3), (4, 3)] {
            let end = Some(now + secs(rest));
            assert_eq!(patience(now, end, lease), secs(expected));
        }
        assert_eq!(patience(now + lease, Some(now), lease), Duration::ZERO);
    }
}
