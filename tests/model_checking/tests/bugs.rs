//! Puts back each known bug, and each bug that this model found, and requires the model to find it.

use model_checking::{
    Bug, Config, FENCING, Faults, NOT_STUCK, NOTHING_LEFT, ONE_HOLDER, PROMPT, TOLD_FIRST, check,
    waits_end,
};

const NONE: Faults = Faults::NONE;

/// The bug breaks this property, and the shortest counterexample has this many steps.
#[track_caller]
fn breaks(config: Config, property: &str, steps: usize) {
    let outcome = check(config);
    let Some((found, trace)) = outcome.first() else {
        panic!("the bug is not found");
    };
    assert_eq!(found, property);
    assert_eq!(trace.len(), steps, "the shortest counterexample");
}

#[test]
fn a_reply_that_was_lost_is_not_counted_twice() {
    let faults = Faults { losses: 1, ..NONE };
    let run = Config::new("the same acquisition counts twice", 2, 1).faults(faults);
    breaks(run.bug(Bug::CountsTwice), NOTHING_LEFT, 10);
}

#[test]
fn an_acquire_that_arrives_after_its_withdrawal_takes_no_effect() {
    let faults = Faults {
        late: 1,
        leaves: 1,
        ..NONE
    };
    let run = Config::new("a withdrawal leaves no tombstone", 2, 1).faults(faults);
    breaks(run.bug(Bug::NoTombstone), NOTHING_LEFT, 7);
}

#[test]
fn a_lease_is_counted_from_the_request() {
    let run = Config::new("a lease is counted from the answer", 2, 1);
    breaks(run.bug(Bug::CountsFromReply), TOLD_FIRST, 9);
}

#[test]
fn a_release_removes_its_own_owner_only() {
    let run = Config::new("a release without a look at the owner", 2, 2);
    breaks(run.bug(Bug::ReleasesAnyone), TOLD_FIRST, 13);
}

#[test]
fn a_waiter_subscribes_before_it_asks() {
    let run = Config::new("a waiter subscribes after it has asked", 2, 1);
    breaks(run.bug(Bug::SubscribesAfterTry), PROMPT, 10);
}

#[test]
fn a_renewal_without_acknowledgement_is_not_believed() {
    let faults = Faults {
        failovers: 1,
        ..NONE
    };
    let run = Config::new("an isolated primary's renewals are believed", 2, 1)
        .drift(0)
        .cut_off();
    breaks(
        run.faults(faults).bug(Bug::BelievesIsolated),
        TOLD_FIRST,
        18,
    );
}

#[test]
fn a_grant_without_acknowledgement_is_not_believed() {
    let faults = Faults {
        failovers: 1,
        ..NONE
    };
    let run = Config::new("a grant that no replica has heard of is believed", 2, 1).drift(0);
    let run = run.faults(faults).bug(Bug::BelievesUnacknowledgedGrant);
    breaks(run, ONE_HOLDER, 7);
}

#[test]
fn a_grant_that_was_given_back_without_an_answer_is_not_asked_for_again() {
    let faults = Faults {
        failovers: 1,
        late: 1,
        ..NONE
    };
    let run = Config::new("the ticket of an unanswered undo is used again", 2, 1).drift(0);
    let run = run.faults(faults).bug(Bug::KeepsTicketAfterUndo);
    breaks(run, TOLD_FIRST, 11);
}

#[test]
fn a_deadline_is_told() {
    let run = Config::new("nobody tells that the deadline has passed", 2, 1);
    breaks(run.bug(Bug::NeverTells), TOLD_FIRST, 9);
}

#[test]
fn a_counter_outlives_the_lock() {
    let run = Config::new("the fencing counter goes with the lock", 2, 1).writes();
    breaks(run.bug(Bug::ForgetsCounter), FENCING, 10);
}

#[test]
fn a_waiter_asks_again_without_a_message() {
    let faults = Faults { losses: 1, ..NONE };
    let run = Config::new("a waiter relies on messages alone", 2, 1).faults(faults);
    breaks(run.bug(Bug::NeverPolls), NOT_STUCK, 13);
}

#[test]
fn clocks_that_go_wrong_by_more_than_is_allowed_for_are_found() {
    breaks(
        Config::new("a clock that is far behind", 2, 1).drift(3),
        TOLD_FIRST,
        9,
    );
}

#[test]
fn a_wait_without_an_end_is_found() {
    let faults = Faults { losses: 1, ..NONE };
    let run = Config::new("a waiter relies on messages alone", 2, 1).faults(faults);
    assert!(waits_end(run.clone().bug(Bug::NeverPolls)).hopeless > 0);
    assert_eq!(waits_end(run).hopeless, 0);
}
