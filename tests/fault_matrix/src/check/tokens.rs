use std::time::Duration;

use super::{Breach, Promise, Terms, breach};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::Notes;

/// Every grant has a larger token than all grants before, unless the store forgot its counter.
pub(super) fn check(
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Vec<Breach> {
    let mut found = Vec::new();
    if !terms.tokens {
        return found;
    }
    for granted in history.by_name().values() {
        let mut newest: Option<(&Acquisition, u64)> = None;
        for one in granted {
            let Some(token) = one.token else {
                found.push(breach(Promise::Tokens, format!("{} has no token", one.id)));
                continue;
            };
            if let Some((before, highest)) = newest
                && token <= highest
                && !forgotten(before, one, notes)
            {
                if handed_on(one, notes, terms, slack) {
                    continue;
                }
                let how = format!(
                    "{} of {} got {token} after {} had {highest}",
                    one.id, one.name, before.id
                );
                found.push(breach(Promise::Tokens, how));
            }
            newest = Some((one, token));
        }
    }
    found
}

/// A process whose lock was taken away, and that has not learned of it yet, may still hand the lock on through its
/// local queue with reserved tokens. These tokens are older than those of the new holder. That is correct: a fenced
/// resource refuses them.
fn handed_on(one: &Acquisition, notes: &Notes, terms: &Terms, slack: Duration) -> bool {
    notes.harms.iter().any(|harm| {
        let told_by = harm.when.to + terms.told_within + slack;
        harm.concerns(&one.name)
            && one
                .granted
                .is_some_and(|at| harm.when.from <= at && at <= told_by)
    })
}

fn forgotten(before: &Acquisition, after: &Acquisition, notes: &Notes) -> bool {
    // A job has its lock before it marks its attempt, and is granted only then: the store may forget the lock in between.
    let made = match before.slot {
        Some(_) => Some(before.asked),
        None => before.granted,
    };
    let between = |from, to| made <= Some(to) && Some(from) <= after.granted;
    notes.harms.iter().any(|harm| {
        harm.tokens && harm.concerns(&after.name) && between(harm.when.from, harm.when.to)
    })
}
