//! Which files are opened, which are waited for, and what stays beside a file that is refused.
#![cfg(target_os = "linux")]

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::store::sqlite::busy::be_patient_for;
use crate::store::sqlite::errors;

/// The paths of a file in a new folder.
fn missing_file() -> (TempDir, DatabasePaths) {
    let folder = tempfile::tempdir().unwrap();
    let paths = DatabasePaths::of(folder.path().join("locks.db"));
    (folder, paths)
}

/// The paths of a lock file that nobody has open.
fn lock_file() -> (TempDir, DatabasePaths) {
    let (folder, paths) = missing_file();
    drop(enter(&paths, true).unwrap());
    (folder, paths)
}

fn names(folder: &TempDir) -> Vec<String> {
    let files = std::fs::read_dir(folder.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn only_a_client_that_may_create_makes_a_file_and_its_tables() {
    let (folder, paths) = missing_file();
    let error = enter(&paths, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(names(&folder).is_empty());
    std::fs::write(&paths.main, "").unwrap();
    let error = enter(&paths, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("is empty"), "{error}");
    assert_eq!(paths.main.metadata().unwrap().len(), 0);
    assert_eq!(names(&folder), ["locks.db"]);
    drop(enter(&paths, true).unwrap());
    enter(&paths, false).unwrap();
}

#[test]
fn beside_a_file_of_another_program_nothing_is_left() {
    for is_database in [true, false] {
        let (folder, paths) = missing_file();
        if is_database {
            let foreign = Connection::open(&paths.main).unwrap();
            foreign.execute_batch("CREATE TABLE goods (id)").unwrap();
        } else {
            std::fs::write(&paths.main, "text".repeat(1000)).unwrap();
        }
        let error = enter(&paths, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(names(&folder), ["locks.db"]);
        // A file of that name that was there before is not ours.
        std::fs::write(&paths.lock, "text").unwrap();
        enter(&paths, true).unwrap_err();
        assert_eq!(std::fs::read_to_string(&paths.lock).unwrap(), "text");
    }
}

/// It may have been removed since it was looked for.
#[test]
fn to_open_a_missing_file_does_not_make_it() {
    let (folder, paths) = missing_file();
    make_sure_to_be_alone(&paths, false).unwrap_err();
    connect(&paths, false, Log::Known).unwrap_err();
    assert!(names(&folder).is_empty());
}

#[test]
fn a_companion_that_cannot_be_opened_or_created_is_told_as_such() {
    // Nobody may write to these files or make new ones beside them, not even root.
    let folder = Path::new("/proc/sys/kernel");
    let mount = rustix::fs::statvfs(folder).unwrap().f_flag;
    if mount.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        // As in many containers, where the error is another one.
        eprintln!("NOT tried: {} is mounted read-only", folder.display());
        return;
    }
    for (name, told) in [
        ("ostype", "cannot be opened by this user"),
        ("locks.db-lock", "may not create files in its folder"),
    ] {
        let (_main_folder, paths) = lock_file();
        let lock = folder.join(name);
        let paths = DatabasePaths { lock, ..paths };
        match EntryLock::lock(&paths) {
            Err(Unfit::Other(error)) => {
                assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
                assert!(error.to_string().contains(told), "{error}");
            }
            Err(other) => panic!("{name}: {other:?}"),
            Ok(_) => panic!("{name} was opened"),
        }
    }
}

/// A newcomer without time is refused, and one that has some opens the file when the obstacle has gone.
fn is_waited_for(paths: &DatabasePaths, obstacle: impl Send + 'static) {
    be_patient_for(Duration::ZERO);
    let error = enter(paths, false).unwrap_err();
    assert!(errors::is_busy(&error), "{error}");
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(obstacle);
    });
    be_patient_for(Duration::from_secs(10));
    enter(paths, false).unwrap();
    goes.join().unwrap();
}

/// A child that was forked while the file was opened has a copy of it, and may live long.
#[test]
fn a_gate_that_a_child_has_inherited_opens() {
    let (_folder, paths) = lock_file();
    let Ok(gate) = EntryLock::lock(&paths) else {
        panic!("nobody has it");
    };
    let inherited = gate.file.try_clone().unwrap();
    assert!(EntryLock::lock(&paths).is_err(), "it is shut");
    drop(gate);
    assert!(EntryLock::lock(&paths).is_ok());
    drop(inherited);
}

#[test]
fn a_process_that_opens_the_file_is_waited_for() {
    let (_folder, paths) = lock_file();
    let gate = File::options().write(true).open(&paths.lock).unwrap();
    gate.lock().unwrap();
    is_waited_for(&paths, gate);
}

/// A tool that has read the file and keeps it open.
fn tool(paths: &DatabasePaths) -> Connection {
    let tool = Connection::open(&paths.main).unwrap();
    let count = "SELECT count(*) FROM locks";
    let count = tool.query_row(count, [], |row| row.get::<_, i64>(0));
    assert_eq!(count.unwrap(), 0);
    tool
}

/// It may have read a log that was removed since.
#[test]
fn a_tool_that_has_the_file_open_is_waited_for_when_the_record_is_gone() {
    let (_folder, paths) = lock_file();
    let tool = tool(&paths);
    std::fs::remove_file(&paths.lock).unwrap();
    is_waited_for(&paths, tool);
}

/// Others may have opened it meanwhile.
#[test]
fn a_newcomer_that_has_to_wait_leaves_the_companion_that_it_has_made() {
    let (_folder, paths) = lock_file();
    let _tool = tool(&paths);
    std::fs::remove_file(&paths.lock).unwrap();
    be_patient_for(Duration::ZERO);
    let error = enter(&paths, false).unwrap_err();
    assert!(errors::is_busy(&error), "{error}");
    assert!(paths.lock.exists());
}

/// A tool may have removed it. The next process would make another one, and would not see the locks of this one.
#[test]
fn a_log_without_its_index_is_not_recorded_as_the_one_in_use() {
    let (folder, paths) = missing_file();
    // SQLite makes its index beside the file, where this process does not look.
    let shm = folder.path().join("missing/locks.db-shm");
    let paths = DatabasePaths { shm, ..paths };
    be_patient_for(Duration::ZERO);
    let error = enter(&paths, true).unwrap_err();
    assert!(errors::is_busy(&error), "{error}");
    assert_eq!(std::fs::read_to_string(&paths.lock).unwrap(), "");
}

/// Otherwise SQLite would write the pages of that log over those of the file.
#[test]
fn a_copy_that_replaced_the_file_does_not_get_the_log_of_its_predecessor() {
    for (index, fits) in [("as it was", true), ("missing", true), ("a folder", false)] {
        let (folder, paths) = lock_file();
        let copy = folder.path().join("copy");
        std::fs::copy(&paths.main, &copy).unwrap();
        let entered = enter(&paths, true).unwrap();
        let put = "INSERT INTO withdrawn VALUES ('a:1', 1, 'here')";
        assert_eq!(entered.connection.execute(put, []).unwrap(), 1);
        drop(entered);
        std::fs::rename(&copy, &paths.main).unwrap();
        if index != "as it was" {
            std::fs::remove_file(&paths.shm).unwrap();
        }
        if index == "a folder" {
            std::fs::create_dir(&paths.shm).unwrap();
        }
        match enter(&paths, true) {
            Ok(entered) => {
                assert!(fits, "its index is {index}");
                let count = "SELECT count(*) FROM withdrawn";
                let count = entered.connection.query_row(count, [], |row| row.get(0));
                let count: i64 = count.unwrap();
                assert_eq!(count, 0, "its index is {index}");
            }
            Err(error) => {
                assert!(!fits, "its index is {index}: {error}");
                assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
                assert!(error.to_string().contains("cannot be removed"), "{error}");
            }
        }
    }
}

#[test]
fn the_record_is_not_written_again_for_a_log_that_was_replaced() {
    let (folder, paths) = lock_file();
    let files = Files::at(&paths);
    assert!(confirm(&paths, &files).is_some());
    let new = folder.path().join("new");
    std::fs::write(&new, "").unwrap();
    std::fs::rename(&new, &paths.wal).unwrap();
    assert!(confirm(&paths, &files).is_none());
}

#[test]
fn a_log_that_cannot_be_had_is_told_and_one_that_others_hold_up_is_waited_for() {
    let memory = Connection::open_in_memory().unwrap();
    let refused = log_ahead(&memory);
    assert!(matches!(refused, Err(Unfit::Other(_))), "{refused:?}");

    let (_folder, paths) = missing_file();
    let writer = Connection::open(&paths.main).unwrap();
    let write = "CREATE TABLE goods (id); BEGIN IMMEDIATE; INSERT INTO goods VALUES (1)";
    writer.execute_batch(write).unwrap();
    let newcomer = Connection::open(&paths.main).unwrap();
    newcomer.busy_timeout(Duration::ZERO).unwrap();
    be_patient_for(Duration::ZERO);
    let refused = log_ahead(&newcomer);
    assert!(matches!(refused, Err(Unfit::Sqlite(_))), "{refused:?}");
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(writer);
    });
    be_patient_for(Duration::from_secs(10));
    log_ahead(&newcomer).unwrap();
    goes.join().unwrap();
}
