//! The result of a release, and the store's count of other waiters.

use crate::store::BootInstant;

/// The other clients that wait for a released lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The number of waiting processes, as far as the store can count them.
    pub others: u32,
    /// The number of those processes that are not tidelock clients.
    pub foreign: u32,
    /// A client other than tidelock held the lock a short time ago. Such clients may poll for the lock, and the store
    /// cannot count them.
    pub polled: bool,
    /// The count of [`ReleasesSeen`], including this release.
    pub releases_seen: u64,
}

impl Awaited {
    pub(crate) fn peers(&self) -> u32 {
        self.others.saturating_sub(self.foreign)
    }

    pub(crate) fn is_anybody(&self) -> bool {
        self.others > 0 || self.polled
    }
}

/// The releases of a lock that a client has noticed, including its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleasesSeen {
    /// The number of releases since the client began to listen.
    pub count: u64,
    /// The time of the last noticed release.
    pub last: BootInstant,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The ticket held the lock and no longer holds it. Waiters have been woken.
    Freed,
    /// Like `Freed`, and the store knows that other clients wait for the lock.
    Awaited(Awaited),
    /// The ticket did not hold the lock.
    NotHeld,
    /// The ticket held the lock until now, but another kind of lock was taken at the same key as well. The entry of
    /// this ticket has been removed.
    WrongType,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_waits_or_may_poll_is_somebody() {
        for (others, foreign, polled, peers, is_anybody) in [
            (0, 0, false, 0, false),
            (1, 0, false, 1, true),
            (5, 2, false, 3, true),
            (0, 0, true, 0, true),
            // The store counts both at different instants.
            (1, 2, true, 0, true),
        ] {
            let awaited = Awaited {
                others,
                foreign,
                polled,
                ..Awaited::default()
            };
            assert_eq!(awaited.peers(), peers, "{awaited:?}");
            assert_eq!(awaited.is_anybody(), is_anybody, "{awaited:?}");
        }
    }
}
