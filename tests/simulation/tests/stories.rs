//! Tests of the simulator: a correct store passes, each broken one is detected, and a seed always tells the same story.

use simulation::{Flaw, Outcome, Plan, Subject, play};

fn story(seed: u64) -> Plan {
    Plan {
        seed,
        ..Plan::default()
    }
}

/// Plays a few hundred seeds about this, and returns the first violation that the flaw causes.
fn caught(flaw: Flaw, subject: Subject) -> String {
    let mut failures = (0..600).filter_map(|seed| {
        let plan = Plan {
            flaw: Some(flaw),
            only: Some(subject),
            ..story(seed)
        };
        play(&plan).err()
    });
    match failures.next() {
        Some(failure) => failure.why,
        None => panic!("{flaw:?} was not noticed"),
    }
}

#[test]
fn no_promise_is_broken_in_three_hundred_stories() {
    for seed in 0..300 {
        if let Err(failure) = play(&story(seed)) {
            panic!("{failure}");
        }
    }
}

/// In this story the reply of a grant of a fair lock is lost, its lease ends, and its owner waits and is granted the lock once
/// more. The check of the order took it for a waiter from then on.
#[test]
fn a_waiter_that_is_granted_the_lock_twice_is_no_longer_a_waiter() {
    if let Err(failure) = play(&story(10_981)) {
        panic!("{failure}");
    }
}

fn holds_in(seed: u64, subject: Subject) {
    let plan = Plan {
        only: Some(subject),
        ..story(seed)
    };
    if let Err(failure) = play(&plan) {
        panic!("{failure}");
    }
}

/// In this story an operator frees a lock without tokens, another client acquires it, and then the client of the former holder hands it
/// off once more, before it learns of the loss. The check took that hand-off for the newest grant, and blamed the other client.
#[test]
fn a_hand_off_of_a_lock_that_was_freed_by_force_is_not_the_newest_grant() {
    holds_in(62_073, Subject::Locks);
}

/// In this story a member enters a barrier, its hold is freed by force, and its time is over. It was told that nobody had entered with it.
#[test]
fn a_member_that_has_entered_and_lost_its_hold_is_told_of_the_loss() {
    holds_in(92_291, Subject::Barriers);
}

#[test]
fn a_seed_tells_one_story() {
    for seed in 0..20 {
        let told = || play(&story(seed)).map(|(_, log)| log);
        let (first, second) = (told().unwrap(), told().unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn a_store_that_lets_everybody_in_is_caught() {
    assert!(caught(Flaw::LetsEverybodyIn, Subject::Locks).contains("two holders"));
}

#[test]
fn a_store_that_forgets_withdrawals_is_caught() {
    caught(Flaw::ForgetsWithdrawals, Subject::Locks);
}

#[test]
fn a_lease_that_ends_early_is_caught() {
    assert!(caught(Flaw::EndsEarly, Subject::Locks).contains("two holders"));
}

#[test]
fn a_release_that_frees_for_anybody_is_caught() {
    assert!(caught(Flaw::FreesForAnybody, Subject::Locks).contains("two holders"));
}

#[test]
fn a_renewal_that_is_always_confirmed_is_caught() {
    assert!(caught(Flaw::ConfirmsEverything, Subject::Locks).contains("two holders"));
}

#[test]
fn a_fair_lock_without_an_order_is_caught() {
    assert!(caught(Flaw::ForgetsTheOrder, Subject::Locks).contains("came earlier"));
}

#[test]
fn a_store_that_forgets_marks_is_caught() {
    assert!(caught(Flaw::ForgetsMarks, Subject::Jobs).contains("which is done"));
}

#[test]
fn a_store_that_forgets_successors_is_caught() {
    assert!(caught(Flaw::ForgetsSuccessors, Subject::Elections).contains("was named and waits"));
}

#[test]
fn marks_that_never_expire_keep_nobody_from_leading() {
    for seed in 0..300 {
        let plan = Plan {
            flaw: Some(Flaw::KeepsMarks),
            ..story(seed)
        };
        if let Err(failure) = play(&plan) {
            panic!("{failure}");
        }
    }
}

#[test]
fn leaderships_are_transferred_in_the_stories() {
    let transfers = (0..300).filter_map(|seed| {
        let told = play(&story(seed)).ok()?;
        Some(told.0.transfers)
    });
    assert!(transfers.sum::<usize>() > 10);
}

#[test]
fn each_kind_is_played_and_keeps_its_promises() {
    for subject in [
        Subject::Permits,
        Subject::Sides,
        Subject::Barriers,
        Subject::Counts,
    ] {
        let mut total = Outcome::default();
        for seed in 0..150 {
            let plan = Plan {
                only: Some(subject),
                ..story(seed)
            };
            match play(&plan) {
                Ok((outcome, _)) => total.add(&outcome),
                Err(failure) => panic!("{failure}"),
            }
        }
        let is_played = match subject {
            Subject::Barriers => total.entered > 500 && total.losses > 10,
            Subject::Counts => total.counts > 500,
            _ => total.grants > 1000 && total.losses > 10,
        };
        assert!(is_played, "{subject}: {total:?}");
    }
}

#[test]
fn a_permit_too_many_is_caught() {
    for flaw in [
        Flaw::CountsOnePermit,
        Flaw::LetsEverybodyIn,
        Flaw::EndsEarly,
    ] {
        let why = caught(flaw, Subject::Permits);
        assert!(why.contains("permits are held"), "{why}");
    }
}

#[test]
fn a_count_that_is_wrong_is_caught() {
    let why = caught(Flaw::CountsOnePermit, Subject::Counts);
    let is_told = ["counted permits", "the latch is"];
    assert!(is_told.iter().any(|told| why.contains(told)), "{why}");
}

#[test]
fn a_writer_beside_others_is_caught() {
    for flaw in [Flaw::LetsEverybodyIn, Flaw::EndsEarly] {
        let why = caught(flaw, Subject::Sides);
        assert!(why.contains("writes beside"), "{why}");
    }
}

#[test]
fn members_of_a_barrier_that_do_not_agree_are_caught() {
    caught(Flaw::OverwritesMarks, Subject::Barriers);
}

#[test]
fn a_member_that_is_left_behind_is_caught() {
    let why = caught(Flaw::EndsEarly, Subject::Barriers);
    let is_told = ["two uses at once", "all have left"];
    assert!(is_told.iter().any(|told| why.contains(told)), "{why}");
}
