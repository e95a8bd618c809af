//! The fencing token.

use std::fmt;

/// A number that grows with every grant of a lock. Pass it to the resource that the lock protects, and let the resource
/// refuse a smaller number than the largest it has seen. Then even a holder that was frozen past its lease can do no
/// harm.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// let ledger = client.lock("ledger").fenced();
/// let late = ledger.acquire().await?.token(); // released at once
/// let now = ledger.acquire().await?.token();
/// assert!(late < now); // so the resource, which has seen `now`, refuses `late`
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest number to which [`raise_token`](crate::FencedLock::raise_token) raises a counter: every SQL database can store
    /// it.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(tidelock::FencingToken::MAX.get(), i64::MAX as u64);
    /// ```
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());

    /// Creates a token from a number that was read from a resource or a store.
    ///
    /// # Examples
    /// ```
    /// use tidelock::FencingToken;
    ///
    /// let newest_seen = FencingToken::new(41); // read from the row
    /// assert!(FencingToken::new(42) > newest_seen);
    /// ```
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number to store beside the data.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("ledger").fenced().acquire().await?;
    /// let column: u64 = guard.token().get();
    /// assert_eq!(column, 1); // the first grant
    /// # Ok(()) }
    /// ```
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as a signed integer, which is what SQL databases store. A number above [`i64::MAX`] becomes
    /// `i64::MAX`, so such tokens cannot be told apart by it. Only MySQL and MariaDB grant them, once somebody has set the
    /// counter so high in the table; there store [`get`](Self::get) in an unsigned column.
    ///
    /// # Examples
    /// ```
    /// use tidelock::FencingToken;
    ///
    /// assert_eq!(FencingToken::new(42).as_i64(), 42);
    /// ```
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// The next token. The largest token has none, and a store never reserves tokens after it.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_a_signed_column_cannot_hold_becomes_the_largest_that_it_can() {
        for (token, column) in [
            (0, 0),
            (42, 42),
            (FencingToken::MAX.get(), i64::MAX),
            (FencingToken::MAX.get() + 1, i64::MAX),
            (u64::MAX, i64::MAX),
        ] {
            assert_eq!(FencingToken::new(token).as_i64(), column, "{token}");
        }
    }

    #[test]
    fn the_largest_token_is_followed_by_none_that_is_smaller() {
        assert_eq!(FencingToken::new(41).next(), FencingToken::new(42));
        let largest = FencingToken::new(u64::MAX);
        assert_eq!(largest.next(), largest);
    }
}
