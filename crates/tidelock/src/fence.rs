//! An SQL statement that checks a fencing token within the user's own transaction.

use crate::types::FencingToken;

/// A statement for your own transaction, on the database that keeps the locks. It fails, and with it the transaction,
/// unless this token is still the newest of its lock. Until the transaction ends, the store grants the lock to nobody
/// else; renewals and the release go on. So either the holder makes the writes of that transaction or nobody does, no
/// matter how long the holder was frozen.
///
/// Run it first in the transaction, with [`name`](Self::name) and [`token`](Self::token) as its two parameters. It
/// contains no type of any driver. [`FencedGuard::sql_fence`](crate::FencedGuard::sql_fence) makes one.
///
/// # Examples
/// ```no_run
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("postgres://localhost/shop").await?;
/// let guard = client.lock("ledger").fenced().acquire().await?;
/// let fence = guard.sql_fence()?;
/// // In your transaction, first: execute(&fence.statement, &[&fence.name, &fence.token])
/// println!("{} with {} and {}", fence.statement, fence.name, fence.token);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlFence {
    /// The statement, with two parameter placeholders in the syntax of the database (`$1`, `$2` or `?`, `?`).
    pub statement: String,
    /// The first parameter, a text: the lock's name as it is stored.
    pub name: String,
    /// The second parameter, a 64-bit integer.
    pub token: i64,
}

impl SqlFence {
    /// Makes a fence; for implementations of a store.
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
