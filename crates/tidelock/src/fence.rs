//! An SQL statement that checks a fencing token within the user's own transaction.

use crate::types::FencingToken;
use crate::unstable::for_stores;

/// A statement for your own transaction, on the database that keeps the locks. It fails, and with it the transaction,
/// unless this token is still the newest of its lock. Until the transaction ends, the store grants the lock to nobody
/// else; renewals and the release go on. So either the holder makes the writes of that transaction or nobody does, no
/// matter how long the holder was frozen. [`is_refusal`](Self::is_refusal) tells that failure from all others.
///
/// Run it before the first savepoint: on PostgreSQL, grants no longer wait for a fence that was rolled back with its
/// savepoint. On MySQL a transaction goes on after a failed statement, so roll it back.
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

/// The SQLSTATE of a refusal on PostgreSQL. The standard leaves classes that begin with `T` to implementations, and
/// PostgreSQL has none.
pub(crate) const SQLSTATE: &str = "TL001";

/// How the message of a refusal begins on PostgreSQL. Diesel shows no SQLSTATE.
pub(crate) const POSTGRES_REFUSAL: &str = "tidelock: the lock was given to somebody else since";

/// A name within the message of a refusal on MySQL and MariaDB.
pub(crate) const MYSQL_REFUSAL: &str = "a_newer_tidelock_token_exists";

impl SqlFence {
    /// Returns whether the statement failed because another holder has got the lock since: with the SQLSTATE and the
    /// message of your driver's error. A driver that shows no SQLSTATE, such as diesel, passes `None`.
    ///
    /// On PostgreSQL the SQLSTATE is `TL001`, which no other error has. On MySQL and MariaDB a statement outside of a
    /// stored routine cannot choose its SQLSTATE: the error is 1690 (`22003`), and the message decides.
    ///
    /// # Examples
    /// ```
    /// use tidelock::SqlFence;
    ///
    /// // tokio-postgres: SqlFence::is_refusal(error.code().map(|state| state.code()), &error.to_string())
    /// assert!(SqlFence::is_refusal(Some("TL001"), "…"));
    /// assert!(!SqlFence::is_refusal(Some("23505"), "duplicate key value"));
    /// ```
    pub fn is_refusal(sqlstate: Option<&str>, message: &str) -> bool {
        sqlstate == Some(SQLSTATE)
            || [POSTGRES_REFUSAL, MYSQL_REFUSAL]
                .iter()
                .any(|said| message.contains(said))
    }

    for_stores! {
        /// Makes a fence; for implementations of a store.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{FencingToken, SqlFence};
        ///
        /// let fence = SqlFence::new("SELECT fence($1, $2)", "ledger", FencingToken::new(7));
        /// assert_eq!((fence.name.as_str(), fence.token), ("ledger", 7));
        /// ```
        fn new(statement: impl Into<String>, name: impl Into<String>, token: FencingToken) -> Self {
            Self {
                statement: statement.into(),
                name: name.into(),
                token: token.as_i64(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_state_or_by_its_message() {
        let mysql =
            "BIGINT UNSIGNED value is out of range in '(1 + `f`.`a_newer_tidelock_token_exists`)'";
        let postgres =
            "ERROR: tidelock: the lock was given to somebody else since, its newest token is 8";
        assert!(SqlFence::is_refusal(Some("TL001"), ""));
        assert!(SqlFence::is_refusal(Some("22003"), mysql));
        assert!(SqlFence::is_refusal(None, postgres));
        assert!(!SqlFence::is_refusal(
            Some("22003"),
            "numeric value out of range"
        ));
        assert!(!SqlFence::is_refusal(None, "duplicate key value"));
    }
}
