//! The queue in the rows: repeated requests, waiters that died, and counters without a next token.

use std::time::SystemTime;

use super::*;
use crate::snapshot::ClientInfo;
use crate::store::side_order::Follows;
use crate::store::sqlite::test_file::{File, SECOND};
use crate::store::{CLIENT_INFO_TTL, LockKind, Released};
use crate::types::OwnerMint;

const LEASE: Duration = Duration::from_secs(30);

fn ticket(file: &File) -> Ticket {
    file.ticket(LockKind::Fair)
}

/// A ticket that has the lock from the first second on, and two that wait for it.
fn held(file: &File) -> [Ticket; 3] {
    let all = [ticket(file), ticket(file), ticket(file)];
    let now = file.at(0);
    now.attempt_fair(&all[0], LEASE, FairPosition::None)
        .unwrap();
    for waiter in &all[1..] {
        refused(&now, waiter);
    }
    all
}

fn refused(now: &LockTransaction<'_>, ticket: &Ticket) {
    let decision = now.attempt_fair(ticket, LEASE, FairPosition::Last).unwrap();
    assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
}

fn owners<const N: usize>(tickets: [&Ticket; N]) -> Vec<String> {
    tickets.map(|ticket| ticket.owner.text().to_owned()).into()
}

#[test]
fn a_repeated_attempt_takes_no_second_place() {
    let file = File::new();
    let [_, first, second] = held(&file);
    for _ in 0..3 {
        refused(&file.at(1), &second);
        refused(&file.at(1), &first);
    }
    let queue = file.at(1).queue("n").unwrap();
    assert_eq!(queue, owners([&first, &second]));
}

#[test]
fn a_repeated_release_grants_the_lock_once() {
    let file = File::new();
    let [holder, first, second] = held(&file);
    for _ in 0..3 {
        let now = file.at(1);
        now.release(&holder).unwrap();
        now.hand_over("n").unwrap();
    }
    assert_eq!(file.owner().as_deref(), Some(first.owner.text()));
    assert_eq!(file.newest(), 2);
    assert_eq!(file.at(1).queue("n").unwrap(), owners([&second]));
    // The grant is confirmed, and so is it when the reply was lost.
    for _ in 0..2 {
        let confirmed = file
            .at(2)
            .attempt_fair(&first, LEASE, FairPosition::First)
            .unwrap();
        assert!(matches!(confirmed, Decision::Granted(Some(2), 0)));
    }
    let row = file.at(2).row("n").unwrap().unwrap();
    assert_eq!(row.ends, 32 * SECOND);
    assert_eq!(file.newest(), 2);
}

/// The name of an unconfirmed grant is passed on by a withdrawal.
#[test]
fn a_waiter_that_leaves_with_its_grant_passes_it_on() {
    let file = File::new();
    let [holder, first, second] = held(&file);
    let now = file.at(1);
    now.release(&holder).unwrap();
    now.hand_over("n").unwrap();
    let freed = now.withdraw(&first).unwrap();
    assert_eq!(freed, Released::Freed);
    let next = now.hand_over("n").unwrap();
    assert_eq!(next.as_deref(), Some(second.owner.text()));
    // Its late attempt has no effect.
    let late = now
        .attempt_fair(&first, LEASE, FairPosition::First)
        .unwrap();
    assert!(matches!(late, Decision::Withdrawn), "{late:?}");
    assert!(now.queue("n").unwrap().is_empty());
}

#[test]
fn waiters_that_show_no_life_are_passed_over_and_come_back_first() {
    let file = File::new();
    let [holder, first, second] = held(&file);
    let live = ticket(&file);
    refused(&file.at(7), &live);
    let now = file.at(8);
    assert_eq!(now.queue("n").unwrap(), owners([&live]));
    now.release(&holder).unwrap();
    let next = now.hand_over("n").unwrap();
    assert_eq!(next.as_deref(), Some(live.owner.text()));
    let last = ticket(&file);
    refused(&now, &last);
    for back in [&second, &first] {
        let decision = now.attempt_fair(back, LEASE, FairPosition::First).unwrap();
        assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
    }
    let queue = now.queue("n").unwrap();
    assert_eq!(queue, owners([&first, &second, &last]));
}

#[test]
fn one_beat_keeps_all_waiters_of_a_process() {
    let file = File::new();
    let [_, first, second] = held(&file);
    for seconds in [4, 8, 12] {
        let now = file.at(seconds);
        now.show_alive("n", first.owner.client()).unwrap();
        assert_eq!(now.queue("n").unwrap(), owners([&first, &second]));
    }
    let (look, _) = file.at(12).look_at_queue("n", "somebody").unwrap();
    assert!(look.waiting.is_empty());
    file.at(18).show_alive("n", "somebody").unwrap();
    assert!(!file.at(18).has_waiters("n").unwrap(), "they are removed");
}

#[test]
fn a_waiter_of_another_clock_is_alive_for_as_long_as_its_row_changes() {
    let file = File::new();
    let [_, first, second] = held(&file);
    let all = owners([&first, &second]);
    // Another boot: the readings do not matter.
    let there = |seconds| file.at_clock(seconds, "there");
    assert_eq!(there(1000).queue("n").unwrap(), all);
    assert_eq!(there(1005).queue("n").unwrap(), all);
    assert!(there(1006).queue("n").unwrap().is_empty());
    file.at(5).show_alive("n", first.owner.client()).unwrap();
    assert_eq!(there(1007).queue("n").unwrap(), all);
    assert_eq!(there(1012).queue("n").unwrap(), all);
    assert!(there(1013).queue("n").unwrap().is_empty());
    assert!(there(1013).hand_over("n").unwrap().is_none());
    assert!(!there(1013).has_waiters("n").unwrap(), "they are removed");
}

/// A container may have a boot id of its own, although its processes run beside this one.
#[test]
fn a_waiter_with_another_boot_id_keeps_its_place_while_it_lives() {
    let file = File::new();
    let [_, first, second] = held(&file);
    let (mint, info) = (
        OwnerMint::new(),
        ClientInfo::new("h", 1, "p", SystemTime::now()),
    );
    let places = |seconds: i64| -> i64 {
        let there = file.at_clock(seconds, "there");
        there
            .announce(mint.client(), &info, CLIENT_INFO_TTL)
            .unwrap();
        let count = "SELECT count(*) FROM waiters";
        let count = file.connection.query_row(count, [], |row| row.get(0));
        count.unwrap()
    };
    assert_eq!([1000, 1005].map(places), [2, 2]);
    file.at(5).show_alive("n", first.owner.client()).unwrap();
    assert_eq!([1006, 1011].map(places), [2, 2]);
    let queue = file.at(6).queue("n").unwrap();
    assert_eq!(queue, owners([&first, &second]));
    assert_eq!(places(1012), 0, "they have shown no life");
}

/// A lock whose lease has ended goes to the queue, whoever finds it.
#[test]
fn an_attempt_that_finds_the_lock_free_grants_it_to_the_first() {
    let file = File::new();
    let [_, first, second] = held(&file);
    file.at(29).show_alive("n", first.owner.client()).unwrap();
    let tried = file
        .at(30)
        .attempt_fair(&ticket(&file), LEASE, FairPosition::None)
        .unwrap();
    assert!(matches!(tried, Decision::Held(_)), "{tried:?}");
    assert_eq!(file.owner().as_deref(), Some(first.owner.text()));
    assert_eq!(file.at(30).queue("n").unwrap(), owners([&second]));
}

#[test]
fn without_a_next_token_a_release_frees_and_the_waiter_hears_why() {
    let file = File::new();
    let [holder, first, _] = held(&file);
    let set = "UPDATE counter SET token = 'seven'";
    file.connection.execute(set, []).unwrap();
    let now = file.at(1);
    assert_eq!(now.release(&holder).unwrap(), Released::Freed);
    assert!(now.hand_over("n").unwrap().is_none());
    assert_eq!(file.owner(), None);
    let decision = now
        .attempt_fair(&first, LEASE, FairPosition::First)
        .unwrap();
    assert!(matches!(decision, Decision::NoToken(_)), "{decision:?}");
}

/// A grant that nobody has confirmed ends no later than the lease that its owner asked for.
#[test]
fn an_unconfirmed_grant_is_short() {
    for (lease, ends) in [(1, 2), (30, 7)] {
        let file = File::new();
        let (holder, waiter) = (ticket(&file), ticket(&file));
        let lease = Duration::from_secs(lease);
        for ticket in [&holder, &waiter] {
            file.at(1)
                .attempt_fair(ticket, lease, FairPosition::Last)
                .unwrap();
        }
        file.at(1).release(&holder).unwrap();
        file.at(1).hand_over("n").unwrap();
        let row = file.at(1).row("n").unwrap().unwrap();
        assert_eq!(
            (row.owner.as_str(), row.ends),
            (waiter.owner.text(), ends * SECOND)
        );
    }
}

#[test]
fn a_file_without_fair_locks_has_no_queue() {
    for position in [FairPosition::None, FairPosition::Last] {
        let file = File::new();
        let now = file.at(0);
        now.attempt_fair(&ticket(&file), LEASE, position).unwrap();
        assert!(!now.has_queue().unwrap(), "{position:?}");
        assert!(now.hand_over("n").unwrap().is_none());
        assert!(now.queue("n").unwrap().is_empty());
        now.show_alive("n", "somebody").unwrap();
        let (look, due) = now.look_at_queue("n", "somebody").unwrap();
        assert!(!due);
        assert_eq!((look.ahead, look.left), (0, LEASE));
    }
}

/// A look that is due costs a write.
#[test]
fn a_look_is_due_when_somebody_waits_for_a_free_lock() {
    let file = File::new();
    let [holder, first, second] = held(&file);
    let now = file.at(1);
    let is_due = || now.look_at_queue("n", first.owner.client()).unwrap().1;
    assert!(!is_due(), "it is held");
    now.release(&holder).unwrap();
    assert!(is_due());
    for waiter in [&first, &second] {
        now.withdraw(waiter).unwrap();
    }
    assert!(!is_due(), "nobody waits");
}

#[test]
fn a_fair_waiter_enters_ahead_of_a_side_that_came_later() {
    let file = File::new();
    let [_, first, _] = held(&file);
    let now = file.at(29);
    now.show_alive("n", first.owner.client()).unwrap();
    let side = file.ticket(LockKind::Read);
    let waits = now.attempt_side(&side, LEASE, FairPosition::Last, Follows::Nobody);
    assert!(matches!(waits, Ok(Decision::Held(_))), "{waits:?}");
    // The lease of the holder has ended.
    let now = file.at(30);
    let enters = now.attempt_fair(&first, LEASE, FairPosition::First);
    assert!(
        matches!(enters, Ok(Decision::Granted(Some(2), 0))),
        "{enters:?}"
    );
    let row = now.row("n").unwrap().unwrap();
    assert_eq!(
        (row.owner.as_str(), row.ends),
        (first.owner.text(), 60 * SECOND)
    );
}

/// Two containers may have a time namespace each. The process that lets a waiter in reads another clock than the waiter.
#[test]
fn a_grant_by_another_clock_is_renewed_by_the_clock_of_its_holder() {
    let file = File::new();
    let [holder, waiter, _] = held(&file);
    let there = file.at_clock(5000, "there");
    there.release(&holder).unwrap();
    assert!(there.hand_over("n").unwrap().is_some());
    file.at(1)
        .attempt_fair(&waiter, LEASE, FairPosition::First)
        .unwrap();
    let row = file.at(1).row("n").unwrap().unwrap();
    assert_eq!((row.domain.as_str(), row.ends), ("here", 31 * SECOND));
}

#[test]
fn a_ticket_takes_a_place_behind_a_holder_and_none_while_the_lock_is_free() {
    let file = File::new();
    let now = file.at(0);
    let (holder, waiter) = (ticket(&file), ticket(&file));
    let waits = |ticket: &Ticket| {
        let left = now.wait_behind_holder(ticket, LEASE, FairPosition::Last);
        left.unwrap()
    };
    assert_eq!(waits(&holder), None);
    assert!(!now.has_place(holder.owner.text()).unwrap());
    now.attempt_fair(&holder, LEASE, FairPosition::None)
        .unwrap();
    assert_eq!(waits(&waiter), Some(LEASE));
    assert_eq!(now.queue("n").unwrap(), owners([&waiter]));
}

/// Otherwise it would hold the lock for a short time only, and would be told that another one holds it.
#[test]
fn the_first_waiter_that_finds_the_lock_free_gets_it_for_its_whole_lease() {
    let file = File::new();
    let [_, first, second] = held(&file);
    file.at(29).show_alive("n", first.owner.client()).unwrap();
    // The lease of the holder has ended.
    let now = file.at(30);
    let enters = now.attempt_fair(&first, LEASE, FairPosition::Last).unwrap();
    assert!(
        matches!(enters, Decision::Granted(Some(2), 0)),
        "{enters:?}"
    );
    let row = now.row("n").unwrap().unwrap();
    assert_eq!(
        (row.owner.as_str(), row.ends),
        (first.owner.text(), 60 * SECOND)
    );
    assert_eq!(now.queue("n").unwrap(), owners([&second]));
}
