//! A fence in the user's own transaction.

use crate::guard::FencingToken;

/// A statement for your own transaction on the database that has the locks: it fails, and with it the transaction, unless
/// this token is still the newest of its lock; and until the transaction ends nobody else is given the lock. Renewals and the
/// release go on. So what is written in the transaction is written by the holder or not at all, however long it was frozen.
///
/// Run it first in the transaction, with [`name`](Self::name) and [`token`](Self::token) as its two parameters. No type of
/// any driver is in it. From [`Guard::sql_fence`](crate::Guard::sql_fence).
///
/// # Examples
/// ```no_run
/// # async fn f() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("postgres://localhost/shop").await?;
/// let guard = client.fenced_lock("ledger").acquire().await?;
/// let fence = guard.sql_fence()?;
/// // In your transaction, first: execute(&fence.statement, &[&fence.name, &fence.token])
/// println!("{} with {} and {}", fence.statement, fence.name, fence.token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlFence {
    /// The statement, with two places for parameters in the form of the database (`$1`, `$2` or `?`, `?`).
    pub statement: String,
    /// The first parameter, a text: the lock's name as it is stored.
    pub name: String,
    /// The second parameter, a 64-bit integer.
    pub token: i64,
}

impl SqlFence {
    /// For stores.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{FencingToken, SqlFence};
    ///
    /// let fence = SqlFence::new("SELECT fence($1, $2)", "ledger", FencingToken::new(7));
    /// assert_eq!((fence.name.as_str(), fence.token), ("ledger", 7));
    /// ```
    pub fn new(statement: impl Into<String>, name: impl Into<String>, token: FencingToken) -> Self {
        Self {
            statement: statement.into(),
            name: name.into(),
            token: i64::try_from(token.get()).unwrap_or(i64::MAX),
        }
    }
}
