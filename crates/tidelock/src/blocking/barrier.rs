//! The double barrier of the blocking API.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::barrier::BarrierMembers;
use crate::blocking::guard::Guard;
use crate::blocking::{Client, on_this_thread};
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A double barrier, for threads; see [`Barrier`](crate::Barrier).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let solver = client.barrier("solver", 2);
/// let other = solver.clone();
/// let thread = std::thread::spawn(move || other.enter()?.leave());
/// solver.enter()?.leave()?;
/// thread.join().unwrap()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Barrier {
    barrier: crate::Barrier,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A double barrier of so many members; see [`Client::barrier`](crate::Client::barrier). Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.barrier("solver", 1).enter()?.leave()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn barrier(&self, name: &str, members: u32) -> Barrier {
        Barrier {
            barrier: self.client.barrier(name, members),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl Barrier {
    /// Waits until all members have come; see [`Barrier::enter`](crate::Barrier::enter).
    ///
    /// # Errors
    /// As [`Barrier::enter`](crate::Barrier::enter), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let inside = client.barrier("solver", 1).enter()?;
    /// assert!(inside.is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn enter(&self) -> Result<BarrierGuard> {
        let entered = self.blocker.run(self.barrier.enter())??;
        Ok(self.guard(entered))
    }

    /// As [`enter`](Self::enter), for at most this long; see
    /// [`Barrier::enter_timeout`](crate::Barrier::enter_timeout).
    ///
    /// # Errors
    /// As [`Barrier::enter_timeout`](crate::Barrier::enter_timeout), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let alone = client.barrier("solver", 2).enter_timeout(Duration::from_millis(5));
    /// assert!(alone.unwrap_err().is_timeout());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn enter_timeout(&self, limit: Duration) -> Result<BarrierGuard> {
        let entered = self.blocker.run(self.barrier.enter_timeout(limit))??;
        Ok(self.guard(entered))
    }

    /// The members that are present; see [`Barrier::members`](crate::Barrier::members).
    ///
    /// # Errors
    /// As [`Barrier::members`](crate::Barrier::members), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.barrier("solver", 2).members()?.inside.is_empty());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn members(&self) -> Result<BarrierMembers> {
        self.blocker.run(self.barrier.members())?
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.barrier("solver", 2).name(), "solver");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.barrier.name()
    }

    fn guard(&self, inside: crate::BarrierGuard) -> BarrierGuard {
        BarrierGuard {
            guard: on_this_thread(&self.blocker, inside.hold_guard()),
            inside,
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.barrier.fmt(f)
    }
}

/// A member that is inside a [`Barrier`], on the thread that entered. It has all methods of a [`Guard`]. See
/// [`BarrierGuard`](crate::BarrierGuard).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let inside = client.barrier("solver", 1).enter()?;
/// inside.leave()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "if unused, the member leaves at once"]
#[clippy::has_significant_drop]
pub struct BarrierGuard {
    inside: crate::BarrierGuard,
    guard: Guard,
}

impl BarrierGuard {
    /// The owner ids of all members that entered together; see [`BarrierGuard::together`](crate::BarrierGuard::together).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let inside = client.barrier("solver", 1).enter()?;
    /// assert_eq!(inside.together(), [inside.owner_id()]);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn together(&self) -> &[String] {
        self.inside.together()
    }

    /// Leaves, and waits for the others; see [`BarrierGuard::leave`](crate::BarrierGuard::leave).
    ///
    /// # Errors
    /// As [`BarrierGuard::leave`](crate::BarrierGuard::leave), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.barrier("solver", 1).enter()?.leave()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn leave(self) -> Result<()> {
        let Self { inside, guard } = self;
        let blocker = Arc::clone(&guard.blocker);
        drop(guard);
        blocker.run(inside.leave())?
    }

    /// As [`leave`](Self::leave), for at most this long; see
    /// [`BarrierGuard::leave_timeout`](crate::BarrierGuard::leave_timeout).
    ///
    /// # Errors
    /// As [`BarrierGuard::leave_timeout`](crate::BarrierGuard::leave_timeout), and [`Runtime`](ErrorKind::Runtime) in
    /// async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let inside = client.barrier("solver", 1).enter()?;
    /// inside.leave_timeout(Duration::from_secs(5))?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn leave_timeout(self, limit: Duration) -> Result<()> {
        let Self { inside, guard } = self;
        let blocker = Arc::clone(&guard.blocker);
        drop(guard);
        blocker.run(inside.leave_timeout(limit))?
    }
}

impl Deref for BarrierGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for BarrierGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inside.fmt(f)
    }
}
