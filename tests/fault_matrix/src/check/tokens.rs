use std::time::Duration;

use super::{Breach, Promise, Terms};
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
                found.push(Breach::new(
                    Promise::Tokens,
                    format!("{} has no token", one.id),
                ));
                continue;
            };
            if let Some((before, highest)) = newest
                && token <= highest
                && !forgotten(before, one, notes, terms.lease)
            {
                if handed_on(one, notes, terms, slack) {
                    continue;
                }
                let how = format!(
                    "{} of {} got {token} after {} had {highest}",
                    one.id, one.name, before.id
                );
                found.push(Breach::new(Promise::Tokens, how));
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

fn forgotten(before: &Acquisition, after: &Acquisition, notes: &Notes, lease: Duration) -> bool {
    // A job has its lock before it marks its attempt, and is granted only then: the store may forget the lock in between.
    let made = match before.slot {
        Some(_) => Some(before.asked),
        None => asked_of_store(before, lease),
    };
    let between = |from, to| made <= Some(to) && Some(from) <= after.granted;
    notes.harms.iter().any(|harm| {
        harm.tokens && harm.concerns(&after.name) && between(harm.when.from, harm.when.to)
    })
}

/// When the request that got the lock was sent. The store may grant the lock, and forget it, before its reply arrives.
fn asked_of_store(one: &Acquisition, lease: Duration) -> Option<Duration> {
    // A guard is valid for at most a lease from the moment at which its request was sent.
    let (_, until) = one.steps.first()?;
    Some(until.saturating_sub(lease).max(one.asked))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Promise;
    use super::super::tests::{caught, granted, story, terms};
    use super::check;
    use crate::history::What;
    use crate::notes::{Harm, Notes, Span};

    /// The store grants token 5 at the request sent at 2.0, is emptied, and grants token 1. The reply with token 5 arrives
    /// at `noted`.
    fn emptied(at: f64, noted: f64) -> Vec<super::Breach> {
        let history = story(&[
            (1.0, "1.1.1", What::Asked),
            (
                noted,
                "1.1.1",
                granted(5, 2.0 + terms().lease.as_secs_f64()),
            ),
            (noted, "2.1.1", What::Asked),
            (9.0, "2.1.1", granted(1, 9.4)),
        ]);
        let at = Duration::from_secs_f64(at);
        let notes = Notes {
            harms: vec![Harm {
                when: Span { from: at, to: at },
                name: None,
                tokens: true,
                sure: true,
            }],
            ..Notes::default()
        };
        check(&history, &notes, &terms(), Duration::ZERO)
    }

    #[test]
    fn a_token_that_was_granted_before_the_store_was_emptied_may_be_larger() {
        assert!(emptied(3.0, 2.1).is_empty());
        assert!(emptied(3.0, 3.1).is_empty(), "its reply was late");
    }

    #[test]
    fn a_token_that_was_granted_after_the_store_was_emptied_must_be_smaller() {
        caught(&emptied(1.9, 2.1), Promise::Tokens);
    }
}
