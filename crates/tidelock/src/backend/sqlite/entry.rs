//! How a process opens a lock file, so that all its users see the same locks.
//!
//! SQLite keeps the newest changes, and the locks between its users, in `-wal` and `-shm` beside the file. Two processes
//! that have different ones do not see each other: both could be granted one lock. That happens when these files are
//! removed or replaced under a process that has them open, or when the file is reached by a second path.
//!
//! What both processes share in every case is the file itself, and SQLite holds a shared lock on it from opening to
//! closing. So a process may use the `-wal` and `-shm` that it finds only if
//! - a line in `-lock` says that they are the ones in use, or
//! - nobody else has the file open: then the process writes that line.
//!
//! One process at a time does this; `-lock` itself is locked meanwhile. A thousand processes that come at the same moment
//! wait for each other here, and none of them meets a file that is half made.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::files::{Files, Id, Place};
use super::patience::{pause, still_busy};
use super::place;
use super::schema::{self, Unfit};
use super::trouble::{Busy, Stage, explain};
use crate::error::{Error, ErrorKind, Result};

/// A connection, and the files that it uses.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) connection: Connection,
    pub(super) files: Files,
}

/// Opens the file. `create`: makes it if there is none; otherwise that is an error, and nothing is made.
pub(super) fn enter(place: &Place, create: bool) -> Result<Entered> {
    let mut tries = 0;
    loop {
        let busy = match try_enter(place, create) {
            Ok(entered) => return Ok(entered),
            Err(Unfit::Busy(busy)) => busy,
            Err(Unfit::Sqlite(error)) => {
                return Err(explain(error, Stage::Before).prefix(place.main.display()));
            }
            Err(Unfit::Other(error)) => return Err(error.prefix(place.main.display())),
        };
        if !pause(tries) {
            let error = Error::new(ErrorKind::Unavailable).because(busy.to_string());
            return Err(error.caused_by(busy).prefix(place.main.display()));
        }
        tries += 1;
    }
}

fn try_enter(place: &Place, create: bool) -> Result<Entered, Unfit> {
    if Id::of(&place.main).is_none() {
        if !create {
            return Err(Unfit::Other(missing("there is no such lock file")));
        }
        place::make_file(&place.main, place::rights_in(&place.main));
    }
    place::refuse_links(&place.main).map_err(Unfit::Other)?;
    let mut gate = Gate::lock(place)?;
    let entered = gate.pass(create);
    if matches!(entered, Err(Unfit::Other(_))) {
        gate.clean_up();
    }
    entered
}

/// Writes the line into `-lock` again: that file was removed, while a connection went on with the others. False: the others
/// were replaced too, or another process is busy with it.
pub(super) fn confirm(place: &Place, files: &Files) -> bool {
    Gate::lock(place)
        .is_ok_and(|mut gate| Files::at(place).share_a_log_with(files) && gate.write(files).is_ok())
}

/// The lock on `-lock`, which one process at a time has. The system drops it with the process.
struct Gate<'a> {
    place: &'a Place,
    file: File,
    /// There was no such file before.
    made: bool,
}

impl<'a> Gate<'a> {
    fn lock(place: &'a Place) -> Result<Self, Unfit> {
        let made = Id::of(&place.lock).is_none();
        if made {
            place::make_companion(&place.lock, &place.main);
        }
        let denied = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Refused,
                _ => ErrorKind::Unavailable,
            };
            let why = "its companion, whose name ends with -lock, cannot be opened or made; may this user write to the folder?";
            Unfit::Other(Error::new(kind).because(why).caused_by(error))
        };
        let file = place::open_companion(&place.lock).map_err(denied)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Unfit::Busy(Busy::Opening)),
            Err(TryLockError::Error(error)) => return Err(denied(error)),
        }
        // Another process may have removed the file between the two steps: then it is locked in vain.
        if place::is_at(&file, &place.lock) {
            Ok(Self { place, file, made })
        } else {
            Err(Unfit::Busy(Busy::Opening))
        }
    }

    fn pass(&mut self, create: bool) -> Result<Entered, Unfit> {
        let mut before = Files::at(self.place);
        let line = self.read().unwrap_or_default();
        if !before.are_those_of(&line) {
            before = self.agree(&line, create)?;
        }
        let connection = connect(self.place, create, Log::Known)?;
        // Compared with what was there before: a file that was replaced while SQLite opened it would otherwise be taken for
        // the one it has open.
        let files = Files::at(self.place);
        if files.share_a_log_with(&before) {
            Ok(Entered { connection, files })
        } else {
            Err(Unfit::Busy(Busy::Replaced))
        }
    }

    /// Nobody uses the log that is there, or it is missing: writes down which one is used from now on.
    fn agree(&mut self, line: &str, create: bool) -> Result<Files, Unfit> {
        make_sure_to_be_alone(self.place, create)?;
        let mut expected = Files::at(self.place);
        if expected.have_a_foreign_log(line) {
            self.discard_log()?;
            expected = Files::at(self.place);
        }
        // Made by us and not by SQLite, so that we know which files they are: an old copy may be put in their place at any time.
        let Place { main, wal, shm, .. } = self.place;
        expected.wal = place::make_companion(wal, main).or(expected.wal);
        expected.shm = place::make_companion(shm, main).or(expected.shm);
        drop(connect(self.place, create, Log::New)?);
        let files = Files::at(self.place);
        if !files.are_complete() || !files.fit(&expected) {
            return Err(Unfit::Busy(Busy::Replaced));
        }
        self.write(&files).map_err(|cause| {
            let why = "its companion, whose name ends with -lock, cannot be written";
            let error = Error::new(ErrorKind::Unavailable).because(why);
            Unfit::Other(error.caused_by(cause))
        })?;
        Ok(files)
    }

    fn read(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.file.seek(SeekFrom::Start(0))?;
        (&self.file).take(1000).read_to_string(&mut line)?;
        Ok(line)
    }

    fn write(&mut self, files: &Files) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(files.as_line().as_bytes())
    }

    /// Somebody who copies or restores files put this log there. SQLite would write its old pages over
    /// the new ones of the file.
    fn discard_log(&self) -> Result<(), Unfit> {
        tracing::warn!(file = %self.place.main.display(), "the -wal beside the lock file is not the one that belongs to it; it is removed");
        for path in [&self.place.wal, &self.place.shm] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let why = "the -wal and -shm beside it belong to another lock file and cannot be removed; remove them by hand";
                    let refused = Error::new(ErrorKind::Refused).because(why);
                    return Err(Unfit::Other(refused.caused_by(error)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The file beside which we have made a companion is no lock file.
    fn clean_up(&self) {
        if self.made {
            let _ = std::fs::remove_file(&self.place.lock);
        }
    }
}

/// Nobody else has the file open, in whatever process and by whatever path; else an error. The file and its log stay as they are.
fn make_sure_to_be_alone(place: &Place, create: bool) -> Result<(), Unfit> {
    let connection = Connection::open_with_flags(&place.main, flags(create))?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let alone = connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    match alone {
        Ok(()) => schema::is_ready(&connection).map(drop),
        Err(error) if is_busy(&error) => Err(Unfit::Busy(Busy::InUse)),
        Err(error) => Err(error.into()),
    }
}

fn flags(create: bool) -> OpenFlags {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags | OpenFlags::SQLITE_OPEN_CREATE
    } else {
        flags
    }
}

/// What is known of the log beside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// It is the one in use: nothing that was ever written is missing.
    Known,
    /// The one before may have been removed, with what was in it.
    New,
}

fn connect(place: &Place, create: bool, log: Log) -> Result<Connection, Unfit> {
    #[allow(
        unused_mut,
        reason = "needed by some versions in the range of rusqlite"
    )]
    let mut connection = Connection::open_with_flags(&place.main, flags(create))?;
    connection.busy_handler(Some(still_busy))?;
    // The last to close would otherwise remove the log, and nobody could tell that from one that was removed with what is
    // in it. Closing is also faster so.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(32);
    // Dropping the connection, on an error, ends the transaction.
    connection.execute_batch("BEGIN")?;
    let ready = schema::is_ready(&connection)?;
    connection.execute_batch("COMMIT")?;
    if !ready && !create {
        return Err(Unfit::Other(missing("the file is empty")));
    }
    log_ahead(&connection)?;
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    if ready && log == Log::New {
        schema::skip_tokens(&connection)?;
    }
    if !ready {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // Asked again: a tool may have been faster.
        let first = !schema::is_ready(&connection)?;
        if first {
            schema::create(&connection)?;
        }
        connection.execute_batch("COMMIT")?;
        if first {
            // Of no consequence for the locks; where there is no room for it, there is none.
            let _ = schema::reserve(&connection);
        }
    }
    Ok(connection)
}

/// Turns the write-ahead log on. SQLite does not call the busy handler for this, so the loop is ours.
fn log_ahead(connection: &Connection) -> Result<(), Unfit> {
    let mut tries = 0;
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        });
        match mode {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                return Err(Unfit::Other(Error::new(ErrorKind::Unsupported).because(format!(
                    "this file system allows only the journal mode {mode:?}; locks need the write-ahead log. Put the file on a local disk"
                ))));
            }
            Err(error) if is_busy(&error) && still_busy(tries) => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "{what}: no lock was ever taken there. Is the path right? Looking at locks makes no file; taking one does"
    ))
}
