//! The answer to a release, and what a store knows of other waiters.

use super::Moment;

/// The clients other than this one that wait for a lock which was released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Awaited {
    /// How many processes wait, as far as the store can count them.
    pub others: u32,
    /// How many of them are not clients of tidelock.
    pub strangers: u32,
    /// A client other than tidelock held the lock a short time ago. Such clients may poll for it, and the store cannot count
    /// them.
    pub polled: bool,
    /// The count of [`Heard`], this release included.
    pub heard: u64,
}

impl Awaited {
    pub(crate) fn kin(&self) -> u32 {
        self.others.saturating_sub(self.strangers)
    }

    pub(crate) fn is_anybody(&self) -> bool {
        self.others > 0 || self.polled
    }
}

/// What a client has heard of the releases of a lock, its own included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// How many since it began to listen.
    pub count: u64,
    /// When it heard the last of them.
    pub last: Moment,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The ticket held the lock and holds it no more; waiters have been woken.
    Freed,
    /// The same, and the store knows that other clients wait for the lock.
    Awaited(Awaited),
    /// The ticket did not hold it.
    NotHeld,
    /// The ticket held it until now, but not alone: another kind of lock had been taken at the same key. What was the ticket's has
    /// gone from there.
    WrongType,
}
