//! Tests of the simulator: a correct store passes, each broken one is detected, and a seed always tells the same story.

use simulation::{Flaw, Plan, play};

fn story(seed: u64) -> Plan {
    Plan {
        seed,
        ..Plan::default()
    }
}

/// Plays a few hundred seeds and returns the first violation that the flaw causes.
fn caught(flaw: Flaw) -> String {
    let mut failures = (0..600).filter_map(|seed| {
        let plan = Plan {
            flaw: Some(flaw),
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
    assert!(caught(Flaw::LetsEverybodyIn).contains("two holders"));
}

#[test]
fn a_store_that_forgets_withdrawals_is_caught() {
    caught(Flaw::ForgetsWithdrawals);
}

#[test]
fn a_lease_that_ends_early_is_caught() {
    assert!(caught(Flaw::EndsEarly).contains("two holders"));
}

#[test]
fn a_release_that_frees_for_anybody_is_caught() {
    assert!(caught(Flaw::FreesForAnybody).contains("two holders"));
}

#[test]
fn a_renewal_that_is_always_confirmed_is_caught() {
    assert!(caught(Flaw::ConfirmsEverything).contains("two holders"));
}

#[test]
fn a_fair_lock_without_an_order_is_caught() {
    assert!(caught(Flaw::ForgetsTheOrder).contains("came earlier"));
}

#[test]
fn a_store_that_forgets_marks_is_caught() {
    assert!(caught(Flaw::ForgetsMarks).contains("which is done"));
}

#[test]
fn a_store_that_forgets_successors_is_caught() {
    assert!(caught(Flaw::ForgetsSuccessors).contains("was named and waits"));
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
