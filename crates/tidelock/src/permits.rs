//! Permits of a semaphore: the guard of an acquisition.

use std::fmt;
use std::ops::Deref;

use crate::error::Result;
use crate::fenced::{LockGuard, sealed};
use crate::guard::Guard;
use crate::release::Release;
use crate::store::LockKind;

/// Permits of a [`Semaphore`](crate::Semaphore) that are held. Dropping it gives them back in the background;
/// [`release`](Self::release) waits for that. It has all methods of a [`Guard`]: the client renews the lease of the
/// permits while it lives, [`lost`](Guard::lost) resolves before the store can give one of them to another client, and
/// [`extend`](Guard::extend) is Redisson's `updateLeaseTime`.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let render = client.semaphore("render");
/// render.set_permits_if_new(5).await?;
/// let two = render.permits(2).acquire().await?;
/// two.while_held(async { /* use both */ }).await?;
/// two.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused, the permits are given back at once"]
#[clippy::has_significant_drop]
pub struct Permits {
    guard: Guard,
    count: u16,
}

impl LockGuard for Permits {}

impl sealed::FromGuard for Permits {
    const NEEDS_TOKENS: bool = false;
    const REENTERS: bool = false;

    fn from_guard(guard: Guard) -> Result<Self> {
        Ok(Self::of(guard))
    }

    fn guard(&self) -> &Guard {
        &self.guard
    }
}

impl Permits {
    /// A guard that holds permits, with their number.
    pub(crate) fn of(guard: Guard) -> Self {
        let count = match guard.hold().granted().ticket.kind {
            LockKind::Permits(count) => count,
            _ => 1,
        };
        Self { guard, count }
    }

    /// How many permits these are. All of them are held, or none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// assert_eq!(render.permits(3).acquire().await?.count(), 3);
    /// # Ok(()) }
    /// ```
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The ids of the permits, as Redisson writes them: 32 hexadecimal digits each. A Java service that gets one can
    /// release that permit, and then all of this guard is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// let two = render.permits(2).acquire().await?;
    /// assert!(two.ids().iter().all(|id| id.len() == 32));
    /// # Ok(()) }
    /// ```
    pub fn ids(&self) -> Vec<String> {
        let owner = &self.guard.hold().granted().ticket.owner;
        (0..self.count).map(|n| owner.permit_id(n)).collect()
    }

    /// Gives the permits back and waits until the store confirms it. See [`Guard::release`].
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
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5).await?;
    /// render.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn release(self) -> Release {
        self.guard.release()
    }
}

impl Deref for Permits {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<Permits> for Guard {
    /// The guard without its number of permits. They stay held.
    fn from(permits: Permits) -> Self {
        permits.guard
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("guard", &self.guard)
            .field("count", &self.count)
            .finish()
    }
}
