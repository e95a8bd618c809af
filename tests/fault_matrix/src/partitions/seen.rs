use std::time::Duration;

use crate::acquisition::Histories;
use crate::check::exclusion::overlaps;
use crate::notes::Notes;
use crate::role::Role;

/// What a run showed, whether or not it was promised.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// How often two acted on one lock at once, and for how long at most.
    pub(crate) overlaps: usize,
    pub(crate) longest_overlap: Duration,
    /// Losses, and those of them that were told after the next grant of the lock.
    pub(crate) losses: usize,
    pub(crate) told_late: usize,
    /// Holds of Redisson that its `unlock` found to be over.
    pub(crate) over_at_unlock: usize,
    /// The longest time, from the partition on, in which nobody had a lock that several wanted.
    pub(crate) without: Duration,
    /// How long after the end of the partition every process had its locks again.
    pub(crate) served_after: Duration,
    /// Runs in which they did not all get them within the time that a run allows.
    pub(crate) unserved: usize,
    /// Runs in which the servers chose a new leader although nothing was cut.
    pub(crate) disturbed: usize,
}

impl Seen {
    pub(crate) fn of(history: &Histories, notes: &Notes) -> Self {
        let overlaps = overlaps(history);
        let longest = overlaps.iter().map(|both| both.time).max();
        let (losses, told_late) = losses(history);
        Self {
            overlaps: overlaps.len(),
            longest_overlap: longest.unwrap_or_default(),
            losses,
            told_late,
            over_at_unlock: over_at_unlock(history),
            without: without(history, notes),
            served_after: notes.served_after.unwrap_or_default(),
            unserved: usize::from(notes.parted.is_some() && notes.served_after.is_none()),
            disturbed: usize::from(notes.disturbed),
        }
    }

    /// Both together: sums of the counts, and the larger of the times.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            overlaps: self.overlaps + other.overlaps,
            longest_overlap: self.longest_overlap.max(other.longest_overlap),
            losses: self.losses + other.losses,
            told_late: self.told_late + other.told_late,
            over_at_unlock: self.over_at_unlock + other.over_at_unlock,
            without: self.without.max(other.without),
            served_after: self.served_after.max(other.served_after),
            unserved: self.unserved + other.unserved,
            disturbed: self.disturbed + other.disturbed,
        }
    }
}

fn losses(history: &Histories) -> (usize, usize) {
    let (mut losses, mut late) = (0, 0);
    for granted in history.by_name().values() {
        for (at, one) in granted.iter().enumerate() {
            if !one.was_lost() {
                continue;
            }
            losses += 1;
            let told = one.lost.as_ref().map(|(at, _)| *at).or(one.over);
            let next = granted.get(at + 1).and_then(|next| next.granted);
            late += usize::from(next.is_some_and(|next| told > Some(next)));
        }
    }
    (losses, late)
}

fn over_at_unlock(history: &Histories) -> usize {
    let over = history.granted().filter(|one| {
        let unreleased = one.unreleased.as_ref();
        unreleased.is_some_and(|(_, kind)| kind == "IllegalMonitorStateException")
    });
    over.count()
}

fn without(history: &Histories, notes: &Notes) -> Duration {
    let Some(parted) = notes.parted else {
        return Duration::ZERO;
    };
    let mut longest = Duration::ZERO;
    let wanted = [Role::Trader, Role::Relay].map(|role| role.name("", ""));
    let all = history.by_name();
    for (_, granted) in all
        .iter()
        .filter(|(name, _)| wanted.iter().any(|end| name.ends_with(end)))
    {
        let mut held_until = parted.from;
        for one in granted {
            let Some((begun, end)) = one.belief() else {
                continue;
            };
            // A gap that began before the partition counts from the partition on.
            longest = longest.max(begun.saturating_sub(held_until));
            held_until = held_until.max(end);
        }
    }
    longest
}
