//! The state of a hold as its holder sees it: held, unsure or lost.

use std::fmt;

/// The current state of a hold; see [`Guard::state`](crate::Guard::state).
///
/// Between "held" and "lost" there may be a time in which the lock is still proved to be held, but the last renewal
/// failed or is overdue; Chubby calls it jeopardy. A holder that sees `Unsure` can finish its current work, and should
/// begin nothing that takes long. `Unsure` becomes `Held` when the store answers again, or `Lost` when the proved time
/// ends.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::HoldState;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("leader").acquire().await?;
/// assert_eq!(guard.state(), HoldState::Held);
/// client.close(std::time::Duration::ZERO).await; // releases what is left
/// assert_eq!(guard.state(), HoldState::Lost);
/// assert_eq!(HoldState::Unsure.to_string(), "held, but the store has not confirmed it lately");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum HoldState {
    /// It is proved to be held, and the last renewal was answered in time.
    Held,
    /// It is still proved to be held, but the last renewal failed or is overdue, or the connection of the session it
    /// depends on is cut off (ZooKeeper's SUSPENDED).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_shown_in_its_own_words() {
        assert_eq!(HoldState::Held.to_string(), "held");
        assert!(HoldState::Unsure.to_string().starts_with("held, but "));
        assert_eq!(HoldState::Lost.to_string(), "lost");
    }
}
