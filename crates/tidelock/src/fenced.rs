//! Locks whose grants carry fencing tokens: the lock, its guard, and what their types share with those without tokens.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, ErrorKind, Result};
use crate::fence::SqlFence;
use crate::guard::Guard;
#[cfg(doc)]
use crate::lock::FencedLock;
use crate::release::Release;
use crate::types::FencingToken;

/// What a lock gives to its holder: a [`Guard`], a [`FencedGuard`] with a token, or [`Permits`](crate::Permits) of a
/// semaphore. Only these implement it.
///
/// Code that works with both kinds of lock is generic over it; `Into<Guard>` gives the guard without its token.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Client, Guard, Lock, LockGuard, Result};
///
/// async fn hold<G: LockGuard>(lock: &Lock<G>) -> Result<Guard> {
///     lock.acquire().await.map(Into::into)
/// }
///
/// let client = Client::connect("memory:").await?;
/// hold(&client.lock("stock")).await?.release().await?;
/// hold(&client.lock("stock").fenced()).await?.release().await?;
/// # Ok(()) }
/// ```
pub trait LockGuard: sealed::FromGuard + Into<Guard> + Send + 'static {}

pub(crate) mod sealed {
    use crate::error::Result;
    use crate::guard::Guard;

    /// A guard with what its type promises besides the hold.
    pub trait FromGuard: Sized {
        /// The store must count: otherwise the acquisition is refused before any traffic.
        const NEEDS_TOKENS: bool;
        /// An owner that holds the lock gets it again at once.
        const REENTERS: bool;

        /// # Errors
        /// `Unsupported` if the grant came without a token, and the type has one. The lock is released.
        fn from_guard(guard: Guard) -> Result<Self>;

        fn guard(&self) -> &Guard;
    }
}

impl LockGuard for Guard {}

impl sealed::FromGuard for Guard {
    const NEEDS_TOKENS: bool = false;
    const REENTERS: bool = true;

    fn from_guard(guard: Guard) -> Result<Self> {
        Ok(guard)
    }

    fn guard(&self) -> &Guard {
        self
    }
}

impl LockGuard for FencedGuard {}

impl sealed::FromGuard for FencedGuard {
    const NEEDS_TOKENS: bool = true;
    const REENTERS: bool = true;

    fn from_guard(guard: Guard) -> Result<Self> {
        match guard.hold().token {
            Some(token) => Ok(Self { guard, token }),
            None => Err(Error::new(ErrorKind::Unsupported)
                .on_lock(guard.name())
                .because("this kind of lock has no fencing tokens on this store")),
        }
    }

    fn guard(&self) -> &Guard {
        &self.guard
    }
}

/// A [`Guard`] with a fencing token: a held [`FencedLock`]. It has all methods of a guard, and works wherever a
/// `&Guard` is wanted.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("ledger").fenced().acquire().await?;
/// guard.while_held(async { /* write with guard.token() */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct FencedGuard {
    guard: Guard,
    token: FencingToken,
}

impl FencedGuard {
    /// The guard with the token that it came with.
    #[cfg(feature = "blocking")]
    pub(crate) fn with_token(guard: Guard, token: FencingToken) -> Self {
        Self { guard, token }
    }

    /// The fencing token: larger than those of all earlier grants of this lock. Renewals and re-entries do not change
    /// it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("ledger").fenced().acquire().await?;
    /// let token = guard.token().as_i64();
    /// // UPDATE ledger SET …, token = $token WHERE id = $id AND token <= $token
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns a statement for your own transaction on the database that has this lock. It fails the transaction unless
    /// this guard's token is still the newest. For `postgres:` and `mysql:`.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the locks are in no such database, and for the read side of a read-write
    /// lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("ledger").fenced().acquire().await?;
    /// let error = guard.sql_fence().unwrap_err(); // `memory:` has no transactions; see `SqlFence` for one that has
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # Ok(()) }
    /// ```
    pub fn sql_fence(&self) -> Result<SqlFence> {
        self.guard.sql_fence(self.token)
    }

    /// One more guard of the same acquisition, with the same token. See [`Guard::reenter`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let outer = client.lock("ledger").fenced().acquire().await?;
    /// let inner = outer.reenter();
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    pub fn reenter(&self) -> Self {
        Self {
            guard: self.guard.reenter(),
            token: self.token,
        }
    }

    /// Releases the lock and waits until the store confirms it. See [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// client.lock("ledger").fenced().acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn release(self) -> Release {
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
