//! Tests of each step of the debt. Where it leads with several processes, the simulated world shows.

use crate::engine::fairness::debt::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

/// A turn of ten milliseconds, and a release that took one.
fn turn(turns: u32, peers: u32, foreign: u32, polled: bool) -> EndedTurn {
    EndedTurn {
        now: at(0),
        kept: ms(10),
        turns,
        trip: ms(1),
        awaited: Awaited {
            others: peers + foreign,
            foreign,
            polled,
            releases_seen: 0,
        },
    }
}

/// Turns, time, patience, credit (each in milliseconds), and the delays in vain.
fn parts(debt: &FairnessDebt) -> (u32, u128, u128, u128, u32) {
    let [time, patience, credit] =
        [debt.time, debt.patience, debt.credit].map(|time| time.as_millis());
    (debt.turns, time, patience, credit, debt.vain)
}

fn debt(turns: u32, time: u64, patience: u64, credit: u64, vain: u32) -> FairnessDebt {
    FairnessDebt {
        turns,
        time: ms(time),
        patience: ms(patience),
        credit: ms(credit),
        vain,
    }
}

fn after(before: FairnessDebt, ended: &EndedTurn) -> (u32, u128, u128, u128, u32) {
    let mut debt = before;
    debt.add(ended);
    parts(&debt)
}

#[test]
fn the_shortest_delay_is_two_trips_within_its_bounds() {
    let shortest = |trip| {
        let turn = turn(1, 0, 1, false);
        EndedTurn { trip, ..turn }.shortest()
    };
    assert_eq!(shortest(ms(3)), ms(6));
    assert_eq!(shortest(Duration::ZERO), MIN_FAIRNESS_DELAY);
    assert_eq!(shortest(ms(500)), MAX_FAIRNESS_DELAY);
}

#[test]
fn each_turn_adds_the_share_of_the_others() {
    let add =
        |turns, peers, foreign| after(FairnessDebt::default(), &turn(turns, peers, foreign, false));
    assert_eq!(add(1, 0, 1), (1, 20, 2, 5, 0));
    assert_eq!(add(2, 1, 1), (5, 50, 2, 5, 0));
    assert_eq!(add(1, 0, 3), (1, 20, 2, 5, 0), "as many as this process");
    assert_eq!(add(1, 5, 1), (7, 90, 2, 5, 0), "twice its own number");
    assert_eq!(add(1, 20, 1), (10, 100, 2, 5, 0), "eight are counted");
    let polled = |peers| after(FairnessDebt::default(), &turn(1, peers, 0, true));
    assert_eq!(polled(0), (1, 20, 2, 5, 0));
    assert_eq!(polled(3), (4, 50, 2, 5, 0), "all that poll count as one");
    let before = debt(3, 90, 8, 18, 0);
    assert_eq!(after(before, &turn(1, 0, 1, false)), (4, 100, 8, 20, 0));
}

#[test]
fn a_process_without_others_owes_nothing() {
    let before = debt(3, 30, 8, 4, 2);
    assert_eq!(after(before, &turn(1, 2, 0, false)), (0, 0, 8, 4, 0));
}

#[test]
fn the_credit_grows_more_slowly_after_delays_in_vain() {
    let credit = |vain, polled| {
        let before = debt(0, 0, 2, 0, vain);
        after(before, &turn(1, 0, 1, polled)).3
    };
    assert_eq!([0, 1, 2].map(|vain| credit(vain, false)), [5, 2, 1]);
    assert_eq!(credit(2, true), 5, "a client that polls comes by chance");
}

#[test]
fn a_debt_is_open_until_the_turns_or_the_time_are_over() {
    let debt = debt(2, 10, 2, 20, 0);
    let just_before = Duration::from_nanos(9_999_999);
    assert!(debt.is_open(just_before, 1));
    assert!(!debt.is_open(ms(10), 1));
    assert!(!debt.is_open(ms(0), 2));
}

#[test]
fn the_others_get_what_the_credit_pays_for() {
    let given = |time, credit, hears| debt(2, time, 2, credit, 0).given(hears);
    assert_eq!(given(10, 2, true), ms(2));
    assert_eq!(given(10, 1, true), ms(0));
    assert_eq!(
        given(1, 1, true),
        ms(1),
        "no more than the rest of the debt"
    );
    assert_eq!(
        given(10, 10, false),
        ms(10),
        "it does not hear when they come"
    );
    assert_eq!(given(10, 9, false), ms(0));
}

#[test]
fn a_delay_ends_with_the_debt_at_the_latest() {
    let debt = debt(2, 10, 2, 20, 0);
    let end = |now, free_since, seen| debt.end(at(100), at(now), at(free_since), seen);
    assert_eq!(end(103, 103, Some(1)), at(105));
    assert_eq!(end(109, 109, Some(1)), at(110));
    assert_eq!(end(103, 103, Some(2)), at(0), "they had their turns");
    assert_eq!(end(110, 103, Some(1)), at(0), "or the time");
    assert_eq!(end(100, 100, None), at(110));
}

/// The debt after this process has the lock again.
fn granted(
    before: FairnessDebt,
    elapsed: u64,
    peers: u32,
    seen: Option<u32>,
) -> (u32, u128, u128, u128, u32) {
    let mut debt = before;
    debt.granted(ms(elapsed), peers, seen);
    parts(&debt)
}

#[test]
fn a_turn_of_another_client_restores_the_credit() {
    let before = debt(5, 50, 2, 1, 2);
    let open = granted(before, 10, 1, Some(2));
    assert_eq!(open, (3, 40, 4, 20, 0), "too short for some of them");
    let over = granted(before, 50, 1, Some(2));
    assert_eq!(over, (0, 0, 2, 20, 0));
    let most = granted(debt(5, 50, 15, 1, 0), 10, 0, Some(1));
    assert_eq!(most, (4, 40, 20, 20, 0));
}

#[test]
fn a_delay_in_vain_costs_credit_and_the_next_is_longer() {
    let before = debt(5, 50, 2, 5, 1);
    // Two other processes of tidelock had a turn, and no other client.
    let vain = granted(before, 10, 2, Some(2));
    assert_eq!(vain, (3, 50, 8, 3, 1));
    assert_eq!(granted(before, 10, 5, Some(5)), (0, 50, 2, 5, 1), "paid");
    let poor = granted(debt(5, 50, 2, 1, 1), 10, 0, Some(0));
    assert_eq!(poor, (5, 50, 2, 1, 1), "there was no delay");
    let grown = granted(debt(5, 50, 8, 20, 1), 10, 0, Some(0));
    assert_eq!(grown, (5, 50, 20, 12, 1));
}

#[test]
fn the_longest_delay_in_vain_ends_the_debt() {
    let longest = granted(debt(5, 50, 20, 20, 1), 10, 0, Some(0));
    assert_eq!(longest, (0, 0, 20, 0, 2));
    let again = granted(debt(5, 50, 20, 20, MAX_IDLE_DIVISIONS), 10, 0, Some(0));
    assert_eq!(again, (0, 0, 20, 0, MAX_IDLE_DIVISIONS));
    // It cannot hear of turns, so one delay is all that the others get.
    let deaf = granted(debt(5, 50, 2, 20, 0), 10, 0, None);
    assert_eq!(deaf, (0, 0, 2, 0, 1));
}
