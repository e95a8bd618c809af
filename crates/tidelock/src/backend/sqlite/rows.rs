//! The lease in a row: what the row of a lock says to somebody who asks. Knows nothing of SQL.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most names whose foreign rows are remembered. Beyond it the memory starts anew, which only makes waiters wait longer.
const MOST_SIGHTS: usize = 10_000;

/// An instant, and the clock it was read on. Stamps of two clocks say nothing about each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    /// Nanoseconds.
    pub(super) stamp: i64,
    /// Which clock: see [`Timebase`](super::timebase::Timebase).
    pub(super) domain: &'a str,
}

impl Now<'_> {
    /// The stamp that much later.
    pub(super) fn plus(&self, time: Duration) -> i64 {
        self.stamp.saturating_add(nanos(time))
    }

    fn until(&self, stamp: i64) -> Duration {
        Duration::from_nanos(u64::try_from(stamp.saturating_sub(self.stamp)).unwrap_or(0))
    }
}

/// A duration as it is kept in a row.
pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// What is kept of a lock that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) owner: String,
    /// Changes with every write, so that a row that stands still can be told from one that is renewed.
    pub(super) revision: i64,
    /// Nanoseconds.
    pub(super) lease: i64,
    /// The deadline, a stamp of `domain`.
    pub(super) ends: i64,
    pub(super) domain: String,
    pub(super) token: Option<i64>,
}

/// How a row stands to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody holds the lock.
    Free,
    /// The owner who asks does.
    Ours,
    /// Somebody else does, for that long as far as it is known.
    Theirs(Duration),
}

impl Row {
    /// Whether this owner, somebody else or nobody holds the lock now.
    pub(super) fn standing(&self, name: &str, owner: &str, now: Now<'_>, seen: &Seen) -> Standing {
        let left = self.left(name, now, seen);
        if left.is_zero() {
            Standing::Free
        } else if self.owner == owner {
            Standing::Ours
        } else {
            Standing::Theirs(left)
        }
    }

    /// How long the lease lasts at most. A deadline of another clock is no deadline to us: such a row counts for as long
    /// as a whole lease from when we first saw it as it is now.
    pub(super) fn left(&self, name: &str, now: Now<'_>, seen: &Seen) -> Duration {
        if self.domain == now.domain {
            now.until(self.ends)
        } else {
            now.until(seen.first(name, self, now.stamp).saturating_add(self.lease))
        }
    }
}

/// Which rows of other clocks this process has seen, and since when they are as they are.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<HashMap<String, Sight>>);

#[derive(Debug)]
struct Sight {
    owner: String,
    revision: i64,
    since: i64,
}

impl Seen {
    /// When this row was first seen in this revision.
    fn first(&self, name: &str, row: &Row, now: i64) -> i64 {
        let mut sights = self.lock();
        if let Some(sight) = sights.get(name)
            && sight.owner == row.owner
            && sight.revision == row.revision
        {
            return sight.since;
        }
        if sights.len() >= MOST_SIGHTS {
            sights.clear();
        }
        let sight = Sight {
            owner: row.owner.clone(),
            revision: row.revision,
            since: now,
        };
        sights.insert(name.to_owned(), sight);
        now
    }

    /// The row has gone or was taken over.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Sight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn row() -> Row {
        Row {
            owner: "a:1".to_owned(),
            revision: 7,
            lease: 10 * SECOND,
            ends: 100 * SECOND,
            domain: "here".to_owned(),
            token: None,
        }
    }

    fn at(seconds: i64, domain: &str) -> Now<'_> {
        Now {
            stamp: seconds * SECOND,
            domain,
        }
    }

    #[test]
    fn a_deadline_of_the_same_clock_is_taken_at_its_word() {
        let seen = Seen::default();
        let standing = |owner, seconds| row().standing("n", owner, at(seconds, "here"), &seen);
        assert_eq!(standing("a:1", 99), Standing::Ours);
        assert_eq!(
            standing("b:1", 99),
            Standing::Theirs(Duration::from_secs(1))
        );
        assert_eq!(standing("b:1", 100), Standing::Free);
        assert_eq!(standing("a:1", 100), Standing::Free);
    }

    #[test]
    fn a_deadline_of_another_clock_counts_from_when_the_row_was_first_seen() {
        let seen = Seen::default();
        // Whatever the stamps say: 5000 s is long past the deadline, 5 s is long before it.
        for start in [5000_i64, 5] {
            let seen_at =
                |seconds: i64| row().standing("n", "b:1", at(start + seconds, "there"), &seen);
            seen.forget("n");
            assert_eq!(seen_at(0), Standing::Theirs(Duration::from_secs(10)));
            assert_eq!(seen_at(9), Standing::Theirs(Duration::from_secs(1)));
            assert_eq!(seen_at(10), Standing::Free);
        }
    }

    #[test]
    fn a_row_of_another_clock_that_is_renewed_is_never_taken() {
        let seen = Seen::default();
        for step in 0..10 {
            let mut row = row();
            row.revision += step;
            let standing = row.standing("n", "b:1", at(step * 9, "there"), &seen);
            assert_eq!(standing, Standing::Theirs(Duration::from_secs(10)));
        }
    }
}
