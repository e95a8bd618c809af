//! Snapshots, errors, room on the disk, and files that were removed.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::ffi;
use rusqlite::types::Type;
use tempfile::TempDir;

use super::*;

/// A new file, and a connection to it.
fn opened() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let mut database = Database::new(SharedConnectionState::of_one(paths, true));
    database.connected().unwrap();
    (folder, database)
}

/// A connection of another program.
fn other(database: &Database) -> Connection {
    Connection::open(&database.setting.paths.main).unwrap()
}

/// The error with this code of SQLite. `None`: that of a row that cannot be read.
fn failure(code: Option<std::ffi::c_int>) -> rusqlite::Error {
    match code {
        Some(code) => rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
        None => rusqlite::Error::InvalidColumnType(3, "ends".to_owned(), Type::Text),
    }
}

/// Otherwise a row of another clock could count as seen before it was written, and be taken before its lease ends.
#[test]
fn a_read_sees_no_row_that_is_written_after_its_time() {
    let (_folder, mut database) = opened();
    let other = other(&database);
    let put = "INSERT INTO locks VALUES ('n', 'a:1', 1, 1, 1, 'there', 1, 0)";
    let row = database.read(|view| {
        // The time of the view has been read.
        other.execute(put, [])?;
        view.row("n")
    });
    assert_eq!(row.unwrap(), None);
    let row = database.read(|view| view.row("n"));
    assert!(row.unwrap().is_some());
}

/// Waiters look at the rows only if the version has changed.
#[test]
fn the_version_changes_with_the_writes_of_others_and_with_the_connection() {
    let (_folder, mut database) = opened();
    let other = other(&database);
    let first = database.version().unwrap();
    assert_eq!(database.version().unwrap(), first);
    other.execute("UPDATE counter SET token = 7", []).unwrap();
    let second = database.version().unwrap();
    assert_ne!(second, first);
    let [third, fourth] = [(); 2].map(|()| {
        database.close();
        database.version().unwrap()
    });
    let mut all = vec![first, second, third, fourth];
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn a_grant_waits_for_the_disk_and_a_renewal_does_not() {
    let (_folder, mut database) = opened();
    for (durable, set) in [(Durable::No, 1), (Durable::Yes, 2), (Durable::No, 1)] {
        database.write(durable, |_| Ok(())).unwrap();
        let connection = database.connected().unwrap();
        let now = connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0));
        assert_eq!(now.unwrap(), set, "{durable:?}");
    }
}

#[test]
fn a_failed_write_leaves_nothing_and_costs_the_connection_only_if_it_is_of_no_use() {
    let (_folder, mut database) = opened();
    for (code, stays) in [
        (None, true),
        (Some(ffi::SQLITE_BUSY), true),
        (Some(ffi::SQLITE_FULL), true),
        (Some(ffi::SQLITE_CORRUPT), false),
    ] {
        let failed = database.write(Durable::No, |view| {
            let put = "INSERT INTO withdrawn VALUES ('a:1', 1, 'here')";
            view.connection.execute(put, [])?;
            Err::<(), _>(failure(code))
        });
        assert!(failed.is_err(), "{code:?}");
        assert_eq!(database.is_open(), stays, "{code:?}");
        let left = database.read(|view| view.is_withdrawn("a:1"));
        assert!(!left.unwrap(), "{code:?}");
        database.write(Durable::No, |_| Ok(())).unwrap();
        assert!(database.is_open(), "{code:?}");
    }
}

/// A release needs no more room than the log has, once its contents are in the file.
#[test]
fn a_write_that_finds_no_room_is_tried_once_more_if_the_log_can_begin_anew() {
    for (code, is_read, most) in [
        (ffi::SQLITE_FULL, false, 2),
        (ffi::SQLITE_FULL, true, 1),
        (ffi::SQLITE_BUSY, false, 1),
    ] {
        let (_folder, mut database) = opened();
        let set = "UPDATE counter SET token = 7";
        let changed = database.write(Durable::No, |view| view.connection.execute(set, []));
        assert_eq!(changed.unwrap(), 1);
        let reader = other(&database);
        if is_read {
            reader.execute_batch("BEGIN").unwrap();
            let token = "SELECT token FROM counter";
            let token = reader.query_row(token, [], |row| row.get::<_, i64>(0));
            assert_eq!(token.unwrap(), 7);
        }
        busy::be_patient_for(Duration::ZERO);
        let tries = Cell::new(0);
        let done = database.write(Durable::No, |_| {
            tries.set(tries.get() + 1);
            if tries.get() > 1 {
                return Ok(());
            }
            Err(failure(Some(code)))
        });
        assert_eq!(
            (tries.get(), done.is_ok()),
            (most, most > 1),
            "{code} {is_read}"
        );
    }
}

#[test]
fn a_grant_needs_no_room_inside_the_file_while_the_disk_has_some() {
    let (_folder, mut database) = opened();
    let is_tight = |view: &LockTransaction<'_>| schema::is_tight(view.connection);
    assert!(
        !database.read(is_tight).unwrap(),
        "a new file has a reserve"
    );
    let filled = database.write(Durable::No, |view| {
        (0..100).try_for_each(|number| {
            let table = format!("CREATE TABLE filler{number} (room)");
            view.connection.execute_batch(&table)
        })
    });
    filled.unwrap();
    assert!(database.read(is_tight).unwrap());
    database.grow(Durable::No, |_| Ok(())).unwrap();
}

/// A grant that only the log has would be lost.
#[test]
fn an_abandoned_log_is_left_when_the_file_has_all_of_it_or_it_cannot_be_read() {
    let (folder, mut database) = opened();
    let reader = other(&database);
    let open = database.open.as_ref().unwrap();
    busy::be_patient_for(Duration::ZERO);
    assert!(open.empty_log());

    reader.execute_batch("BEGIN").unwrap();
    let token = "SELECT token FROM counter";
    let token = reader.query_row(token, [], |row| row.get::<_, i64>(0));
    assert_eq!(token.unwrap(), 0);
    let set = "UPDATE counter SET token = 7";
    let changed = database.write(Durable::No, |view| view.connection.execute(set, []));
    assert_eq!(changed.unwrap(), 1);
    let open = database.open.as_mut().unwrap();
    // Less than the sum of the pauses, however short the random share makes them.
    busy::be_patient_for(Duration::from_millis(5));
    assert!(!open.empty_log(), "a tool reads what was there before");
    assert_eq!(busy::left(), None, "the tool was waited for");
    reader.execute_batch("COMMIT").unwrap();

    open.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(!open.empty_log(), "a transaction keeps it from moving");
    open.connection.execute_batch("COMMIT").unwrap();
    assert!(open.empty_log());

    let text = folder.path().join("text");
    std::fs::write(&text, "text".repeat(1000)).unwrap();
    open.connection = Connection::open(&text).unwrap();
    assert!(open.empty_log(), "it cannot be read");
}

/// Otherwise no other process could open the file for as long as this one has it open.
#[cfg(target_os = "linux")]
#[test]
fn a_record_that_was_removed_is_written_again() {
    let (_folder, mut database) = opened();
    let paths = Arc::clone(&database.setting.paths);
    std::fs::remove_file(&paths.lock).unwrap();
    database.leave_if_replaced();
    assert!(database.is_open());
    busy::be_patient_for(Duration::ZERO);
    let mut newcomer = Database::new(SharedConnectionState::of_one(paths, false));
    newcomer.connected().unwrap();
}

/// Otherwise a process that writes again and again could keep it from writing until its leases have ended.
#[cfg(target_os = "linux")]
#[test]
fn a_writer_that_waits_is_the_next_one() {
    use crate::store::sqlite::write_turn::WriteTurn;

    /// Far longer than a machine that is busy needs for a write.
    const LONG: Duration = Duration::from_secs(60);

    let (_folder, mut database) = opened();
    let other = other(&database);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let paths = Arc::clone(&database.setting.paths);
    let mut turn = WriteTurn::beside(&paths.lock);
    let waiter = std::thread::spawn(move || {
        busy::be_patient_for(LONG);
        let mut waiter = Database::new(SharedConnectionState::of_one(paths, false));
        let raise = "UPDATE counter SET token = token + 7";
        waiter.write(Durable::No, |view| view.connection.execute(raise, []))
    });
    busy::be_patient_for(Duration::ZERO);
    while turn.take().is_some() {
        std::thread::yield_now();
    }
    other.execute_batch("COMMIT").unwrap();
    busy::be_patient_for(LONG);
    let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let seen = database.write(Durable::No, |view| {
        view.connection
            .query_row("SELECT token FROM counter", [], read)
    });
    assert_eq!(seen.unwrap(), 7, "the waiter has written");
    waiter.join().unwrap().unwrap();
}
