//! Tests of the fairness delay on a simulated clock: the length of each delay, and the resulting shares of the turns.

#![allow(clippy::cast_precision_loss, reason = "shares of some thousand turns")]

mod world;

use std::time::Duration;

use self::world::{Others, Ours, World};
use crate::engine::fairness::*;
use crate::store::Awaited;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

fn name() -> Name {
    Name::new("stock").unwrap()
}

/// A turn of `turns` tasks that has just ended, with `peers` waiting tidelock processes and `foreign` other clients.
fn turn(now: BootInstant, kept: Duration, turns: u32, peers: u32, foreign: u32) -> EndedTurn {
    EndedTurn {
        now,
        kept,
        turns,
        trip: ms(1),
        awaited: Awaited {
            others: peers + foreign,
            foreign,
            polled: false,
            releases_seen: 0,
        },
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the store answers")]
fn releases_seen(count: u64, last: BootInstant) -> Option<ReleasesSeen> {
    Some(ReleasesSeen { count, last })
}

fn ended(turn: &EndedTurn) -> FairnessDelays {
    let mut fairness_delays = FairnessDelays::default();
    fairness_delays.ended(&name(), turn);
    fairness_delays
}

#[test]
fn the_fairness_delay_ends_after_the_turns_of_the_others() {
    let fairness_delays = ended(&turn(at(0), Duration::from_secs(1), 1, 3, 0));
    let pause = |count, now| fairness_delays.pause(&name(), now, releases_seen(count, now));
    assert_eq!(pause(0, at(0)), ms(2));
    let pauses: Vec<_> = (1..=4).map(|seen| pause(seen, at(10))).collect();
    assert_eq!(pauses, [ms(4), ms(2), ms(0), ms(0)]);
}

/// A task that gives up after three milliseconds leaves the debt to the next one.
#[test]
fn the_debt_outlives_the_task_that_waits() {
    let fairness_delays = ended(&turn(at(0), ms(10), 8, 0, 1));
    let pause = |now, count, last| fairness_delays.pause(&name(), now, releases_seen(count, last));
    assert_eq!(pause(at(0), 0, at(0)), ms(2));
    assert_eq!(
        pause(at(1), 0, at(0)),
        ms(1),
        "another task, a moment later"
    );
    // Another client came once, so this process owes seven more turns.
    assert_eq!(pause(at(3), 1, at(3)), ms(2));
    assert_eq!(pause(at(3), 7, at(3)), ms(2));
    assert_eq!(pause(at(3), 8, at(3)), ms(0), "a turn for each of ours");
    assert_eq!(pause(at(19), 3, at(19)), ms(1), "or twice the time");
    assert_eq!(pause(at(20), 3, at(20)), ms(0));
}

/// The delays after turns of that length, if no other client comes in any of them.
fn pauses(kept: Duration, times: usize, (peers, foreign): (u32, u32)) -> Vec<Duration> {
    let (mut fairness_delays, mut now) = (FairnessDelays::default(), at(1));
    let mut pauses = Vec::new();
    for _ in 0..times {
        now = now + kept;
        fairness_delays.ended(&name(), &turn(now, kept, 1, peers, foreign));
        let pause = fairness_delays.pause(&name(), now, releases_seen(0, now));
        now = now + pause;
        pauses.push(pause);
        fairness_delays.granted(&name(), now, releases_seen(0, now));
    }
    pauses
}

#[test]
fn a_client_that_does_not_come_is_given_longer_and_then_given_up() {
    assert_eq!(pauses(ms(40), 6, (1, 0)), [2, 8, 10, 2, 8, 10].map(ms));
    // The delay never exceeds a fraction of the turn, except for the shortest delay.
    assert_eq!(pauses(ms(4), 2, (1, 0)), [2, 2].map(ms));
    assert_eq!(
        pauses(Duration::ZERO, 1, (1, 0)),
        [ms(2)],
        "a trip there and back"
    );
    assert!(
        pauses(Duration::from_secs(1), 100, (1, 0))
            .iter()
            .all(|pause| *pause <= MAX_FAIRNESS_DELAY)
    );
}

/// A stopped Java service keeps its subscription.
#[test]
fn a_foreign_client_that_never_comes_costs_little() {
    for kept in [ms(1), ms(5), ms(10), ms(100)] {
        let pauses = pauses(kept, 2000, (0, 1));
        let first: Duration = pauses.iter().take(20).sum();
        assert!(
            first <= kept * 20 / 2,
            "{kept:?}: {first:?} of {:?}",
            kept * 20
        );
        let idle: Duration = pauses.iter().sum();
        let all = kept * 2000;
        println!("{kept:?}: idle for {idle:?} of {all:?}");
        assert!(idle <= all / 8, "{kept:?}: {idle:?} of {all:?}");
        assert!(pauses.iter().all(|pause| *pause <= MAX_FAIRNESS_DELAY));
    }
}

#[test]
fn no_fairness_delay_for_a_process_that_does_not_listen() {
    let mut fairness_delays = ended(&turn(at(0), ms(10), 8, 0, 1));
    fairness_delays.granted(&name(), at(1), releases_seen(0, at(0)));
    fairness_delays.ended(&name(), &turn(at(11), ms(10), 8, 0, 0));
    assert_eq!(
        fairness_delays.pause(&name(), at(11), releases_seen(0, at(0))),
        ms(0)
    );
}

#[test]
fn names_that_nobody_wants_any_more_are_forgotten() {
    let mut fairness_delays = FairnessDelays::default();
    for number in 0..10_000 {
        let name = Name::new(format!("name {number}")).unwrap();
        fairness_delays.ended(&name, &turn(at(10 * number), ms(10), 1, 1, 1));
    }
    assert!(
        fairness_delays.each.len() < 1000,
        "{}",
        fairness_delays.each.len()
    );
}

/// A sweep reads all accounts, so its cost is spread over as many new names as there were old ones.
#[test]
fn accounts_are_swept_when_their_number_has_doubled() {
    let mut fairness_delays = FairnessDelays::default();
    let mut swept_at = Vec::new();
    for number in 0..100 {
        let (before, many) = (fairness_delays.each.len(), fairness_delays.many);
        let name = Name::new(format!("name {number}")).unwrap();
        fairness_delays.ended(&name, &turn(at(0), ms(10), 1, 1, 1));
        if fairness_delays.many != many {
            swept_at.push(before);
        }
    }
    assert_eq!(swept_at, [0, 16, 32, 64]);
}

/// The pause after a second turn, which ended that long after the first. `seen` others had a turn in between.
fn pause_after_two_turns(apart: Duration, peers: u32, seen: u64) -> Duration {
    let mut fairness_delays = ended(&turn(at(0), ms(40), 1, peers, 0));
    fairness_delays.granted(&name(), at(1), releases_seen(seen, at(1)));
    let mut second = turn(at(0) + apart, ms(40), 1, peers, 0);
    second.awaited.releases_seen = seen;
    fairness_delays.ended(&name(), &second);
    fairness_delays.pause(&name(), second.now, releases_seen(seen, at(1)))
}

#[test]
fn a_step_in_vain_is_remembered_for_a_second() {
    let pause = |apart| pause_after_two_turns(apart, 1, 0);
    assert_eq!(pause(Duration::from_nanos(999_999_999)), ms(8));
    assert_eq!(pause(SECOND), ms(2), "as if there had been no turn before");
}

#[test]
fn a_step_in_which_all_others_came_was_not_in_vain() {
    let pause = |seen| pause_after_two_turns(ms(100), 2, seen);
    assert_eq!(pause(1), ms(8), "one of two came");
    assert_eq!(pause(2), ms(2));
}

const SECOND: Duration = Duration::from_secs(1);

/// Eight tasks of one process beside a Java service with as many threads.
#[test]
fn equal_crowds_of_both_languages_share_evenly() {
    let world = World::of(&[Ours::tasks(8)], &[Others::Java]);
    let shares = world.run(SECOND * 20);
    println!("{shares:?}");
    assert!(shares.foreign() >= 0.4, "{shares:?}");
    assert!(shares.foreign() <= 0.6, "{shares:?}");
}

#[test]
fn no_process_is_left_out_whatever_it_is() {
    let one = Ours::tasks(1);
    let off = Ours::tasks(2).without_hand_off();
    let (java, far) = (Others::Java, Others::FarJava);
    for (ours, others) in [
        (vec![off; 2], vec![java; 2]),
        (vec![Ours::tasks(2); 2], vec![java; 2]),
        (vec![one; 2], vec![java; 2]),
        (vec![Ours::tasks(8); 2], vec![java]),
        (vec![Ours::tasks(8)], vec![java; 3]),
        (vec![one], vec![java]),
        (vec![one; 3], vec![java; 3]),
        (vec![off; 2], vec![far; 2]),
        (vec![Ours::tasks(8)], vec![far]),
    ] {
        let shares = World::of(&ours, &others).run(SECOND * 20);
        println!("{ours:?} beside {others:?}: {shares:?}");
        // The share by waiting tasks. The tasks of another client are unknown; we count one, the least possible.
        let heads: u32 = ours.iter().map(|one| one.tasks).sum();
        let all = f64::from(heads) + others.len() as f64;
        assert!(
            shares.ours() >= 0.5 * f64::from(heads) / all * 0.95,
            "{shares:?}"
        );
        assert!(
            shares.foreign() >= 0.4 * others.len() as f64 / (ours.len() + others.len()) as f64,
            "{shares:?}"
        );
        assert!(
            shares.longest <= ms(250) && shares.drought <= ms(250),
            "{shares:?}"
        );
    }
}

/// A client that polls every ten milliseconds is never as fast as a client that is woken.
#[test]
fn pollers_come_between_those_who_are_told() {
    for pause in [10, 50] {
        let poller = Others::Poller(ms(pause));
        let shares = World::of(&[Ours::tasks(2); 2], &[poller; 2]).run(SECOND * 20);
        println!("every {pause} ms: {shares:?}");
        assert!(shares.foreign() >= 0.1, "{shares:?}");
    }
}

/// Tidelock processes owe each other only the next turn.
#[test]
fn clients_of_ours_alone_waste_no_time() {
    let two = World::of(&[Ours::tasks(8); 2], &[]).run(SECOND * 20);
    let one = World::of(&[Ours::tasks(8)], &[]).run(SECOND * 20);
    println!("{one:?} {two:?}");
    assert!(two.total() * 10 >= one.total() * 9, "{two:?} {one:?}");
}

#[test]
fn a_stopped_java_service_costs_a_tenth_at_most() {
    let with = World::of(&[Ours::tasks(8)], &[Others::Stopped]).run(SECOND * 20);
    let alone = World::of(&[Ours::tasks(8)], &[]).run(SECOND * 20);
    println!("{with:?} {alone:?}");
    assert!(with.total() * 10 >= alone.total() * 9, "{with:?} {alone:?}");
}
