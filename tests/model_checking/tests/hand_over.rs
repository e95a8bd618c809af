//! The fair lock's hand-over: without a bug every promise holds in every state, and each bug is found.

use model_checking::{
    ALIVE_STAYS, HandOver, HandOverBug, HandOverFaults, Kind, NOTHING_REMAINS, ONE_OWNER,
    OWNER_OWNS, SEEN, check_hand_over, every_wait_ends,
};

use HandOverBug::{
    BelievesLateMessage, BelievesStaleMessage, CountsFromLaterBeat, EvictsDeaf, GrantsAgain,
    GrantsJava, NeverLooks, TurnsBehindTheHead,
};
use Kind::{Java, OldJava, Tidelock};

const NONE: HandOverFaults = HandOverFaults::NONE;

/// The bug breaks this property, and a counterexample has at most this many steps.
#[track_caller]
fn breaks(run: HandOver, property: &str, steps: usize) {
    let outcome = check_hand_over(run);
    let Some((found, trace)) = outcome.first() else {
        panic!("the bug is not found");
    };
    assert_eq!(found, property);
    assert!(trace.len() <= steps, "{} steps", trace.len());
}

#[test]
fn every_promise_of_the_hand_over_holds_in_every_state() {
    for run in HandOver::clean() {
        let outcome = check_hand_over(run);
        assert_eq!(outcome.reached, SEEN.len(), "the run looks at something");
        assert_eq!(outcome.first(), None);
    }
}

#[test]
fn every_wait_for_a_hand_over_can_end() {
    for run in HandOver::clean() {
        let found = every_wait_ends(run.name, &run);
        assert!(found.waiting > 0);
        assert_eq!(found.hopeless, 0, "{}", run.name);
    }
}

#[test]
fn a_grant_whose_message_was_lost_is_not_made_twice() {
    let faults = HandOverFaults { losses: 1, ..NONE };
    let run = HandOver::new("a beat grants again", &[Tidelock; 3], 1).faults(faults);
    breaks(run.direct().bug(GrantsAgain), OWNER_OWNS, 7);
}

#[test]
fn a_java_waiter_is_woken_and_never_granted() {
    let run = HandOver::new("a Java waiter counts twice", &[Tidelock, Java], 1);
    breaks(run.bug(GrantsJava), NOTHING_REMAINS, 8);
}

#[test]
fn a_live_waiter_that_hears_nothing_keeps_its_place() {
    let faults = HandOverFaults { deaf: 1, ..NONE };
    let run = HandOver::new("a deaf waiter is thrown out", &[Tidelock; 2], 1).faults(faults);
    breaks(run.bug(EvictsDeaf), ALIVE_STAYS, 7);
}

#[test]
fn a_message_is_believed_no_longer_than_its_grant() {
    let run = HandOver::new("a late message is believed", &[Tidelock; 3], 1).direct();
    breaks(run.bug(BelievesLateMessage), OWNER_OWNS, 7);
}

#[test]
fn a_waiter_whose_message_was_lost_looks_for_itself() {
    let faults = HandOverFaults { losses: 1, ..NONE };
    let run = HandOver::new("a waiter relies on the message", &[Tidelock; 2], 1).faults(faults);
    let relies = run.clone().bug(NeverLooks);
    assert!(every_wait_ends(relies.name, &relies).hopeless > 0);
    assert_eq!(every_wait_ends(run.name, &run).hopeless, 0);
}

/// Refused, it sleeps until it is told. A clean run has the same clients and faults.
#[test]
fn a_waiter_of_redisson_that_has_its_turn_is_the_head() {
    let faults = HandOverFaults { deaf: 1, ..NONE };
    let clients = [Tidelock, Tidelock, OldJava];
    let run = HandOver::new("a turn behind the head", &clients, 1).faults(faults);
    let behind = run.bug(TurnsBehindTheHead);
    assert!(every_wait_ends(behind.name, &behind).hopeless > 0);
}

#[test]
fn a_message_is_counted_from_the_beat_that_it_names() {
    let run = HandOver::new("a later beat is counted from", &[Tidelock; 2], 1).direct();
    breaks(run.bug(CountsFromLaterBeat), OWNER_OWNS, 9);
}

#[test]
fn a_message_for_an_earlier_wait_is_believed_by_nobody() {
    let run = HandOver::new("a stale message is believed", &[Tidelock; 2], 2).direct();
    breaks(run.bug(BelievesStaleMessage), OWNER_OWNS, 9);
}

/// The clean runs show that a waiter that asks is safe from it.
#[test]
fn a_waiter_that_does_not_ask_believes_a_forged_message() {
    let faults = HandOverFaults { forged: 1, ..NONE };
    let run = HandOver::new("a message is forged", &[Tidelock; 2], 1).faults(faults);
    assert_eq!(check_hand_over(run.clone()).first(), None);
    breaks(run.direct(), ONE_OWNER, 9);
}
