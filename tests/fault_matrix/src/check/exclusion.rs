use std::time::Duration;

use super::{Breach, Promise, Terms, breach};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::Notes;

/// No two holders act on one lock at once. If the store forgot the lock in between, the first holder must learn of it
/// in time.
pub(super) fn check(
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Vec<Breach> {
    let mut found = Vec::new();
    for granted in history.by_name().values() {
        let mut longest: Option<&Acquisition> = None;
        for second in granted {
            if let Some(first) = longest
                && let Some(how) = overlap(first, second, notes, terms, slack)
            {
                found.push(breach(Promise::Exclusion, how));
            }
            let reaches_further =
                longest.is_none_or(|first| first.believed_until() < second.believed_until());
            if reaches_further {
                longest = Some(second);
            }
        }
    }
    found
}

fn overlap(
    first: &Acquisition,
    second: &Acquisition,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Option<String> {
    let ((begun, end), (taken, _)) = (first.belief()?, second.belief()?);
    if end <= taken {
        return None;
    }
    let told = |harm: &&crate::notes::Harm| {
        // A client learns of a grant a moment after the store makes it, so we allow `slack` on both ends.
        harm.concerns(&first.name)
            && harm.when.to + slack >= begun
            && harm.when.from <= taken
            && end <= harm.when.to.max(begun) + terms.told_within + slack
    };
    if notes.harms.iter().any(|harm| told(&harm)) {
        return None;
    }
    Some(format!(
        "{} and {} both held {} for {:?}",
        first.id,
        second.id,
        first.name,
        end.saturating_sub(taken)
    ))
}
