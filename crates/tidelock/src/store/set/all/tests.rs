//! The sweeps of a set that needs all members.

use std::time::Duration;

use super::*;
use crate::store::WakeChannels;
use crate::store::set::tests::scripted::{LIMIT, Scripted, all_of, patient, refusal, ticket};

const LONG: Duration = Duration::from_secs(9);

/// A refusal of a member that sends no message for the next nine seconds.
fn later() -> Wait {
    Wait {
        recheck: Some(LONG),
        ..Wait::default()
    }
}

fn with_wake(set: &Shared) -> Wait {
    let wakes = WakeChannels::new(set.timers.clone(), |_| {});
    Wait {
        wake: Some(wakes.arm("a").of_part(7)),
        ..later()
    }
}

/// Nobody has collided: the first member that is asked refuses.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_has_taken_nothing_ends_at_the_first_refusal() {
    let (one, two) = (Scripted::default(), Scripted::default());
    let set = all_of(&[&one, &two]);
    let one = one.refuses(with_wake(&set));
    let wait = refusal(attempt(&set, &patient(&ticket())).await);
    assert_eq!(wait.recheck, Some(LONG));
    assert_eq!(wait.wake.map(|wake| wake.part()), Some(8 * 2));
    assert_eq!((one.asked().len(), two.asked().len()), (1, 0));
    // Without a wake it is still a member's own answer.
    let one = one.refuses(later());
    let wait = refusal(attempt(&set, &patient(&ticket())).await);
    assert_eq!(wait.recheck, Some(LONG));
    assert!(wait.wake.is_none() && one.ended().is_empty());
}

/// A try gets its answer at once. What it has taken is given back.
#[tokio::test(start_paused = true)]
async fn a_try_makes_one_sweep() {
    let (one, two) = (Scripted::default(), Scripted::default().refuses(later()));
    let set = all_of(&[&one, &two]);
    let ask = AttemptRequest {
        patience: Duration::ZERO,
        ..patient(&ticket())
    };
    let wait = refusal(attempt(&set, &ask).await);
    assert_eq!(wait.recheck, Some(LONG));
    assert_eq!(one.ended(), [false]);
    assert_eq!((one.asked().len(), two.asked().len()), (1, 1));
}

/// The first refusal comes after a part was given back, so the member may arm its wake only when it is asked first.
#[tokio::test(start_paused = true)]
async fn a_wake_of_the_round_before_is_kept() {
    let (one, two) = (Scripted::default(), Scripted::default());
    let set = all_of(&[&one, &two]);
    let two = two.refuses(with_wake(&set)).refuses(later());
    let wait = refusal(attempt(&set, &patient(&ticket())).await);
    let asked = two.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!([asked[0].armed_by, asked[1].armed_by], [None, Some(7)]);
    assert!(asked[0].patience.is_zero() && !asked[1].patience.is_zero());
    assert_eq!(wait.wake.map(|wake| wake.part()), Some(8 * 2 + 1));
    assert_eq!((one.asked().len(), one.ended()), (1, vec![false]));
}

/// The caller has a wake of the first member, which then gets its part back.
#[tokio::test(start_paused = true)]
async fn the_number_of_a_wake_goes_with_the_place_that_armed_it() {
    for queues in [false, true] {
        let one = Scripted::default()
            .grants()
            .refuses(later())
            .refuses(later());
        let one = if queues { one.queueing() } else { one };
        let two = Scripted::default().refuses(later());
        let set = all_of(&[&one, &two]);
        let ask = AttemptRequest {
            armed_by: Some((5 + 1) * 2),
            ..patient(&ticket())
        };
        refusal(attempt(&set, &ask).await);
        // It is asked first, last, and first again.
        let armed: Vec<_> = one.asked().iter().map(|ask| ask.armed_by).collect();
        let kept = (!queues).then_some(5);
        assert_eq!(armed, [Some(5), None, kept], "queues: {queues}");
        assert_eq!(two.asked().iter().map(|ask| ask.armed_by).max(), Some(None));
    }
}

/// The caller that takes a part, gives it back and comes again does so with pauses, not longer than it may.
#[tokio::test(start_paused = true)]
async fn collisions_end_in_a_pause_of_the_caller() {
    let (mut one, mut two) = (Scripted::default(), Scripted::default());
    for _ in 0..1000 {
        one = one.grants().refuses(later());
        two = two.refuses(later()).grants();
    }
    let set = all_of(&[&one, &two]);
    let begun = set.timers.now();
    let wait = refusal(attempt(&set, &patient(&ticket())).await);
    assert!(set.timers.now().since(begun) <= LIMIT / 8);
    assert!(one.asked().len() > 2);
    assert!(wait.recheck.is_some_and(|pause| pause <= LIMIT / 4));
    assert!(wait.wake.is_some(), "no release wakes it");
}

/// Two parts can be one lock only if they have one name.
#[tokio::test(start_paused = true)]
async fn no_member_with_another_name_is_looked_at() {
    let members = [Scripted::default(), Scripted::default()];
    let set = all_of(&[&members[0], &members[1]]);
    for _ in 0..2 {
        let granted = attempt(&set, &patient(&ticket())).await;
        assert!(matches!(granted, Ok(Attempt::Acquired(_))));
    }
    assert_eq!(members.each_ref().map(Scripted::inspected), [0, 0]);
}
