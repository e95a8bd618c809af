//! Semaphores in the rows: repeated requests, entries of the dead, other clocks, and names of locks.

use super::*;
use crate::store::LockKind;
use crate::store::ReplicaAck;
use crate::store::beats::ALIVE;
use crate::store::side_order::Follows;
use crate::store::sqlite::test_file::File;
use crate::types::OwnerMint;

const LEASE: Duration = Duration::from_secs(30);

fn ticket(file: &File, permits: u16) -> Ticket {
    file.ticket(LockKind::Permits(permits))
}

fn numbered(total: u32) -> File {
    let file = File::new();
    change(&file.at(0), PermitChange::SetIfNew(total));
    file
}

/// Whether the number was changed, and the waiters that got permits by that.
fn change(now: &LockTransaction<'_>, change: PermitChange) -> (bool, Vec<String>) {
    match now.change_permits("n", change).unwrap() {
        PermitsChanged::Done(changed, next) => (changed, next),
        PermitsChanged::IsLock => panic!("a lock"),
    }
}

fn ask(now: &LockTransaction<'_>, ticket: &Ticket, position: FairPosition) -> Decision {
    let LockKind::Permits(permits) = ticket.kind else {
        panic!("no permits");
    };
    now.attempt_permits(ticket, permits, LEASE, position)
        .unwrap()
}

fn gets(now: &LockTransaction<'_>, ticket: &Ticket) {
    let decision = ask(now, ticket, FairPosition::Last);
    assert!(
        matches!(decision, Decision::Granted(None, 0)),
        "{decision:?}"
    );
}

fn waits(now: &LockTransaction<'_>, ticket: &Ticket) {
    let decision = ask(now, ticket, FairPosition::Last);
    assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
}

/// How many permits are available, and the owners that wait.
fn state(now: &LockTransaction<'_>) -> (i64, Vec<String>) {
    let queue = now.permit_queue("n").unwrap();
    let available = queue.total.unwrap() - queue.held();
    let waiting = queue.waiters.iter().map(|waiter| waiter.owner.clone());
    (available, waiting.collect())
}

fn owners<const N: usize>(tickets: [&Ticket; N]) -> Vec<String> {
    tickets.map(|ticket| ticket.owner.text().to_owned()).into()
}

fn renews(now: &LockTransaction<'_>, ticket: &Ticket) -> bool {
    now.renew(&Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish: ReplicaAck::Off,
    })
    .unwrap()
}

#[test]
fn a_repeated_request_counts_permits_once() {
    let file = numbered(5);
    let (held, waiter) = (ticket(&file, 3), ticket(&file, 4));
    for _ in 0..3 {
        gets(&file.at(1), &held);
        waits(&file.at(1), &waiter);
        assert_eq!(state(&file.at(1)), (2, owners([&waiter])));
    }
    for released in [Released::Freed, Released::NotHeld, Released::NotHeld] {
        assert_eq!(file.at(2).release(&held).unwrap(), released);
        assert_eq!(state(&file.at(2)).0, 5);
    }
    for next in [owners([&waiter]), Vec::new()] {
        assert_eq!(file.at(2).serve("n").unwrap(), next);
        assert_eq!(state(&file.at(2)), (1, Vec::new()));
    }
    for released in [Released::Freed, Released::NotHeld] {
        assert_eq!(file.at(3).withdraw(&waiter).unwrap(), released);
        let late = ask(&file.at(3), &waiter, FairPosition::Last);
        assert!(matches!(late, Decision::Withdrawn), "{late:?}");
        assert_eq!(state(&file.at(3)), (5, Vec::new()));
    }
}

#[test]
fn permits_go_to_waiters_in_the_order_of_their_arrival() {
    let file = numbered(4);
    let held = ticket(&file, 3);
    let [too_many, big, small, last] = [6, 4, 1, 2].map(|count| ticket(&file, count));
    gets(&file.at(0), &held);
    waits(&file.at(1), &too_many);
    waits(&file.at(1), &big);
    // One permit is there, but it waits for the one before it.
    waits(&file.at(1), &small);
    waits(&file.at(1), &last);
    let tries = ask(&file.at(1), &ticket(&file, 1), FairPosition::None);
    assert!(matches!(tries, Decision::Held(_)), "{tries:?}");
    let waiting = owners([&too_many, &big, &small, &last]);
    assert_eq!(state(&file.at(1)), (1, waiting));
    file.at(2).release(&held).unwrap();
    assert_eq!(file.at(2).serve("n").unwrap(), owners([&big]));
    file.at(3).release(&big).unwrap();
    assert_eq!(file.at(3).serve("n").unwrap(), owners([&small, &last]));
    // Now there are as many as the first asks for.
    let (changed, next) = change(&file.at(3), PermitChange::Add(2));
    assert!(changed && next.is_empty());
    file.at(3).release(&small).unwrap();
    file.at(3).release(&last).unwrap();
    assert_eq!(file.at(3).serve("n").unwrap(), owners([&too_many]));
}

#[test]
fn the_dead_keep_permits_for_their_lease_and_a_place_for_six_seconds() {
    let file = numbered(2);
    let (dead, lost, next) = (ticket(&file, 2), ticket(&file, 2), ticket(&file, 1));
    gets(&file.at(0), &dead);
    waits(&file.at(20), &lost);
    waits(&file.at(25), &next);
    assert!(file.at(29).serve("n").unwrap().is_empty());
    assert_eq!(file.at(30).serve("n").unwrap(), owners([&next]));
    assert!(!renews(&file.at(30), &dead), "it is lost");
    assert_eq!(file.at(30).release(&dead).unwrap(), Released::NotHeld);
    assert_eq!(state(&file.at(30)), (1, Vec::new()));
    // The grant was not confirmed.
    assert_eq!(state(&file.at(36)), (2, Vec::new()));
    assert!(!renews(&file.at(36), &next));
    gets(&file.at(36), &next);
    assert!(renews(&file.at(50), &next));
    assert_eq!(state(&file.at(79)).0, 1);
}

#[test]
fn a_row_of_another_clock_counts_from_when_it_was_seen() {
    let file = numbered(2);
    let [held, waiter] = [ticket(&file, 2), ticket(&file, 2)];
    gets(&file.at_clock(5000, "there"), &held);
    waits(&file.at_clock(5000, "there"), &waiter);
    assert_eq!(state(&file.at(0)), (0, owners([&waiter])));
    assert_eq!(state(&file.at(6)), (0, Vec::new()));
    assert_eq!(state(&file.at(29)).0, 0);
    assert!(renews(&file.at_clock(5029, "there"), &held));
    assert_eq!(state(&file.at(30)).0, 0);
    assert_eq!(state(&file.at(60)).0, 2);
}

/// A number can be reduced below what is held, and below nothing.
#[test]
fn a_changed_number_takes_no_permit_from_a_holder() {
    let file = File::new();
    let [held, waiter] = [ticket(&file, 3), ticket(&file, 1)];
    waits(&file.at(0), &held);
    for (asked, done) in [
        (PermitChange::SetIfNew(3), (true, owners([&held]))),
        (PermitChange::SetIfNew(9), (false, Vec::new())),
        (PermitChange::Set(1), (true, Vec::new())),
        (PermitChange::Set(1), (false, Vec::new())),
    ] {
        assert_eq!(change(&file.at(1), asked), done, "{asked:?}");
    }
    gets(&file.at(2), &held);
    waits(&file.at(2), &waiter);
    assert_eq!(state(&file.at(2)), (-2, owners([&waiter])));
    let (_, next) = change(&file.at(2), PermitChange::Add(-2));
    assert!(next.is_empty());
    assert_eq!(state(&file.at(2)).0, -4);
    let (_, next) = change(&file.at(2), PermitChange::Add(5));
    assert_eq!(next, owners([&waiter]));
    assert!(file.at(3).take_back_permits("n").unwrap());
    assert!(!file.at(3).take_back_permits("n").unwrap());
    assert_eq!(state(&file.at(3)), (4, Vec::new()));
}

#[test]
fn a_look_shows_the_own_waiters_and_whether_one_is_due() {
    let file = numbered(2);
    let [held, first, second] = [2, 1, 1].map(|count| ticket(&file, count));
    gets(&file.at(0), &held);
    waits(&file.at(0), &first);
    waits(&file.at(0), &second);
    let client = held.owner.client();
    let (look, due) = file.at(1).look_at_queue("n", client).unwrap();
    assert_eq!((look.waiting.len(), look.ahead, due), (2, 0, false));
    assert_eq!(look.left, Duration::from_secs(29));
    file.at(1).show_alive("n", client).unwrap();
    let (look, due) = file.at(30).look_at_queue("n", client).unwrap();
    assert_eq!((look.waiting.len(), due), (0, false), "they are dead");
    waits(&file.at(28), &ticket(&file, 1));
    let (_, due) = file.at(30).look_at_queue("n", client).unwrap();
    assert!(due, "the lease of the holder has ended");
}

#[test]
fn a_name_is_a_lock_or_a_semaphore() {
    let file = numbered(1);
    let kinds = [LockKind::Mutex, LockKind::Fair, LockKind::Read];
    for kind in kinds {
        let lock = file.ticket(kind);
        let refused = match kind {
            LockKind::Read => {
                file.at(0)
                    .attempt_side(&lock, LEASE, FairPosition::Last, Follows::Nobody)
            }
            LockKind::Fair => file.at(0).attempt_fair(&lock, LEASE, FairPosition::Last),
            _ => file.at(0).attempt(&lock, LEASE, 0),
        };
        let refused = refused.unwrap();
        assert!(matches!(refused, Decision::IsSemaphore), "{refused:?}");
    }
    let file = File::new();
    let waiter = ticket(&file, 1);
    waits(&file.at(0), &waiter);
    let lock = file.ticket(LockKind::Mutex);
    file.at(1).attempt(&lock, LEASE, 0).unwrap();
    let refused = ask(&file.at(1), &waiter, FairPosition::Last);
    assert!(matches!(refused, Decision::IsLock), "{refused:?}");
    let changed = file.at(1).change_permits("n", PermitChange::Set(1));
    assert!(matches!(changed, Ok(PermitsChanged::IsLock)));
    file.at(2).release(&lock).unwrap();
    let (_, next) = change(&file.at(2), PermitChange::Set(1));
    assert_eq!(next, owners([&waiter]));
}

#[test]
fn permits_that_cannot_be_read_are_released_and_taken_back() {
    let file = numbered(1);
    for by_force in [false, true] {
        let held = ticket(&file, 1);
        gets(&file.at(0), &held);
        let set = "UPDATE permits SET ends = datetime('now')";
        assert_eq!(file.connection.execute(set, []).unwrap(), 1);
        if by_force {
            assert!(file.at(0).force_release(&held.name).unwrap());
        } else {
            assert_eq!(file.at(0).release(&held).unwrap(), Released::NotHeld);
        }
        assert_eq!(state(&file.at(0)), (1, Vec::new()));
    }
}

/// Those may have left, and would keep permits that nobody uses.
#[test]
fn an_attempt_gives_others_their_permits_for_a_short_time_only() {
    let file = numbered(2);
    let (held, first, asks) = (ticket(&file, 2), ticket(&file, 1), ticket(&file, 1));
    gets(&file.at(0), &held);
    waits(&file.at(29), &first);
    waits(&file.at(29), &asks);
    gets(&file.at(30), &asks);
    let queue = file.at(30).permit_queue("n").unwrap();
    let holders = queue.holders.iter();
    let left: Vec<_> = holders.map(|row| (row.owner.as_str(), row.left)).collect();
    let (first, asks) = (first.owner.text(), asks.owner.text());
    assert_eq!(left, [(first, ALIVE), (asks, LEASE)]);
}

#[test]
fn a_look_finds_waiters_for_the_first_permits_and_counts_those_ahead() {
    let file = File::new();
    let waiter = ticket(&file, 1);
    waits(&file.at(0), &waiter);
    let client = waiter.owner.client();
    let (look, due) = file.at(0).look_at_queue("n", client).unwrap();
    assert_eq!((look.waiting.len(), look.ahead, due), (1, 0, false));

    let file = numbered(1);
    gets(&file.at(0), &ticket(&file, 1));
    for _ in 0..3 {
        waits(&file.at(0), &ticket(&file, 1));
    }
    let waiter = Ticket {
        owner: OwnerMint::new().fresh(),
        ..ticket(&file, 1)
    };
    waits(&file.at(0), &waiter);
    let client = waiter.owner.client();
    let (look, due) = file.at(0).look_at_queue("n", client).unwrap();
    assert_eq!((look.waiting.len(), look.ahead, due), (1, 3, false));
}

/// An older tidelock knows no semaphores, and may hold a lock of that name.
#[test]
fn a_forced_release_ends_a_lock_and_permits_of_one_name() {
    let file = numbered(1);
    let (held, new) = (ticket(&file, 1), PermitChange::SetIfNew(1));
    gets(&file.at(0), &held);
    assert!(file.at(0).permits_are_set("n", new).unwrap());
    let put = "INSERT INTO locks VALUES ('n', 'old:1', 1, 9000000000, 9000000000, 'here', 1, 0)";
    assert_eq!(file.connection.execute(put, []).unwrap(), 1);
    assert!(!file.at(0).permits_are_set("n", new).unwrap());
    assert!(file.at(0).force_release(&held.name).unwrap());
    assert_eq!((file.owner(), state(&file.at(0)).0), (None, 1));
}

/// It gets an error at its attempt, and would wait for nothing.
#[test]
fn a_ticket_that_is_withdrawn_or_names_a_lock_waits_for_no_permits() {
    let file = numbered(1);
    let now = file.at(0);
    gets(&now, &ticket(&file, 1));
    let told = |ticket: &Ticket| {
        let last = FairPosition::Last;
        let kept_out = now.permits_are_kept_out(ticket, 1, last).unwrap();
        (
            kept_out,
            now.wait_for_permits(ticket, 1, LEASE, last).unwrap(),
        )
    };
    let waiter = ticket(&file, 1);
    assert_eq!(told(&waiter), (Some((LEASE, false)), Some(LEASE)));
    assert_eq!(state(&now), (0, owners([&waiter])));
    now.withdraw(&waiter).unwrap();
    assert_eq!(told(&waiter), (None, None));
    // An older tidelock knows no semaphores, and may hold a lock of that name.
    let put = "INSERT INTO locks VALUES ('n', 'old:1', 1, 9000000000, 9000000000, 'here', 1, 0)";
    assert_eq!(file.connection.execute(put, []).unwrap(), 1);
    assert_eq!(told(&ticket(&file, 1)), (None, None));
    assert_eq!(state(&now), (0, Vec::new()));
}

#[test]
fn a_ticket_for_which_there_are_permits_takes_no_place_behind_others() {
    let file = numbered(2);
    let now = file.at(0);
    gets(&now, &ticket(&file, 1));
    let waits = now.wait_for_permits(&ticket(&file, 1), 1, LEASE, FairPosition::Last);
    assert_eq!(waits.unwrap(), None);
    assert_eq!(state(&now), (1, Vec::new()));
}
