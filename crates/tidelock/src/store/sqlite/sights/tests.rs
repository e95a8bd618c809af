//! Processes that end before a row of another clock does.

use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode};
use tempfile::TempDir;

use super::*;
use crate::snapshot::ClientInfo;
use crate::store::fair_waiters::FairPosition;
use crate::store::side_order::Follows;
use crate::store::sqlite::connection::{Durable, SharedConnectionState};
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::files::DatabasePaths;
use crate::store::sqlite::test_file::{File, SECOND};
use crate::store::{
    CLIENT_INFO_TTL, LockKind, Name, PermitChange, Released, Renewal, ReplicaAck, Ticket,
};
use crate::types::OwnerMint;

const LEASE: Duration = Duration::from_secs(30);

fn is_granted(now: &LockTransaction<'_>, ticket: &Ticket) -> bool {
    let position = FairPosition::None;
    let decision = match ticket.kind {
        LockKind::Write => now.attempt_side(ticket, LEASE, position, Follows::Nobody),
        LockKind::Permits(permits) => now.attempt_permits(ticket, permits, LEASE, position),
        _ => now.attempt(ticket, LEASE, 0),
    };
    match decision.unwrap() {
        Decision::Granted(..) => true,
        Decision::Held(_) => false,
        other => panic!("{other:?}"),
    }
}

fn store_new(now: &LockTransaction<'_>) {
    for name in [Some("n"), None] {
        if now.has_new_sights(name).unwrap() {
            now.store_sights(name).unwrap();
        }
        assert!(!now.has_new_sights(name).unwrap(), "it is stored");
    }
}

fn sights_in(connection: &Connection) -> i64 {
    let count = "SELECT count(*) FROM sights";
    connection.query_row(count, [], |row| row.get(0)).unwrap()
}

/// The attempt of a process that ends after it. The next one knows only what is in the file.
fn is_granted_to_a_short_process(file: &mut File, seconds: i64, ticket: &Ticket) -> bool {
    let now = file.at_clock(seconds, "there");
    let granted = is_granted(&now, ticket);
    if !granted {
        store_new(&now);
    }
    file.forget_what_was_seen();
    granted
}

/// A holder whose clock is another one than that of the processes in these tests.
fn held(kind: LockKind) -> (File, Ticket) {
    let file = File::new();
    if kind.is_permits() {
        let one = PermitChange::Set(1);
        file.at(0).change_permits("n", one).unwrap();
    }
    let holder = file.ticket(kind);
    assert!(is_granted(&file.at(0), &holder));
    (file, holder)
}

#[test]
fn short_processes_together_wait_for_one_lease_of_another_clock() {
    for kind in [LockKind::Mutex, LockKind::Write, LockKind::Permits(1)] {
        let (mut file, holder) = held(kind);
        let ticket = file.ticket(kind);
        for seconds in [1000, 1010, 1029] {
            let granted = is_granted_to_a_short_process(&mut file, seconds, &ticket);
            assert!(!granted, "{kind:?} at {seconds}");
        }
        // The holder lives, so what was seen before does not count.
        let renewal = Renewal {
            ticket: holder,
            lease: LEASE,
            wish: ReplicaAck::Off,
        };
        assert!(file.at(1).renew(&renewal).unwrap(), "{kind:?}");
        for (seconds, ends) in [(1030, false), (1059, false), (1060, true)] {
            let granted = is_granted_to_a_short_process(&mut file, seconds, &ticket);
            assert_eq!(granted, ends, "{kind:?} at {seconds}");
        }
        let now = file.at_clock(1060, "there");
        for table in now.tables_seen(true).unwrap() {
            now.sweep_sights(table).unwrap();
        }
        assert_eq!(sights_in(&file.connection), 0, "{kind:?}");
    }
}

/// Otherwise the lock would have two holders: its row is as it was when the first grant was seen, a lease ago.
#[test]
fn a_sight_of_an_earlier_grant_of_the_same_owner_does_not_count() {
    let (mut file, holder) = held(LockKind::Mutex);
    let (next, other) = (file.ticket(LockKind::Mutex), file.ticket(LockKind::Mutex));
    assert!(!is_granted_to_a_short_process(&mut file, 1000, &other));
    assert!(is_granted(&file.at(31), &next));
    file.at(31).release(&next).unwrap();
    assert!(is_granted(&file.at(40), &holder));
    assert!(!is_granted_to_a_short_process(&mut file, 1045, &other));
    // As written by a tidelock that keeps the stored sights.
    let later = "UPDATE locks SET token = token + 1";
    file.connection.execute(later, []).unwrap();
    assert!(!is_granted_to_a_short_process(&mut file, 1080, &other));
    assert!(is_granted_to_a_short_process(&mut file, 1110, &other));
}

/// Otherwise the file would keep one for each lock that another clock has seen.
#[test]
fn a_lock_that_is_taken_leaves_no_sight_of_the_row_before() {
    let (mut file, _holder) = held(LockKind::Mutex);
    let other = file.ticket(LockKind::Mutex);
    assert!(!is_granted_to_a_short_process(&mut file, 1000, &other));
    assert_eq!(sights_in(&file.connection), 1);
    assert!(is_granted(&file.at(31), &other));
    assert_eq!(sights_in(&file.connection), 0);
}

#[test]
fn dead_waiters_of_another_clock_are_passed_over_by_short_processes() {
    let (mut file, _holder) = held(LockKind::Fair);
    let waiter = file.ticket(LockKind::Fair);
    let waits = file
        .at(0)
        .attempt_fair(&waiter, LEASE, FairPosition::Last)
        .unwrap();
    assert!(matches!(waits, Decision::Held(_)), "{waits:?}");
    for (seconds, waiting) in [(1000, 1), (1005, 1), (1006, 0)] {
        let now = file.at_clock(seconds, "there");
        assert_eq!(now.queue("n").unwrap().len(), waiting, "at {seconds}");
        store_new(&now);
        file.forget_what_was_seen();
    }
}

#[test]
fn what_dead_processes_of_another_clock_leave_is_removed_by_short_processes() {
    let (mut file, _holder) = held(LockKind::Fair);
    let (waiter, gone) = (file.ticket(LockKind::Fair), file.ticket(LockKind::Mutex));
    file.at(0)
        .attempt_fair(&waiter, LEASE, FairPosition::Last)
        .unwrap();
    file.at(0).withdraw(&gone).unwrap();
    let (dead, own) = (OwnerMint::new(), OwnerMint::new());
    let info = ClientInfo::new("h", 1, "p", SystemTime::UNIX_EPOCH);
    file.at(0)
        .announce(dead.client(), &info, CLIENT_INFO_TTL)
        .unwrap();
    for (seconds, left) in [
        (1000, [1, 1, 1]),
        (1005, [1, 1, 1]),
        (1006, [0, 1, 1]),
        (1299, [0, 1, 1]),
        (1300, [0, 0, 1]),
        (4599, [0, 0, 1]),
        (4600, [0, 0, 0]),
    ] {
        let now = file.at_clock(seconds, "there");
        now.announce(own.client(), &info, CLIENT_INFO_TTL).unwrap();
        now.withdraw(&file.ticket(LockKind::Mutex)).unwrap();
        let rows = ["waiters", "withdrawn", "clients"].map(|table| -> i64 {
            let count = format!("SELECT count(*) FROM {table} WHERE domain = 'here'");
            let count = file.connection.query_row(&count, [], |row| row.get(0));
            count.unwrap()
        });
        assert_eq!(rows, left, "at {seconds}");
        store_new(&now);
        file.forget_what_was_seen();
    }
}

#[test]
fn a_sight_of_a_clock_that_was_set_back_does_not_count() {
    let (mut file, _holder) = held(LockKind::Mutex);
    let ticket = file.ticket(LockKind::Mutex);
    for (seconds, ends) in [(1000, false), (500, false), (529, false), (530, true)] {
        let granted = is_granted_to_a_short_process(&mut file, seconds, &ticket);
        assert_eq!(granted, ends, "at {seconds}");
    }
}

#[test]
fn a_clock_that_only_one_process_has_stores_nothing() {
    let (file, _holder) = held(LockKind::Mutex);
    assert!(file.at_clock(5, "there").has_new_sights(Some("n")).unwrap());
    let own = file.at_clock(5, "process:1");
    assert!(!own.has_new_sights(Some("n")).unwrap());
}

#[test]
fn one_transaction_stores_few_rows_and_removes_those_of_former_ones() {
    let file = File::new();
    for number in 0..15 {
        let put = format!(
            "INSERT INTO withdrawn VALUES ('w:{number}', 1, 'here'); \
             INSERT INTO clients VALUES ('c{number}', 'h', 1, 'p', 0, 1, 'here', NULL)"
        );
        file.connection.execute_batch(&put).unwrap();
    }
    let now = file.at_clock(1000, "there");
    now.store_sights(None).unwrap();
    assert_eq!(sights_in(&file.connection), i64::from(MOST_STORED));
    assert!(now.has_new_sights(None).unwrap());
    now.store_sights(None).unwrap();
    assert_eq!(sights_in(&file.connection), 30);
    assert!(!now.has_new_sights(None).unwrap());
    // Nobody publishes details, which would remove them.
    let end = "DELETE FROM withdrawn; DELETE FROM clients WHERE client <> 'c1'; \
         INSERT INTO withdrawn VALUES ('new', 1, 'here')";
    file.connection.execute_batch(end).unwrap();
    now.store_sights(None).unwrap();
    assert_eq!(sights_in(&file.connection), 2);
}

/// A connection that has seen a row of another clock, and one of another program. `None`: this system stores no sights.
fn has_seen_a_row() -> Option<(TempDir, Database, Connection)> {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let mut database = Database::new(SharedConnectionState::of_one(Arc::clone(&paths), true));
    database.connected().unwrap();
    if database
        .setting
        .timebase
        .now()
        .domain
        .starts_with("process:")
    {
        eprintln!("LEFT OUT: nothing is stored on a system whose boots have no names");
        return None;
    }
    let other = Connection::open(&paths.main).unwrap();
    let put = "INSERT INTO locks VALUES ('n', 'a:1', 1, 30000000000, 1, 'there', 1, 0)";
    other.execute(put, []).unwrap();
    let left = database.read(|view| view.held_by_other("n", "b:1"));
    assert!(left.unwrap().is_some());
    Some((folder, database, other))
}

fn is_stored(database: &mut Database) -> bool {
    let stored = database.read(|view| view.stored_sight("locks", "n", "a:1 1 1"));
    stored.unwrap().is_some()
}

fn is_stored_a_second_later(database: &mut Database) {
    for (now, stores) in [(SECOND - 1, false), (SECOND, true)] {
        remember_at(database, Some("n"), now);
        assert_eq!(is_stored(database), stores, "at {now}");
    }
}

/// Otherwise each refused attempt would read the file once more, although most files have rows of one clock only.
#[test]
fn a_process_that_has_seen_no_row_of_another_clock_stores_nothing() {
    let Some((_folder, mut database, _other)) = has_seen_a_row() else {
        return;
    };
    database.setting.seen.forget("n");
    remember_at(&mut database, Some("n"), 0);
    assert!(!is_stored(&mut database));
    let left = database.read(|view| view.held_by_other("n", "b:1"));
    assert!(left.unwrap().is_some());
    remember_at(&mut database, Some("n"), 0);
    assert!(is_stored(&mut database));
}

/// Otherwise each refused attempt would wait for the other program.
#[test]
fn after_a_failure_nothing_is_stored_for_a_second() {
    let Some((_folder, mut database, other)) = has_seen_a_row() else {
        return;
    };
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    remember_at(&mut database, Some("n"), 0);
    other.execute_batch("ROLLBACK").unwrap();
    is_stored_a_second_later(&mut database);
}

/// Bounds the pages of the file for this connection. A bound below those that it has counts as their number.
fn let_it_have_pages(database: &mut Database, most: u32) {
    let connection = database.connected().unwrap();
    let bound = format!("PRAGMA max_page_count = {most}");
    let bound = connection.query_row(&bound, [], |row| row.get::<_, i64>(0));
    assert!(bound.unwrap() >= i64::from(most));
}

/// The disk is full in the middle of the transaction, although there seemed to be room before. The attempt has had its answer;
/// a hold is renewed and released by the same connection.
#[test]
fn a_disk_that_becomes_full_while_a_sight_is_stored_harms_no_hold() {
    let Some((_folder, mut database, _other)) = has_seen_a_row() else {
        return;
    };
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new("held").unwrap(),
        owner: OwnerMint::new().fresh(),
    };
    let granted = database.grow(Durable::Yes, |view| view.attempt(&ticket, LEASE, 0));
    assert!(matches!(granted, Ok(Decision::Granted(..))), "{granted:?}");
    let_it_have_pages(&mut database, 1);
    // Each table takes a page, until there is none left for another one.
    let connection = database.connected().unwrap();
    let full = (0..10_000).find_map(|number| {
        let table = format!("CREATE TABLE filler{number} (room)");
        connection.execute_batch(&table).err()
    });
    let full = full.and_then(|error| error.sqlite_error_code());
    assert_eq!(full, Some(ErrorCode::DiskFull));

    remember_at(&mut database, Some("n"), 0);
    assert!(!is_stored(&mut database), "there was no room for it");
    let renewal = Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish: ReplicaAck::Off,
    };
    let renewed = database.write(Durable::No, |view| view.renew(&renewal));
    assert!(matches!(renewed, Ok(true)), "{renewed:?}");
    let released = database.write(Durable::No, |view| view.release(&ticket));
    assert!(matches!(released, Ok(Released::Freed)), "{released:?}");

    let_it_have_pages(&mut database, 1_000_000);
    is_stored_a_second_later(&mut database);
}
