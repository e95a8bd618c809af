//! What a holder may rely on: held, unsure, lost.

use std::fmt;

/// What a holder may rely on just now: see [`Guard::state`](crate::Guard::state).
///
/// Between "all is well" and "it is lost" there is a time in which the lock is still proved to be held, and the signs are
/// bad: Chubby calls it jeopardy. Whoever is told of it can finish what was begun, and begin nothing that takes long.
/// It ends with `Held` when the store has been heard from, or with `Lost` at the end of what was proved.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// use tidelock::HoldState;
///
/// let guard = client.lock("leader").acquire().await?;
/// assert_eq!(guard.state(), HoldState::Held);
/// client.close(std::time::Duration::ZERO).await; // releases what is left
/// assert_eq!(guard.state(), HoldState::Lost);
/// assert_eq!(HoldState::Unsure.to_string(), "held, but the store has not confirmed it lately");
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// It is proved to be held, and the last renewal was answered in time.
    Held,
    /// It is still proved to be held, but the last renewal failed or is overdue, or the session it depends on is cut off
    /// (ZooKeeper's SUSPENDED).
    Unsure,
    /// It is not held any more.
    Lost,
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Unsure => "held, but the store has not confirmed it lately",
            Self::Lost => "lost",
        })
    }
}
