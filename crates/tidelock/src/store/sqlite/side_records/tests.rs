//! Read-write locks in the rows: repeated requests, entries of the dead, other clocks, and clients that know no sides.

use super::*;
use crate::store::sqlite::test_file::{File, SECOND};

mod leases;
mod places;
mod upgrades;

const LEASE: Duration = Duration::from_secs(30);

fn reader(file: &File) -> Ticket {
    file.ticket(LockKind::Read)
}

fn writer(file: &File) -> Ticket {
    file.ticket(LockKind::Write)
}

fn ask(now: &LockTransaction<'_>, ticket: &Ticket, position: FairPosition) -> Decision {
    now.attempt_side(ticket, LEASE, position, Follows::Nobody)
        .unwrap()
}

fn enters(now: &LockTransaction<'_>, ticket: &Ticket) -> i64 {
    match ask(now, ticket, FairPosition::Last) {
        Decision::Granted(Some(token), 0) => token,
        other => panic!("{other:?}"),
    }
}

fn waits(now: &LockTransaction<'_>, ticket: &Ticket) {
    let decision = ask(now, ticket, FairPosition::Last);
    assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
}

fn holders(now: &LockTransaction<'_>) -> Vec<String> {
    let queue = now.side_queue("n").unwrap();
    queue.holders.into_iter().map(|row| row.owner).collect()
}

fn waiters(now: &LockTransaction<'_>) -> Vec<String> {
    let queue = now.side_queue("n").unwrap();
    queue.waiters.into_iter().map(|row| row.owner).collect()
}

fn owners<const N: usize>(tickets: [&Ticket; N]) -> Vec<String> {
    tickets.map(|ticket| ticket.owner.text().to_owned()).into()
}

fn renews(now: &LockTransaction<'_>, ticket: &Ticket) -> bool {
    now.renew(&Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish: crate::store::ReplicaAck::Off,
    })
    .unwrap()
}

#[test]
fn a_repeated_attempt_neither_queues_nor_counts_twice() {
    let file = File::new();
    let (held, second, waiter) = (writer(&file), reader(&file), reader(&file));
    assert_eq!(enters(&file.at(0), &held), 1);
    assert_eq!(enters(&file.at(1), &held), 1);
    for _ in 0..3 {
        waits(&file.at(1), &second);
        waits(&file.at(1), &waiter);
    }
    assert_eq!(waiters(&file.at(1)), owners([&second, &waiter]));
    for _ in 0..3 {
        file.at(2).release(&held).unwrap();
        file.at(2).serve("n").unwrap();
    }
    assert_eq!(holders(&file.at(2)), owners([&second, &waiter]));
    assert_eq!(file.newest(), 3);
    assert_eq!(enters(&file.at(3), &waiter), 3);
    assert_eq!(file.newest(), 3);
}

#[test]
fn a_try_leaves_no_row() {
    let file = File::new();
    let (held, tries) = (reader(&file), writer(&file));
    enters(&file.at(0), &held);
    let refused = ask(&file.at(0), &tries, FairPosition::None);
    assert!(matches!(refused, Decision::Held(LEASE)), "{refused:?}");
    assert!(waiters(&file.at(0)).is_empty());
}

/// The row in `locks` lasts as long as the longest lease, and goes with the last holder.
#[test]
fn one_row_stands_for_all_readers() {
    let file = File::new();
    let [first, second] = [reader(&file), reader(&file)];
    enters(&file.at(0), &first);
    let stands = file.owner();
    assert_eq!(stands, Some(format!("{}:sides", first.owner)));
    enters(&file.at(10), &second);
    let ends = || file.at(10).row("n").unwrap().unwrap().ends;
    assert_eq!((file.owner(), ends()), (stands.clone(), 40 * SECOND));
    assert!(renews(&file.at(20), &first));
    assert_eq!(ends(), 50 * SECOND);
    file.at(21).release(&first).unwrap();
    assert_eq!((file.owner(), ends()), (stands, 40 * SECOND));
    file.at(22).release(&second).unwrap();
    assert_eq!(file.owner(), None);
}

#[test]
fn a_reader_that_died_keeps_a_writer_out_for_its_lease() {
    let file = File::new();
    let [dead, live] = [reader(&file), reader(&file)];
    let next = writer(&file);
    enters(&file.at(0), &dead);
    enters(&file.at(20), &live);
    waits(&file.at(26), &next);
    file.at(27).release(&live).unwrap();
    assert!(file.at(27).serve("n").unwrap().is_empty());
    assert_eq!(file.at(30).serve("n").unwrap(), owners([&next]));
    assert!(!renews(&file.at(30), &dead), "it is lost");
}

#[test]
fn a_waiting_writer_that_died_lets_the_readers_behind_it_pass() {
    let file = File::new();
    let (held, dead, behind) = (reader(&file), writer(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(0), &dead);
    waits(&file.at(5), &behind);
    let (look, due) = file
        .at(5)
        .look_at_queue("n", behind.owner.client())
        .unwrap();
    assert_eq!((look.waiting.len(), look.ahead, due), (2, 0, false));
    let (look, due) = file
        .at(6)
        .look_at_queue("n", behind.owner.client())
        .unwrap();
    assert_eq!((look.waiting.len(), due), (1, true));
    assert_eq!(file.at(6).serve("n").unwrap(), owners([&behind]));
    // It comes back before all others.
    let last = writer(&file);
    waits(&file.at(7), &last);
    let back = ask(&file.at(7), &dead, FairPosition::First);
    assert!(matches!(back, Decision::Held(_)), "{back:?}");
    assert_eq!(waiters(&file.at(7)), owners([&dead, &last]));
}

/// An older tidelock knows no sides: it breaks the lock by its row. What was held under that row never comes back.
#[test]
fn a_hold_ends_with_the_row_that_stands_for_it() {
    for replaced in [false, true] {
        let file = File::new();
        let [first, second] = [reader(&file), reader(&file)];
        enters(&file.at(0), &first);
        enters(&file.at(0), &second);
        file.connection.execute("DELETE FROM locks", []).unwrap();
        if replaced {
            let other = file.ticket(LockKind::Mutex);
            let granted = file.at(1).attempt(&other, LEASE, 0).unwrap();
            assert!(matches!(granted, Decision::Granted(..)), "{granted:?}");
            assert!(!renews(&file.at(1), &first));
            waits(&file.at(1), &reader(&file));
            file.at(1).release(&other).unwrap();
        }
        let next = reader(&file);
        file.at(2).serve("n").unwrap();
        enters(&file.at(2), &next);
        for lost in [&first, &second] {
            assert!(!renews(&file.at(3), lost));
            let released = file.at(3).release(lost).unwrap();
            assert_eq!(released, Released::NotHeld);
        }
        assert!(holders(&file.at(3)).contains(&next.owner.to_string()));
    }
}

/// A lock without sides has the place of a writer.
#[test]
fn a_lock_without_sides_excludes_them() {
    let file = File::new();
    let (plain, side) = (file.ticket(LockKind::Mutex), reader(&file));
    file.at(0).attempt(&plain, LEASE, 0).unwrap();
    waits(&file.at(1), &side);
    file.at(2).release(&plain).unwrap();
    assert_eq!(file.at(2).serve("n").unwrap(), owners([&side]));
    enters(&file.at(3), &side);
    let plain = file.ticket(LockKind::Mutex);
    let refused = file.at(4).attempt(&plain, LEASE, 0).unwrap();
    assert!(matches!(refused, Decision::Held(_)), "{refused:?}");
    assert!(file.at(4).force_release(&side.name).unwrap());
    assert!(!renews(&file.at(4), &side));
}

#[test]
fn fair_waiters_and_sides_have_one_order() {
    let file = File::new();
    let held = writer(&file);
    enters(&file.at(0), &held);
    let fair = |now: &LockTransaction<'_>, ticket: &Ticket| {
        now.attempt_fair(ticket, LEASE, FairPosition::Last).unwrap()
    };
    let all: Vec<Ticket> = [
        LockKind::Read,
        LockKind::Fair,
        LockKind::Read,
        LockKind::Fair,
    ]
    .map(|kind| file.ticket(kind))
    .into();
    for ticket in &all {
        let decision = if ticket.kind.is_fair() {
            fair(&file.at(0), ticket)
        } else {
            ask(&file.at(0), ticket, FairPosition::Last)
        };
        assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
    }
    let mut before = held;
    for next in all {
        let now = file.at(1);
        now.release(&before).unwrap();
        assert_eq!(now.serve("n").unwrap(), owners([&next]));
        let confirmed = if next.kind.is_fair() {
            fair(&now, &next)
        } else {
            ask(&now, &next, FairPosition::First)
        };
        assert!(matches!(confirmed, Decision::Granted(..)), "{confirmed:?}");
        before = next;
    }
}

/// An attempt for a fair lock that finds the name free lets in the side that came first.
#[test]
fn a_fair_attempt_lets_in_the_side_that_came_first() {
    let file = File::new();
    let (held, side, fair) = (writer(&file), reader(&file), file.ticket(LockKind::Fair));
    enters(&file.at(0), &held);
    waits(&file.at(29), &side);
    let late = file.at(30);
    let decision = late.attempt_fair(&fair, LEASE, FairPosition::Last).unwrap();
    assert!(matches!(decision, Decision::Held(_)), "{decision:?}");
    assert_eq!(holders(&late), owners([&side]));
    assert_eq!(waiters(&late), owners([&fair]));
}

#[test]
fn a_downgrade_joins_a_writer_and_nobody_else() {
    let file = File::new();
    let (held, waiting, joins) = (writer(&file), writer(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(0), &waiting);
    let join = |seconds, of: &Ticket| {
        file.at(seconds)
            .attempt_side(
                &joins,
                LEASE,
                FairPosition::None,
                Follows::Writer(&of.owner),
            )
            .unwrap()
    };
    let refused = join(0, &waiting);
    assert!(matches!(refused, Decision::NotFollowed), "{refused:?}");
    for _ in 0..2 {
        let joined = join(1, &held);
        assert!(
            matches!(joined, Decision::Granted(Some(2), 0)),
            "{joined:?}"
        );
    }
    file.at(2).release(&held).unwrap();
    assert!(file.at(2).serve("n").unwrap().is_empty());
    assert_eq!(holders(&file.at(2)), owners([&joins]));
    // A reader is not followed.
    let again = reader(&file);
    let refused = file
        .at(2)
        .attempt_side(
            &again,
            LEASE,
            FairPosition::None,
            Follows::Writer(&joins.owner),
        )
        .unwrap();
    assert!(matches!(refused, Decision::NotFollowed), "{refused:?}");
}

#[test]
fn a_withdrawn_side_leaves_nothing_and_lets_the_next_in() {
    let file = File::new();
    let (held, leaves, behind) = (reader(&file), writer(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(0), &leaves);
    waits(&file.at(0), &behind);
    let freed = file.at(1).withdraw(&leaves).unwrap();
    assert_eq!(freed, Released::NotHeld);
    assert_eq!(file.at(1).serve("n").unwrap(), owners([&behind]));
    let late = ask(&file.at(1), &leaves, FairPosition::First);
    assert!(matches!(late, Decision::Withdrawn), "{late:?}");
    assert!(waiters(&file.at(1)).is_empty());
}

#[test]
fn a_holder_of_another_clock_counts_for_a_lease_after_each_renewal() {
    let file = File::new();
    let (held, waiter) = (reader(&file), writer(&file));
    enters(&file.at(0), &held);
    let there = |seconds| file.at_clock(seconds, "there");
    waits(&there(1000), &waiter);
    assert!(renews(&file.at(20), &held));
    assert_eq!(there(1020).side_queue("n").unwrap().left(), Some(LEASE));
    there(1049).show_alive("n", waiter.owner.client()).unwrap();
    assert!(there(1049).serve("n").unwrap().is_empty());
    // The process that lets it in reads another clock than the waiter, which renews by its own.
    assert_eq!(there(1050).serve("n").unwrap(), owners([&waiter]));
    enters(&file.at(51), &waiter);
    assert_eq!(
        file.at(80).side_queue("n").unwrap().left(),
        Some(Duration::from_secs(1))
    );
}

#[test]
fn without_a_next_token_nobody_enters_and_the_waiter_hears_why() {
    let file = File::new();
    let (held, waiter) = (writer(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(0), &waiter);
    let set = "UPDATE counter SET token = 'seven'";
    file.connection.execute(set, []).unwrap();
    assert!(renews(&file.at(1), &held));
    assert_eq!(file.at(1).release(&held).unwrap(), Released::Freed);
    assert!(file.at(1).serve("n").unwrap().is_empty());
    assert_eq!(file.owner(), None);
    let decision = ask(&file.at(1), &waiter, FairPosition::First);
    assert!(matches!(decision, Decision::NoToken(_)), "{decision:?}");
}

#[test]
fn an_unconfirmed_grant_is_short() {
    let file = File::new();
    let (held, waiter) = (writer(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(0), &waiter);
    file.at(1).release(&held).unwrap();
    file.at(1).serve("n").unwrap();
    let row = file.at(1).row("n").unwrap().unwrap();
    assert_eq!(row.ends, 7 * SECOND);
}

#[test]
fn a_file_without_sides_has_no_table_of_them() {
    let file = File::new();
    let (plain, side) = (file.ticket(LockKind::Mutex), reader(&file));
    let now = file.at(0);
    now.attempt(&plain, LEASE, 0).unwrap();
    assert!(!renews(&now, &side));
    assert_eq!(now.release(&side).unwrap(), Released::NotHeld);
    now.force_release(&side.name).unwrap();
    assert!(now.serve("n").unwrap().is_empty());
    assert!(!now.has_sides().unwrap());
}

#[test]
fn a_release_removes_rows_that_cannot_be_read() {
    let file = File::new();
    for table in ["sides", "locks"] {
        let held = writer(&file);
        enters(&file.at(0), &held);
        let set = format!("UPDATE {table} SET ends = datetime('now')");
        assert_eq!(file.connection.execute(&set, []).unwrap(), 1);
        assert_eq!(file.at(0).release(&held).unwrap(), Released::NotHeld);
        assert_eq!(file.at(0).row("n").unwrap(), None, "{table}");
        assert!(!file.at(0).has_sides_of("n").unwrap(), "{table}");
    }
    let (first, second) = (reader(&file), reader(&file));
    enters(&file.at(0), &first);
    enters(&file.at(0), &second);
    let set = "UPDATE sides SET ends = datetime('now') WHERE owner = ?1";
    let broken = first.owner.text();
    assert_eq!(file.connection.execute(set, [broken]).unwrap(), 1);
    assert_eq!(file.at(0).release(&first).unwrap(), Released::NotHeld);
    assert!(renews(&file.at(0), &second), "the other reader stays");
    assert_eq!(holders(&file.at(0)), owners([&second]));
}
