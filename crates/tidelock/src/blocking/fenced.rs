//! Fencing tokens in the blocking API: the guard with a token, and what it shares with the guard without one.

use std::fmt;
use std::ops::Deref;

use super::Guard;
use crate::error::Result;
use crate::fence::SqlFence;
use crate::types::FencingToken;

/// What a lock gives to its holder: a [`Guard`], or a [`FencedGuard`] with a token. See
/// [`LockGuard`](crate::LockGuard).
///
/// # Examples
/// ```
/// use tidelock::Result;
/// use tidelock::blocking::{Client, Guard, Lock, LockGuard};
///
/// fn hold<G: LockGuard>(lock: &Lock<G>) -> Result<Guard> {
///     lock.acquire().map(Into::into)
/// }
///
/// let client = Client::connect("memory:")?;
/// hold(&client.lock("stock"))?.release()?;
/// hold(&client.lock("stock").fenced())?.release()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
pub trait LockGuard: sealed::FromAsync + Into<Guard> + 'static {}

pub(super) mod sealed {
    use crate::blocking::Guard;

    /// The guard of a thread for a guard of the async API.
    pub trait FromAsync {
        type Async: crate::LockGuard;

        /// `stay` ties the guard to this thread.
        fn from_async(guard: Self::Async, stay: impl FnOnce(crate::Guard) -> Guard) -> Self;

        fn into_async(self) -> Self::Async;

        fn as_async(&self) -> &crate::Guard;
    }
}

impl LockGuard for Guard {}

impl sealed::FromAsync for Guard {
    type Async = crate::Guard;

    fn from_async(guard: crate::Guard, stay: impl FnOnce(crate::Guard) -> Guard) -> Self {
        stay(guard)
    }

    fn into_async(self) -> crate::Guard {
        self.inner
    }

    fn as_async(&self) -> &crate::Guard {
        &self.inner
    }
}

impl LockGuard for FencedGuard {}

impl sealed::FromAsync for FencedGuard {
    type Async = crate::FencedGuard;

    fn from_async(fenced: crate::FencedGuard, stay: impl FnOnce(crate::Guard) -> Guard) -> Self {
        let token = fenced.token();
        Self {
            guard: stay(fenced.into()),
            token,
        }
    }

    fn into_async(self) -> crate::FencedGuard {
        crate::FencedGuard::with_token(self.guard.inner, self.token)
    }

    fn as_async(&self) -> &crate::Guard {
        &self.guard.inner
    }
}

/// A [`Guard`] with a fencing token, on the thread that acquired it. It has all methods of a guard. See
/// [`FencedGuard`](crate::FencedGuard).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let guard = client.lock("ledger").fenced().acquire()?;
/// let token = guard.token().as_i64();
/// // UPDATE ledger SET …, token = $token WHERE id = $id AND token <= $token
/// guard.release()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct FencedGuard {
    guard: Guard,
    token: FencingToken,
}

impl FencedGuard {
    /// The fencing token; see [`FencedGuard::token`](crate::FencedGuard::token).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("ledger").fenced().acquire()?;
    /// assert_eq!(guard.token().get(), 1); // the first grant
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// A statement for your own transaction; see [`FencedGuard::sql_fence`](crate::FencedGuard::sql_fence).
    ///
    /// # Errors
    /// As [`FencedGuard::sql_fence`](crate::FencedGuard::sql_fence).
    ///
    /// # Examples
    /// ```
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("ledger").fenced().acquire()?;
    /// let error = guard.sql_fence().unwrap_err(); // for `postgres:` and `mysql:`
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn sql_fence(&self) -> Result<SqlFence> {
        self.guard.inner.sql_fence(self.token)
    }

    /// Returns one more guard of the same acquisition, with the same token; see [`Guard::reenter`].
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let outer = client.lock("ledger").fenced().acquire()?;
    /// assert_eq!(outer.reenter().token(), outer.token());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn reenter(&self) -> Self {
        Self {
            guard: self.guard.reenter(),
            token: self.token,
        }
    }

    /// Releases the lock and waits until the store has confirmed it; see [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.lock("ledger").fenced().acquire()?.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn release(self) -> Result<()> {
        self.guard.release()
    }
}

impl Deref for FencedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<FencedGuard> for Guard {
    /// The guard without its token. The lock stays held.
    fn from(fenced: FencedGuard) -> Self {
        fenced.guard
    }
}

impl fmt::Debug for FencedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("guard", &self.guard)
            .field("token", &self.token)
            .finish()
    }
}
