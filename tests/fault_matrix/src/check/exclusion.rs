use std::time::Duration;

use super::{Breach, Promise, Terms};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::{Early, Notes};

/// No two holders act on one lock at once. If the store forgot the lock in between, the first holder must learn of it
/// in time.
pub(super) fn check(
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Vec<Breach> {
    let overlaps = overlaps(history);
    let breaches = overlaps
        .iter()
        .filter(|both| !excused(both, notes, terms, slack));
    let told = breaches.map(|both| {
        let (first, second, name) = (&both.first.id, &both.second.id, &both.first.name);
        let how = format!("{first} and {second} both held {name} for {:?}", both.time);
        Breach::new(Promise::Exclusion, how)
    });
    told.collect()
}

/// Two that acted on one lock at once.
#[derive(Debug)]
pub(crate) struct Overlap<'a> {
    first: &'a Acquisition,
    second: &'a Acquisition,
    pub(crate) time: Duration,
}

/// All of them, excused or not.
pub(crate) fn overlaps(history: &Histories) -> Vec<Overlap<'_>> {
    let mut found = Vec::new();
    for granted in history.by_name().values() {
        let mut longest: Option<&Acquisition> = None;
        for second in granted {
            found.extend(longest.and_then(|first| overlap(first, second)));
            let reaches_further =
                longest.is_none_or(|first| first.believed_until() < second.believed_until());
            if reaches_further {
                longest = Some(second);
            }
        }
    }
    found
}

fn overlap<'a>(first: &'a Acquisition, second: &'a Acquisition) -> Option<Overlap<'a>> {
    let (end, (taken, until)) = (first.believed_until()?, second.belief()?);
    (end > taken).then(|| Overlap {
        first,
        second,
        time: end.min(until).saturating_sub(taken),
    })
}

/// Whether the store forgot the lock, and the first holder learned of it in time, or whether the clocks differed so much
/// that it had no means to.
fn excused(both: &Overlap<'_>, notes: &Notes, terms: &Terms, slack: Duration) -> bool {
    let (Some((begun, end)), Some((taken, _))) = (both.first.belief(), both.second.belief()) else {
        return true;
    };
    let told = |harm: &&crate::notes::Harm| {
        // A client learns of a grant a moment after the store makes it, so we allow `slack` on both ends.
        harm.concerns(&both.first.name)
            && harm.when.to + slack >= begun
            && harm.when.from <= taken
            && end <= harm.when.to.max(begun) + terms.told_within + slack
    };
    let early = |early: &Early| {
        early.process == both.first.process && early.when.meets(taken, end) && both.time <= early.by
    };
    notes.harms.iter().any(|harm| told(&harm)) || notes.early.iter().any(early)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Promise;
    use super::super::tests::{caught, granted, story, terms};
    use super::check;
    use crate::history::What;
    use crate::notes::{Early, Notes, Span};

    /// The first holder acts for 0.2 s after the second has got the lock. The lease of `process` ended too early, by that
    /// much.
    fn ended_early(process: u32, by: f64) -> Vec<super::Breach> {
        let history = story(&[
            (1.0, "1.1.1", What::Asked),
            (1.0, "1.1.1", granted(1, 1.6)),
            (1.2, "2.1.1", What::Asked),
            (1.4, "2.1.1", granted(2, 2.0)),
            (1.6, "1.1.1", What::Left),
            (1.7, "2.1.1", What::Left),
        ]);
        let (from, to) = (Duration::from_secs(1), Duration::from_secs(2));
        let notes = Notes {
            early: vec![Early {
                process,
                when: Span { from, to },
                by: Duration::from_secs_f64(by),
            }],
            ..Notes::default()
        };
        check(&history, &notes, &terms(), Duration::ZERO)
    }

    #[test]
    fn a_lease_that_ended_early_excuses_its_holder_for_that_time() {
        assert!(ended_early(1, 0.25).is_empty());
        caught(&ended_early(1, 0.15), Promise::Exclusion);
        caught(&ended_early(2, 0.25), Promise::Exclusion);
    }
}
