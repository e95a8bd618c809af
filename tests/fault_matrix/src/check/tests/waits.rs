//! Hand-written histories of those who wait: they fail, are never served, or are killed.

use std::time::Duration;

use super::{caught, granted, step, story, terms};
use crate::check::{Breach, Promise, Terms, all};
use crate::history::What;
use crate::notes::{Notes, Outage, Span};

#[test]
fn a_wait_that_fails_because_its_process_was_frozen_is_caught() {
    let failed = |kind: &str| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (3.0, "1.1.1", What::failed(kind)),
        ])
    };
    let span = |from, to| Span {
        from: Duration::from_secs(from),
        to: Duration::from_secs(to),
    };
    let mut notes = Notes {
        frozen: vec![(1, span(1, 3))],
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let found = all(&failed("Unavailable"), &notes, &terms());
    caught(&found, Promise::Wait);
    assert!(all(&failed("TimedOut"), &notes, &terms()).is_empty());
    notes.outages.push(Outage {
        when: span(0, 2),
        mute: true,
    });
    let found = all(&failed("Unavailable"), &notes, &terms());
    assert!(found.is_empty(), "the store was away: {found:?}");
}

#[test]
fn a_busy_machine_excuses_waits_without_an_answer_only() {
    let notes = Notes {
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let kinds = [
        ("OutcomeUnknown", true),
        ("Unavailable", true),
        ("Lost", true),
        ("Refused", false),
        ("WrongType", false),
        ("Closed", false),
    ];
    for (kind, excused) in kinds {
        let failed = What::Failed {
            kind: kind.to_owned(),
            why: String::new(),
        };
        let history = story(&[(1.0, "1.1.1", What::Asked), (3.0, "1.1.1", failed)]);
        let found = all(&history, &notes, &terms());
        let told: Vec<_> = found.iter().map(|one| (one.promise, one.timing)).collect();
        assert_eq!(told, [(Promise::Wait, excused)], "{kind}");
    }
}

#[test]
fn a_waiter_that_is_never_served_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.1, "2.1.1", What::Asked),
        (1.2, "1.1.1", What::Left),
        (1.2, "1.1.1", What::Released),
    ]);
    let notes = Notes {
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    caught(&all(&history, &notes, &terms()), Promise::Wake);
}

/// The second was killed when it had just been granted the lock, and had not noted it yet.
#[test]
fn a_waiter_that_was_killed_may_hold_the_lock_for_a_lease() {
    let history = |taken| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (1.0, "1.1.1", granted(1, 1.5)),
            (1.1, "2.1.1", What::Asked),
            (1.2, "1.2.1", What::Asked),
            (1.2, "1.1.1", What::Left),
            (1.2, "1.1.1", What::Released),
            (taken, "1.2.1", granted(2, taken + 0.5)),
            (taken + 0.1, "1.2.1", What::Left),
            (taken + 0.1, "1.2.1", What::Released),
        ])
    };
    let notes = Notes {
        killed: vec![(2, Duration::from_secs(3))],
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    let terms = Terms {
        typical_wake: None,
        ..terms()
    };
    let found = all(&history(4.0), &notes, &terms);
    assert!(found.is_empty(), "it was the killed one's: {found:?}");
    caught(&all(&history(5.5), &notes, &terms), Promise::Wake);
}

/// The first holds the lock and is killed at 1.2: its lease is proved until 1.7, and ends at 1.8. The second is killed while it
/// waits. The third is granted the lock at `taken`.
fn two_are_killed(second: f64, taken: f64, queues: bool) -> Vec<Breach> {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.1, "2.1.1", What::Asked),
        (1.15, "3.1.1", What::Asked),
        (1.2, "1.1.1", step(1.7)),
        (taken, "3.1.1", granted(2, taken + 0.5)),
        (taken + 0.1, "3.1.1", What::Left),
        (taken + 0.1, "3.1.1", What::Released),
    ]);
    let killed = [(1, 1.2), (2, second)];
    let notes = Notes {
        killed: killed
            .map(|(process, at)| (process, Duration::from_secs_f64(at)))
            .into(),
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    let terms = Terms {
        queues,
        typical_wake: None,
        ..terms()
    };
    all(&history, &notes, &terms)
}

#[test]
fn a_waiter_that_was_killed_stays_in_a_queue_for_a_lease() {
    let early = two_are_killed(1.65, 3.2, true);
    assert!(early.is_empty(), "{early:?}");
    caught(&two_are_killed(1.65, 3.6, true), Promise::Wake);
    caught(&two_are_killed(1.65, 3.2, false), Promise::Wake);
}

/// It is killed in the time in which the lease may have ended.
#[test]
fn a_waiter_that_was_killed_when_a_lease_ended_may_hold_the_lock() {
    let early = two_are_killed(1.75, 3.2, false);
    assert!(early.is_empty(), "{early:?}");
    caught(&two_are_killed(1.75, 3.6, false), Promise::Wake);
    caught(&two_are_killed(1.65, 3.2, false), Promise::Wake);
}
