use std::time::Duration;

use super::{Breach, Promise, Terms};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::Notes;
use crate::role::is_marked;

/// The bound on a waiter's retry after a lease has ended.
const AGAIN: Duration = Duration::from_secs(1);

/// A lock is not free for long while somebody waits for it.
pub(super) fn check(
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Vec<Breach> {
    let mut found = Vec::new();
    for (name, granted) in history.by_name() {
        let mut gaps = Vec::new();
        for (at, before) in granted.iter().enumerate() {
            let next = granted.get(at + 1).copied();
            let Some(gap) = gap(before, next, history, notes, terms) else {
                continue;
            };
            if gap.length > gap.bound + slack {
                let how = format!(
                    "{name} was free for {:?} after {}, and somebody waited",
                    gap.length, before.id
                );
                found.push(Breach::new(Promise::Wake, how));
            }
            if before.released.is_some() {
                gaps.push(gap.length);
            }
        }
        gaps.sort_unstable();
        let Some(median) = gaps.get(gaps.len() / 2) else {
            continue;
        };
        if terms
            .typical_wake
            .is_some_and(|typical| *median > typical + slack)
        {
            let how = format!("{name} was mostly free for {median:?} while somebody waited");
            found.push(Breach::new(Promise::Wake, how));
        }
    }
    found
}

struct Gap {
    length: Duration,
    bound: Duration,
}

/// How long the lock was free after this acquisition while somebody waited. `None`: nobody waited.
fn gap(
    before: &Acquisition,
    next: Option<&Acquisition>,
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
) -> Option<Gap> {
    // Without an orderly release, the lock ends with its lease, counted from the last renewal. After an orderly
    // release, a grant that reached no client may still hold the lock for one lease.
    let vanished = before.believed_until()? + terms.lease + terms.grace;
    // A candidate writes its mark first, and a job reads one: after an outage each of the two requests comes at its retry.
    let again = if is_marked(&before.name) {
        AGAIN * 2
    } else {
        AGAIN
    };
    let (free, bound) = match before.released {
        Some(at) => (at, terms.lease + terms.grace + again),
        None => (vanished, again),
    };
    let taken = next.and_then(|next| next.granted).unwrap_or(notes.ended);
    // A request that gave up without an answer may still be queued or granted in the store until its lease ends.
    let gave_up = history.acquisitions.iter().filter(|one| {
        one.name == before.name
            && (one.failed.as_ref()).is_some_and(|(at, _)| (before.asked..taken).contains(at))
    });
    let gone = gave_up.filter_map(|one| one.failed.as_ref());
    let gone = gone.map(|(at, _)| *at + terms.lease + terms.grace).max();
    let free = if before.released.is_none() {
        gone.map_or(free, |gone| gone.max(free))
    } else {
        free
    };
    // A process that was killed while it waited may have been granted the lock at that moment, without noting it. If it died
    // in a queue, the lock may come to it later.
    let proved = before.steps.last().map_or(free, |(_, until)| *until);
    let from = match before.released {
        _ if terms.queues => before.asked,
        // The lease may end as soon as it is no longer proved.
        None => free.min(proved),
        Some(_) => free,
    };
    let killed = notes.killed.iter().filter(|(process, at)| {
        (from..taken).contains(at)
            && history.acquisitions.iter().any(|one| {
                (one.process, &one.name) == (*process, &before.name)
                    && one.asked < *at
                    && one.granted.is_none()
                    && one.failed.is_none()
            })
    });
    let free = match killed.map(|(_, at)| *at).max() {
        Some(at) if before.released.is_none() => free.max(at + terms.lease + terms.grace),
        Some(at) => free.max(at),
        None => free,
    };
    let waits = |one: &&Acquisition| {
        let until = one.granted.or(one.failed.as_ref().map(|(at, _)| *at));
        one.name == before.name
            && one.asked < taken
            && until.is_none_or(|until| until >= taken)
            && !notes.stood_still(one.process, free, taken)
            && !notes.was_cut_off(one.process, free, taken)
    };
    let waiters = history.acquisitions.iter().filter(waits);
    let since = waiters.map(|one| one.asked).min()?;
    let begin = free.max(since);
    let begin = notes
        .outage_until(begin, taken)
        .map_or(begin, |end| end.max(begin));
    Some(Gap {
        length: taken.saturating_sub(begin),
        bound,
    })
}
