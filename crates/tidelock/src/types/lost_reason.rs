//! Why a hold was lost.

use std::fmt;

/// The reason why a lock was lost.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// use tidelock::LostReason;
///
/// let guard = client.lock("job").acquire().await?;
/// client.close(std::time::Duration::ZERO).await;
/// match guard.lost().await {
///     LostReason::Closed => println!("this program ends"),
///     reason => panic!("{reason}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LostReason {
    /// The lease could no longer be proved: it ended, or no renewal was answered in time.
    Expired,
    /// According to the store, the lock was freed or taken: by force release, flush, eviction or failover.
    Taken,
    /// The hold reached its maximum duration.
    MaxHold,
    /// The client was closed, and its grace period has ended.
    Closed,
    /// The task that renews the leases has died.
    Unattended,
    /// The key now holds something else. Either a client that does not check for our locks, such as Redisson's
    /// `RReadWriteLock`, took another kind of lock under the same name, or the key was overwritten. The other holder
    /// may already have entered the critical section. Use a name for one kind of lock only.
    WrongType,
}

impl LostReason {
    pub(crate) const ALL: [Self; 6] = [
        Self::Expired,
        Self::Taken,
        Self::MaxHold,
        Self::Closed,
        Self::Unattended,
        Self::WrongType,
    ];

    /// The name of the reason in `snake_case`, for metrics and structured logs. It never changes.
    ///
    /// # Examples
    /// ```
    /// use tidelock::LostReason;
    ///
    /// assert_eq!(LostReason::MaxHold.as_str(), "max_hold");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
            Self::Unattended => "unattended",
            Self::WrongType => "wrong_type",
        }
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::Unattended)
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease could not be proved any longer",
            Self::Taken => "the store gave it up: force release, flush, eviction or failover",
            Self::MaxHold => "the cap on the total hold was reached",
            Self::Closed => "the client was closed, and its grace period has ended",
            Self::Unattended => "the task that keeps the leases has died",
            Self::WrongType => {
                "another kind of lock was taken on its key, or the key was overwritten; use a name for one kind of lock only"
            }
        })
    }
}

impl std::error::Error for LostReason {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_reason_that_is_kept_as_a_number_stays_the_same() {
        for reason in LostReason::ALL {
            assert_eq!(LostReason::from_number(reason.number()), reason);
        }
        // No hold has such a number.
        assert_eq!(LostReason::from_number(99), LostReason::Unattended);
    }

    #[test]
    fn each_reason_has_its_own_word_and_its_own_text() {
        let words: HashSet<&str> = LostReason::ALL.iter().map(|it| it.as_str()).collect();
        let texts: HashSet<String> = LostReason::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), LostReason::ALL.len());
        assert_eq!(texts.len(), LostReason::ALL.len());
    }
}
