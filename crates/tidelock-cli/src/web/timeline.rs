//! Who held each lock in the last quarter of an hour, as far as the looks at the store saw it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::top::picture::{HolderCell, LockRow, Picture};

/// How far back a timeline goes.
pub(super) const KEPT: Duration = Duration::from_secs(15 * 60);

/// Bounds the memory for locks of many names. The holds of further locks are not kept.
const MOST_LOCKS: usize = 1000;

/// Bounds the memory for one busy lock. The oldest holds go first.
const MOST_HOLDS: usize = 200;

/// The holds of all locks that were seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    locks: HashMap<String, VecDeque<Hold>>,
    /// When the last picture was taken.
    last: Option<Instant>,
}

/// One hold, or several of one holder that followed each other between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) who: String,
    owner: Option<String>,
    pub(super) from: Instant,
    /// When it was seen last.
    pub(super) to: Instant,
    /// The newest picture has it.
    pub(super) is_now: bool,
}

impl Timeline {
    /// Adds what the newest picture shows.
    pub(super) fn add(&mut self, picture: &Picture, taken: Instant) {
        let before = self.last.replace(taken);
        for hold in self.locks.values_mut().flatten() {
            hold.is_now = false;
        }
        for lock in &picture.locks {
            // Nobody has looked at a scanned lock since the scan came by.
            if lock.holders.is_empty() || lock.seen_ago.is_some() {
                continue;
            }
            if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&lock.name) {
                continue;
            }
            let holds = self.locks.entry(lock.name.clone()).or_default();
            for holder in &lock.holders {
                add(holds, lock, holder, (before, taken));
            }
            while holds.len() > MOST_HOLDS {
                holds.pop_front();
            }
        }
        self.locks.retain(|_, holds| {
            holds.retain(|hold| taken.duration_since(hold.to) < KEPT);
            !holds.is_empty()
        });
    }

    /// The holds of a lock, in the order in which they were seen first.
    pub(super) fn of(&self, lock: &str) -> impl Iterator<Item = &Hold> {
        self.locks.get(lock).into_iter().flatten()
    }
}

fn add(
    holds: &mut VecDeque<Hold>,
    lock: &LockRow,
    holder: &HolderCell,
    (before, taken): (Option<Instant>, Instant),
) {
    let since = lock.held_for.and_then(|held| taken.checked_sub(held));
    // The owner of a hold may become known later, when somebody waits for the lock.
    let is_same = |hold: &&mut Hold| match (&hold.owner, &holder.owner) {
        (Some(before), Some(now)) => before == now,
        _ => hold.who == holder.who,
    };
    let goes_on = |last: &&mut Hold| match since {
        // If it began after it was seen last, it has released the lock and acquired it again.
        Some(since) => since <= last.to,
        None => Some(last.to) == before,
    };
    let last = holds.iter_mut().rev().find(is_same);
    match last.filter(|last| !last.is_now && goes_on(last)) {
        Some(last) => {
            (last.to, last.is_now) = (taken, true);
            last.who.clone_from(&holder.who);
        }
        None => holds.push_back(Hold {
            who: holder.who.clone(),
            owner: holder.owner.clone(),
            from: since.unwrap_or(taken),
            to: taken,
            is_now: true,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::picture;

    const SECOND: Duration = Duration::from_secs(1);

    /// The first lock of the picture, held for so long by this holder.
    fn held(who: &str, held_for: Option<Duration>) -> Picture {
        let mut picture = picture();
        picture.locks.truncate(1);
        let lock = &mut picture.locks[0];
        lock.name = "job".to_owned();
        lock.held_for = held_for;
        lock.holders[0].who = who.to_owned();
        lock.holders[0].owner = Some(format!("{who}:1"));
        picture
    }

    fn free() -> Picture {
        let mut picture = picture();
        picture.locks.clear();
        picture
    }

    fn seen(timeline: &Timeline, begin: Instant) -> Vec<(String, u64, u64, bool)> {
        let holds = timeline.of("job").map(|hold| {
            let after = |at: Instant| (at - begin).as_secs();
            (
                hold.who.clone(),
                after(hold.from),
                after(hold.to),
                hold.is_now,
            )
        });
        holds.collect()
    }

    #[test]
    fn a_hold_goes_on_from_look_to_look_and_a_later_one_is_another() {
        let begin = Instant::now();
        let mut timeline = Timeline::default();
        timeline.add(&held("a", Some(SECOND)), begin + 3 * SECOND);
        timeline.add(&held("a", Some(3 * SECOND)), begin + 5 * SECOND);
        assert_eq!(seen(&timeline, begin), [("a".to_owned(), 2, 5, true)]);
        // It has released the lock and acquired it again.
        timeline.add(&held("a", Some(SECOND)), begin + 7 * SECOND);
        timeline.add(&held("b", Some(SECOND)), begin + 9 * SECOND);
        timeline.add(&free(), begin + 11 * SECOND);
        let expected = [("a", 2, 5), ("a", 6, 7), ("b", 8, 9)];
        let expected = expected.map(|(who, from, to)| (who.to_owned(), from, to, false));
        assert_eq!(seen(&timeline, begin), expected);
    }

    #[test]
    fn a_hold_of_unknown_length_begins_when_it_is_seen() {
        let begin = Instant::now();
        let mut timeline = Timeline::default();
        timeline.add(&held("a", None), begin);
        assert_eq!(seen(&timeline, begin), [("a".to_owned(), 0, 0, true)]);
        timeline.add(&held("a", None), begin + SECOND);
        let holds = seen(&timeline, begin);
        assert_eq!(holds, [("a".to_owned(), 0, 1, true)], "it goes on");
    }

    #[test]
    fn a_scanned_lock_has_no_timeline() {
        let begin = Instant::now();
        let mut timeline = Timeline::default();
        let mut scanned = held("a", None);
        scanned.locks[0].seen_ago = Some(SECOND);
        timeline.add(&scanned, begin);
        assert_eq!(timeline.of("job").count(), 0);
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let begin = Instant::now();
        let mut timeline = Timeline::default();
        timeline.add(&held("a", Some(SECOND)), begin + SECOND);
        timeline.add(&free(), begin + KEPT);
        assert_eq!(timeline.of("job").count(), 1);
        timeline.add(&free(), begin + KEPT + 2 * SECOND);
        assert_eq!((timeline.of("job").count(), timeline.locks.len()), (0, 0));
        for n in 0..2 * MOST_LOCKS {
            let mut one = held("a", None);
            one.locks[0].name = n.to_string();
            timeline.add(&one, begin);
        }
        assert_eq!(timeline.locks.len(), MOST_LOCKS);
        for n in 0..2 * MOST_HOLDS {
            timeline.add(&held(&n.to_string(), None), begin);
        }
        assert!(timeline.of("job").count() <= MOST_HOLDS);
    }
}
