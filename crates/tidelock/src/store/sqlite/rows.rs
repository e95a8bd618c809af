//! The lease in a row: decides from a lock's row whether an owner holds the lock. Contains no SQL.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};

/// Bounds the names whose rows of another clock are remembered. At the limit all are forgotten, which only makes
/// waiters wait longer.
const MOST_SIGHTS: usize = 10_000;

/// The shortest time between two withdrawals of a client that remove expired tombstones.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How long nothing is stored after a failure to do so. Otherwise each refused attempt would wait for a file that cannot
/// be written.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// An instant, and the clock it was read on. Readings of two clocks cannot be compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now<'a> {
    /// Nanoseconds.
    pub(crate) stamp: i64,
    /// The name of the clock: see [`Timebase`](crate::store::sqlite::timebase::Timebase).
    pub(crate) domain: &'a str,
}

impl Now<'_> {
    /// The reading of this clock `time` later.
    pub(crate) fn plus(&self, time: Duration) -> i64 {
        self.stamp.saturating_add(nanos(time))
    }

    fn until(&self, stamp: i64) -> Duration {
        Duration::from_nanos(u64::try_from(stamp.saturating_sub(self.stamp)).unwrap_or(0))
    }
}

/// A duration in nanoseconds, as rows store it.
pub(crate) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// The stored state of a granted lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) owner: String,
    /// Changes with every write, so that a renewed row can be told from an unchanged one.
    pub(crate) revision: i64,
    /// Nanoseconds.
    pub(crate) lease: i64,
    /// The deadline: a reading of the clock `domain`.
    pub(crate) ends: i64,
    pub(crate) domain: String,
    pub(crate) token: Option<i64>,
}

impl Row {
    /// The revision of the next write. After the largest number it begins again, which is a change all the same.
    pub(crate) fn next_revision(&self) -> i64 {
        self.revision.checked_add(1).unwrap_or(1)
    }

    /// Tells this row from each other one of its lock. Without the token, a later grant of the same owner could look like
    /// an earlier one.
    fn state(&self) -> (&str, i64, Option<i64>) {
        (self.owner.as_str(), self.revision, self.token)
    }
}

/// The state of a lock from the viewpoint of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOwner {
    /// The lock is free.
    Free,
    /// The given owner holds the lock.
    Ours,
    /// Another owner holds the lock, for this long as far as we know.
    Theirs(Duration),
}

impl Row {
    /// Tells whether the lock is free, held by this owner or held by another owner.
    pub(crate) fn owner_of_row(
        &self,
        name: &str,
        owner: &str,
        now: Now<'_>,
        seen: &ForeignRows,
    ) -> RowOwner {
        let left = self.left(name, now, seen);
        if left.is_zero() {
            RowOwner::Free
        } else if self.owner == owner {
            RowOwner::Ours
        } else {
            RowOwner::Theirs(left)
        }
    }

    /// Returns the time until the lease ends, at most. The deadline of another clock means nothing to us, so such a row
    /// counts for one whole lease from the first time we saw its current revision.
    pub(crate) fn left(&self, name: &str, now: Now<'_>, seen: &ForeignRows) -> Duration {
        if self.domain == now.domain {
            now.until(self.ends)
        } else {
            now.until(seen.first(name, self, now.stamp).saturating_add(self.lease))
        }
    }
}

/// The rows of other clocks that this process has seen, and when it first saw each in its current revision.
#[derive(Debug, Default)]
pub(crate) struct ForeignRows {
    /// By the name of the lock.
    locks: Mutex<HashMap<String, ForeignRow>>,
    /// Tombstones and the details of clients, by owner or client. Their end is their revision.
    notes: Mutex<HashMap<String, ForeignRow>>,
    /// When withdrawals last removed expired tombstones.
    swept: Mutex<Option<i64>>,
    /// When we last failed to store in the file what we have seen.
    unstored: Mutex<Option<i64>>,
}

#[derive(Debug)]
struct ForeignRow {
    owner: String,
    revision: i64,
    /// Differs between two grants of one owner, whose revisions may be equal. A note has none.
    token: Option<i64>,
    since: i64,
}

impl ForeignRow {
    fn is(&self, (owner, revision, token): (&str, i64, Option<i64>)) -> bool {
        self.owner == owner && self.revision == revision && self.token == token
    }
}

impl ForeignRows {
    /// Returns when we first saw this row in this revision. Unless we have seen it so before, that is `now`.
    pub(crate) fn first(&self, name: &str, row: &Row, now: i64) -> i64 {
        first(self.lock(), name, row.state(), now)
    }

    /// Whether we have seen this row in this revision before.
    pub(crate) fn has(&self, name: &str, row: &Row) -> bool {
        has(&self.lock(), name, row.state())
    }

    /// Whether we have seen this tombstone or these details with this end before.
    pub(crate) fn has_note(&self, id: &str, domain: &str, ends: i64) -> bool {
        has(&self.notes.lock(), id, (domain, ends, None))
    }

    /// Whether we have seen no row of another clock.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty() && self.notes.lock().is_empty()
    }

    /// Returns when we first saw this tombstone or these details with this end.
    pub(crate) fn note(&self, id: &str, domain: &str, ends: i64, now: i64) -> i64 {
        first(self.notes.lock(), id, (domain, ends, None), now)
    }

    /// Whether a withdrawal removes expired tombstones now. It reads all of them, so a crowd that leaves at once must not
    /// do so one by one.
    pub(crate) fn sweeps_tombstones(&self, now: i64) -> bool {
        let mut swept = self.swept.lock();
        let due = swept.is_none_or(|last| now.saturating_sub(last) >= nanos(SWEEP_INTERVAL));
        if due {
            *swept = Some(now);
        }
        due
    }

    /// Whether to store what we have seen now. A failure that is later than `now` does not count: the clock was
    /// set back.
    pub(crate) fn may_be_stored(&self, now: i64) -> bool {
        let unstored = *self.unstored.lock();
        unstored.is_none_or(|last| {
            let since = now.saturating_sub(last);
            !(0..nanos(STORE_INTERVAL)).contains(&since)
        })
    }

    /// Notes that what we have seen could not be stored.
    pub(crate) fn could_not_be_stored(&self, now: i64) {
        *self.unstored.lock() = Some(now);
    }

    /// Forgets a tombstone or details that were deleted.
    pub(crate) fn forget_note(&self, id: &str) {
        self.notes.lock().remove(id);
    }

    /// Forgets a row that was deleted or taken over.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ForeignRow>> {
        self.locks.lock()
    }
}

/// How a row of this table is noted: the tombstone of an owner beside its place in a queue.
pub(crate) fn note_of(table: &str, id: &str) -> String {
    match table {
        "withdrawn" | "clients" => id.to_owned(),
        _ => format!("waiter {id}"),
    }
}

fn has(sights: &HashMap<String, ForeignRow>, key: &str, state: (&str, i64, Option<i64>)) -> bool {
    sights.get(key).is_some_and(|sight| sight.is(state))
}

fn first(
    mut sights: MutexGuard<'_, HashMap<String, ForeignRow>>,
    key: &str,
    state: (&str, i64, Option<i64>),
    now: i64,
) -> i64 {
    if let Some(sight) = sights.get(key)
        && sight.is(state)
    {
        return sight.since;
    }
    if sights.len() >= MOST_SIGHTS {
        sights.clear();
    }
    let (owner, revision, token) = state;
    let sight = ForeignRow {
        owner: owner.to_owned(),
        revision,
        token,
        since: now,
    };
    sights.insert(key.to_owned(), sight);
    now
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
        let seen = ForeignRows::default();
        let owner_of_row =
            |owner, seconds| row().owner_of_row("n", owner, at(seconds, "here"), &seen);
        assert_eq!(owner_of_row("a:1", 99), RowOwner::Ours);
        assert_eq!(
            owner_of_row("b:1", 99),
            RowOwner::Theirs(Duration::from_secs(1))
        );
        assert_eq!(owner_of_row("b:1", 100), RowOwner::Free);
        assert_eq!(owner_of_row("a:1", 100), RowOwner::Free);
    }

    #[test]
    fn a_deadline_of_another_clock_counts_from_when_the_row_was_first_seen() {
        let seen = ForeignRows::default();
        // The readings do not matter: 5000 s is long past the deadline, 5 s is long before it.
        for start in [5000_i64, 5] {
            let seen_at =
                |seconds: i64| row().owner_of_row("n", "b:1", at(start + seconds, "there"), &seen);
            seen.forget("n");
            assert_eq!(seen_at(0), RowOwner::Theirs(Duration::from_secs(10)));
            assert_eq!(seen_at(9), RowOwner::Theirs(Duration::from_secs(1)));
            assert_eq!(seen_at(10), RowOwner::Free);
        }
    }

    #[test]
    fn a_later_grant_of_the_same_owner_by_another_clock_counts_from_its_own_first_sight() {
        let seen = ForeignRows::default();
        let mut row = row();
        for (seconds, token) in [(0, 1), (9, 2), (18, 3)] {
            row.token = Some(token);
            let owner_of_row = row.owner_of_row("n", "b:1", at(seconds, "there"), &seen);
            assert_eq!(owner_of_row, RowOwner::Theirs(Duration::from_secs(10)));
        }
    }

    #[test]
    fn so_many_sights_are_remembered_and_no_more() {
        let seen = ForeignRows::default();
        let since = |number: usize, now| seen.first(&number.to_string(), &row(), now);
        for number in 0..MOST_SIGHTS {
            assert_eq!(since(number, 1), 1);
        }
        assert_eq!([0, MOST_SIGHTS - 1].map(|number| since(number, 2)), [1, 1]);
        assert_eq!(since(MOST_SIGHTS, 2), 2);
        assert_eq!(since(0, 3), 3, "all were forgotten");
    }

    #[test]
    fn the_tombstone_of_an_owner_is_noted_apart_from_its_place_in_a_queue() {
        let seen = ForeignRows::default();
        let [tombstone, place] = ["withdrawn", "waiters"].map(|table| note_of(table, "a:1"));
        assert_eq!(seen.note(&tombstone, "there", 7, 1), 1);
        assert_eq!(seen.note(&place, "there", 5, 2), 2);
        assert_eq!(seen.note(&tombstone, "there", 7, 3), 1);
        assert!(seen.has_note(&tombstone, "there", 7));
        assert!(!seen.has_note(&tombstone, "there", 8));
        seen.forget_note(&tombstone);
        assert_eq!(seen.note(&tombstone, "there", 7, 4), 4);
        assert_eq!(seen.note(&place, "there", 5, 4), 2);
    }

    #[test]
    fn a_crowd_that_leaves_removes_tombstones_once_a_second() {
        let seen = ForeignRows::default();
        let half = SECOND / 2;
        let times = [0, half, SECOND - 1, SECOND, SECOND + half, 2 * SECOND];
        let sweeps = times.map(|now| seen.sweeps_tombstones(now));
        assert_eq!(sweeps, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_failure_to_store_counts_for_a_second_unless_the_clock_was_set_back() {
        let seen = ForeignRows::default();
        assert!(seen.may_be_stored(0));
        seen.could_not_be_stored(9 * SECOND);
        let times = [9 * SECOND - 1, 9 * SECOND, 10 * SECOND - 1, 10 * SECOND];
        let may = times.map(|now| seen.may_be_stored(now));
        assert_eq!(may, [true, false, false, true]);
    }

    #[test]
    fn a_row_of_another_clock_that_is_renewed_is_never_taken() {
        let seen = ForeignRows::default();
        for step in 0..10 {
            let mut row = row();
            row.revision += step;
            let owner_of_row = row.owner_of_row("n", "b:1", at(step * 9, "there"), &seen);
            assert_eq!(owner_of_row, RowOwner::Theirs(Duration::from_secs(10)));
        }
    }
}
