//! Hand-written histories of holders: frozen, cut off, or told of a loss, and of slots that are run again.

use std::time::Duration;

use super::{caught, granted, step, story, terms};
use crate::check::{Breach, Promise, Terms, all, loss};
use crate::history::What;
use crate::notes::{Harm, Notes, Span};

/// The first is frozen from 1.1 to 3. The second takes over in that time.
fn frozen(last_step: f64) -> Vec<Breach> {
    let lost = What::Lost {
        reason: "Expired".to_owned(),
    };
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "2.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (last_step, "1.1.1", step(last_step + 0.4)),
        (1.7, "2.1.1", granted(2, 2.2)),
        (2.0, "2.1.1", What::Left),
        (2.01, "2.1.1", What::Released),
        (3.01, "1.1.1", What::Over),
        (3.01, "1.1.1", lost),
    ]);
    let when = Span {
        from: Duration::from_secs_f64(1.1),
        to: Duration::from_secs(3),
    };
    let notes = Notes {
        frozen: vec![(1, when)],
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let terms = Terms {
        keeps: false,
        typical_wake: None,
        ..terms()
    };
    all(&history, &notes, &terms)
}

#[test]
fn a_frozen_holder_that_did_nothing_since_breaks_nothing() {
    let found = frozen(1.09);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_frozen_holder_that_went_on_is_caught() {
    caught(&frozen(3.005), Promise::Exclusion);
}

#[test]
fn a_loss_without_need_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.2, "1.1.1", What::Over),
        (
            1.2,
            "1.1.1",
            What::Lost {
                reason: "Taken".to_owned(),
            },
        ),
    ]);
    let notes = Notes {
        ended: Duration::from_secs(2),
        ..Notes::default()
    };
    caught(&all(&history, &notes, &terms()), Promise::Need);
}

#[test]
fn a_slot_that_is_run_again_is_caught() {
    let slot = |text: &str| What::Slot {
        slot: text.to_owned(),
    };
    let history = |second: &str| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (1.0, "1.1.1", granted(1, 1.5)),
            (1.0, "1.1.1", slot("a")),
            (1.1, "1.1.1", What::Left),
            (1.1, "1.1.1", What::Done),
            (1.1, "1.1.1", What::Released),
            (1.2, "2.1.1", What::Asked),
            (1.2, "2.1.1", granted(2, 1.7)),
            (1.2, "2.1.1", slot(second)),
            (1.3, "2.1.1", What::Left),
            (1.3, "2.1.1", What::Released),
        ])
    };
    let mut notes = Notes {
        ended: Duration::from_secs(2),
        ..Notes::default()
    };
    caught(&all(&history("a"), &notes, &terms()), Promise::Slots);
    let found = all(&history("b"), &notes, &terms());
    assert!(found.is_empty(), "{found:?}");
    let when = Span {
        from: Duration::from_secs_f64(1.15),
        to: Duration::from_secs_f64(1.15),
    };
    notes.harms.push(Harm {
        when,
        name: None,
        tokens: true,
        sure: true,
    });
    let found = all(&history("a"), &notes, &terms());
    assert!(found.is_empty(), "the store forgot its marks: {found:?}");
}

#[test]
fn a_process_that_is_cut_off_and_acts_on_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.6)),
        (4.2, "1.1.1", step(4.8)),
    ]);
    let [from, to] = [2, 5].map(Duration::from_secs);
    let mut notes = Notes::default();
    for (process, count) in [(2, 0), (1, 1)] {
        notes.deaf = vec![(process, Span { from, to })];
        let found = loss::check(&history, &notes, &terms(), Duration::ZERO);
        assert_eq!(found.len(), count, "{found:?}");
    }
}
