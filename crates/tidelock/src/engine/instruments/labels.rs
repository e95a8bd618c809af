//! What the instruments distinguish. Every label of a metric is one of these, so no name of a lock can become one.
#![cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "only a metric has labels")
)]

use crate::types::LostReason;

/// How an acquire call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireEnd {
    /// Acquired with the first answer of the store.
    Direct,
    /// Acquired from the store after a wait.
    Waited,
    /// Acquired from another holder of this process.
    HandedOver,
    /// The owner held the lock already.
    Reentered,
    /// A zero wait, and the lock was held.
    Busy,
    TimedOut,
    Cancelled,
    Failed,
}

impl AcquireEnd {
    pub(crate) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Waited,
        Self::HandedOver,
        Self::Reentered,
        Self::Busy,
        Self::TimedOut,
        Self::Cancelled,
        Self::Failed,
    ];

    pub(crate) fn is_acquired(self) -> bool {
        self.path().is_some()
    }

    /// The label `path`. `None`: not acquired.
    pub(crate) fn path(self) -> Option<&'static str> {
        match self {
            Self::Direct => Some("direct"),
            Self::Waited => Some("waited"),
            Self::HandedOver => Some("handed_over"),
            Self::Reentered => Some("reentered"),
            Self::Busy | Self::TimedOut | Self::Cancelled | Self::Failed => None,
        }
    }

    /// The label `outcome`.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::Direct | Self::Waited | Self::HandedOver | Self::Reentered => "acquired",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Failed => "error",
        }
    }
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldOutcome {
    /// By `Guard::release`.
    Released,
    /// By the drop of the last guard.
    Dropped,
    Lost(LostReason),
}

impl HoldOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::Lost(_) => "lost",
        }
    }
}

/// What woke a waiter that then asked the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeCause {
    /// The store reported a release.
    Message,
    /// The time to ask again had come.
    Timer,
}

impl WakeCause {
    pub(crate) const ALL: [Self; 2] = [Self::Message, Self::Timer];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Timer => "timer",
        }
    }
}

/// Why a hold went back to the store although a task of this process waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOverStop {
    /// The number of hand-overs was used up.
    Count,
    /// The time for hand-overs was used up.
    Time,
    /// The waiter asked for other terms, or no fencing token was reserved for it.
    Doubt,
}

impl HandOverStop {
    pub(crate) const ALL: [Self; 3] = [Self::Count, Self::Time, Self::Doubt];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Time => "time",
            Self::Doubt => "doubt",
        }
    }
}

/// Why the background had to undo a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleanupCause {
    /// The caller has left, or has failed.
    Cancelled,
    /// The outcome of an acquire was unknown.
    LostReply,
    /// A release was not confirmed.
    Unconfirmed,
}

impl CleanupCause {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::LostReply => "lost_reply",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// How a cleanup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleanupEnd {
    Undone,
    /// The store had nothing to undo.
    Nothing,
    /// The store has not confirmed it.
    GivenUp,
}

impl CleanupEnd {
    pub(crate) const ALL: [Self; 3] = [Self::Undone, Self::Nothing, Self::GivenUp];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Undone => "undone",
            Self::Nothing => "nothing",
            Self::GivenUp => "given_up",
        }
    }
}

/// A request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreRequest {
    Acquire,
    Renew,
    Release,
    Withdraw,
}

impl StoreRequest {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Withdraw => "withdraw",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_each_label_is_its_place() {
        for (at, end) in AcquireEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, at);
        }
        for (at, end) in CleanupEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, at);
        }
        for (at, cause) in WakeCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
        }
        for (at, stop) in HandOverStop::ALL.into_iter().enumerate() {
            assert_eq!(stop as usize, at);
        }
    }
}
