//! Double barrier: a number of members enter together and leave together.
//!
//! ```text
//!   absent ──enter──► waits ──the last of n comes──► inside ──leave──► left, waits for the others ──► done
//!                       └──time limit, drop, death──► absent     └──drop, death──► absent
//! ```
//!
//! 1. A member holds the read side of the lock of the barrier's name, from before it is in the state until it has left. So
//!    its lease is renewed, its loss is told, and the others see in the store whether it is alive.
//! 2. The state is one mark, which is replaced by compare-and-set only. So all members agree who entered together: exactly
//!    n, and never while one of an earlier use is inside.
//! 3. Members wait behind another lock, whose release by force is the signal to look: see [`signal`].

mod guard;
mod member;
mod register;
mod signal;
mod state;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

pub use self::guard::BarrierGuard;

use self::guard::patience;
use self::member::BarrierMember;
use self::register::BarrierRegister;
use self::signal::SignalWait;
use self::state::{BarrierState, BarrierStep};
use crate::engine::ClientInner;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::store::{LockKind, Name};

/// The most members of one barrier. Each of them changes one text when it comes.
const MAX_SIZE: u32 = 100;

/// A double barrier: `n` members enter together, do their work, and leave together, in any processes. Cheap to make and
/// to clone, and without state. [`Client::barrier`](crate::Client::barrier) makes it.
///
/// *Together*: [`enter`](Self::enter) waits until `n` members have come. Exactly `n` enter, in the order in which they
/// came; all of them agree on that, whatever fails. A further member waits for the next use of the barrier. The next use
/// begins when all members have left, so no member of one use is ever inside with one of another.
///
/// *Leases*: a member holds a lease, which the client renews. A member that dies while it waits is not counted once its
/// lease has ended; one that dies inside holds up nobody for longer. A member that is lost learns it from its
/// [guard](BarrierGuard) first.
///
/// *All must name the same `n`*. A member that names another one than those that are present gets
/// [`InvalidOptions`](ErrorKind::InvalidOptions).
///
/// *Waiting is quiet*: members wait for a message where the store wakes waiters, and otherwise poll as those of a lock
/// do. They look by themselves at least each third of a lease.
///
/// *Names*: the members hold the read side of the [read-write lock](crate::ReadWriteLock) of the barrier's name, so a
/// writer of that name keeps members out; use the name for nothing else. `NAME%barrier` belongs to the barrier too: its state
/// is there, and members free the lock of that name by force. The state has not the form of Curator's
/// `DistributedDoubleBarrier`: do not mix the two at one path.
///
/// Every store with read-write locks has barriers; others fail with [`Unsupported`](ErrorKind::Unsupported) before any
/// traffic. A store that loses its data forgets who is inside.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let worker = |solver: tidelock::Barrier| async move {
///     for _step in 0..3 {
///         let inside = solver.enter().await?; // nobody begins a step before all are there
///         inside.while_held(async { /* one step */ }).await?;
///         inside.leave().await?; // nobody goes on before all have done it
///     }
///     Ok::<_, tidelock::Error>(())
/// };
/// let solver = client.barrier("solver", 2); // in each process
/// tokio::try_join!(worker(solver.clone()), worker(solver))?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Barrier {
    /// What each member holds.
    lock: Lock,
    size: u32,
}

/// The members of a [`Barrier`] that are present, by their [owner ids](crate::Guard::owner_id).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let solver = client.barrier("solver", 1);
/// let inside = solver.enter().await?;
/// let present = solver.members().await?;
/// assert_eq!(present.inside, [inside.owner_id()]);
/// assert!(present.waiting.is_empty());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarrierMembers {
    /// Those that are inside.
    pub inside: Vec<String>,
    /// Those that wait, in the order in which they came.
    pub waiting: Vec<String>,
}

impl Barrier {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str, size: u32) -> Self {
        Self {
            lock: Lock::new(core, LockKind::Read, name),
            size,
        }
    }

    /// Waits until as many members as the barrier has have come, and enters with them.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if the number is not 1 to 100, or the members that are present name
    /// another one; [`Unsupported`](ErrorKind::Unsupported); [`Lost`](ErrorKind::Lost) if the member lost its lease while
    /// it waited; [`Unavailable`](ErrorKind::Unavailable) if the store does not answer for a lease;
    /// [`WrongType`](ErrorKind::WrongType) if the name is used for something else; and those of [`Lock::acquire`]. After an
    /// error the member is not present, or the client removes it in the background; if its last request had no answer, the
    /// others may have entered with it, and see that it has left.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, the client removes the member in the background. If the others had just
    /// entered with it, they see a member that has left.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let solver = client.barrier("solver", 2);
    /// let (one, other) = tokio::try_join!(solver.enter(), solver.enter())?;
    /// # drop((one, other));
    /// # Ok(()) }
    /// ```
    pub async fn enter(&self) -> Result<BarrierGuard> {
        Box::pin(self.enter_within(None)).await
    }

    /// As [`enter`](Self::enter), but waits for at most this long. One write to the store decides whether the time was over
    /// first or the last member came first: after [`TimedOut`](ErrorKind::TimedOut) the others have not entered with this
    /// member. The store may need longer to answer.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), and [`TimedOut`](ErrorKind::TimedOut) if too few members have come.
    ///
    /// # Cancel safety
    /// As [`enter`](Self::enter).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let alone = client.barrier("solver", 2).enter_timeout(Duration::from_millis(5)).await;
    /// assert!(alone.unwrap_err().is_timeout());
    /// # Ok(()) }
    /// ```
    pub async fn enter_timeout(&self, limit: Duration) -> Result<BarrierGuard> {
        Box::pin(self.enter_within(Some(limit))).await
    }

    /// The members that are present. For operators and logs: it may have changed by the time you read it.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`WrongType`](ErrorKind::WrongType), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Unsupported`](ErrorKind::Unsupported) and [`Closed`](ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(client.barrier("solver", 2).members().await?.waiting.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn members(&self) -> Result<BarrierMembers> {
        let name = self.lock.checked_name()?;
        let core = &self.lock.context.core;
        let looked = async {
            core.refuse_if_closed()?;
            self.register(&name)?.look(core).await
        };
        let state = looked.await.map_err(|error| error.on_lock(&name))?;
        Ok(BarrierMembers {
            inside: state.inside,
            waiting: state.waiting,
        })
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.barrier("solver", 2).name(), "shop:solver");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    async fn enter_within(&self, limit: Option<Duration>) -> Result<BarrierGuard> {
        let name = self.lock.checked_name()?;
        let entered = self.enter_named(&name, limit).await;
        entered.map_err(|error| error.on_lock(&name))
    }

    async fn enter_named(&self, name: &Name, limit: Option<Duration>) -> Result<BarrierGuard> {
        let core = &self.lock.context.core;
        core.refuse_if_closed()?;
        if !(1..=MAX_SIZE).contains(&self.size) {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "a barrier has 1 to {MAX_SIZE} members, not {}",
                self.size
            )));
        }
        let register = self.register(name)?;
        let end = limit.map(|limit| core.timers.now() + limit);
        let held = match limit {
            None => self.lock.acquire().await,
            Some(limit) => self.lock.acquire_timeout(limit).await,
        };
        // A hold whose reply was lost is withdrawn.
        let guard = held.map_err(Error::without_effect)?;
        let mut wait = SignalWait::new(core, &register.signal);
        let mut member = BarrierMember::new(core, register, guard);
        let mut step = BarrierStep::Join;
        loop {
            let patience = match step {
                // The caller's time is over, but one answer is needed: perhaps the others have entered with this member.
                BarrierStep::Withdraw => core.settings.response_timeout,
                _ => patience(core.timers.now(), end, core.settings.lease),
            };
            // After an error the member is removed, so for the caller the step has not been done.
            let state = member
                .step(step, patience)
                .await
                .map_err(Error::without_effect)?;
            if state.is_inside(member.owner()) {
                // The answer may have come after the lease. Then the others take this member for dead.
                return match member.guard.hold().status.refusal() {
                    Some(lost) => Err(lost),
                    None => Ok(BarrierGuard::new(member, state)),
                };
            }
            if step == BarrierStep::Withdraw {
                return Err(Error::new(ErrorKind::TimedOut).because(self.missing(&state)));
            }
            if end.is_some_and(|end| core.timers.now() >= end) {
                step = BarrierStep::Withdraw;
                continue;
            }
            let lost = pin!(member.guard.lost());
            match select(pin!(wait.next(end)), lost).await {
                Either::Left((waited, _)) => waited?,
                Either::Right((reason, _)) => return Err(Error::lost(reason)),
            }
        }
    }

    fn missing(&self, state: &BarrierState) -> String {
        let (inside, waiting) = (state.inside.len(), state.waiting.len());
        format!(
            "the barrier has {} members; besides this one {waiting} wait, and {inside} of an earlier use are inside",
            self.size
        )
    }

    /// # Errors
    /// `Unsupported` and `InvalidName`, before any traffic.
    fn register(&self, name: &Name) -> Result<BarrierRegister> {
        let context = &self.lock.context;
        let register = BarrierRegister::new(&context.core, &context.store, name.clone(), self.size);
        register.check()?;
        if name.is_of_barrier() {
            return Err(Error::new(ErrorKind::InvalidName)
                .because("the names that end in `%barrier` belong to the barriers themselves"));
        }
        Ok(register)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("name", &self.name())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[tokio::test]
    async fn the_name_under_which_a_barrier_keeps_its_state_is_no_barrier() {
        let client = Client::connect("memory:").await.unwrap();
        let barrier = client.barrier("solver%barrier", 1);
        for refused in [
            barrier.enter().await.map(drop),
            barrier.members().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
            assert_eq!(error.lock_name(), Some("solver%barrier"));
        }
    }

    #[tokio::test]
    async fn a_member_whose_time_is_over_is_told_who_is_missing() {
        let client = Client::connect("memory:").await.unwrap();
        let one = client.barrier("solver", 1);
        let inside = one.enter().await.unwrap();
        let error = one.enter_timeout(Duration::ZERO).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        let told = "has 1 members; besides this one 0 wait, and 1 of an earlier use are inside";
        assert!(error.to_string().contains(told), "{error}");
        let members = one.members().await.unwrap();
        assert_eq!(members.inside, inside.together());
        inside.leave().await.unwrap();
    }
}
