//! Opens a lock file in such a way that all its users see the same locks.
//!
//! SQLite keeps the newest changes in `-wal` and the locks between its users in `-shm`, both beside the file. Two
//! processes with different `-wal` or `-shm` files do not see each other, so both could be granted one lock. This
//! happens when these files are removed or replaced under a process that has them open, or when the file is reached by
//! a second path.
//!
//! In every case both processes share the file itself, and SQLite holds a shared lock on it from opening to closing. So
//! a process may use the `-wal` and `-shm` that it finds only if
//! - a record in `-lock` says that they are the ones in use, or
//! - no other process has the file open; then the process writes that record.
//!
//! One process at a time does this, under a lock on `-lock` itself. A thousand processes that start at the same moment
//! wait for each other here, and none of them finds a partly created file.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::address;
use crate::store::sqlite::busy::{pause, still_busy};
use crate::store::sqlite::creation;
use crate::store::sqlite::errors::{Busy, TransactionStage, explain};
use crate::store::sqlite::files::{DatabasePaths, Files, Id};
use crate::store::sqlite::schema;
use crate::store::sqlite::schema::Unfit;
use crate::types::Escaped;

/// A connection, and the files that it uses.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) connection: Connection,
    pub(crate) files: Files,
}

/// Opens the file. With `create`, creates a missing file; otherwise a missing file is an error, and nothing is created.
pub(crate) fn enter(paths: &DatabasePaths, create: bool) -> Result<Entered> {
    let mut tries = 0;
    loop {
        let busy = match try_enter(paths, create) {
            Ok(entered) => return Ok(entered),
            Err(Unfit::Busy(busy)) => busy,
            Err(Unfit::Sqlite(error)) => {
                return Err(explain(error, TransactionStage::Before).prefix(paths.main.display()));
            }
            Err(Unfit::Other(error)) => return Err(error.prefix(paths.main.display())),
        };
        if !pause(tries) {
            let error = Error::new(ErrorKind::Unavailable).because(busy.to_string());
            return Err(error.caused_by(busy).prefix(paths.main.display()));
        }
        tries += 1;
    }
}

fn try_enter(paths: &DatabasePaths, create: bool) -> Result<Entered, Unfit> {
    if Id::of(&paths.main).is_none() {
        if !create {
            return Err(Unfit::Other(missing("there is no such lock file")));
        }
        creation::make_file(&paths.main, creation::rights_in(&paths.main));
    }
    address::refuse_links(&paths.main).map_err(Unfit::Other)?;
    let mut gate = EntryLock::lock(paths)?;
    let entered = gate.pass(create);
    if entered.as_ref().is_err_and(is_no_lock_file) {
        gate.clean_up();
    }
    entered
}

/// Whether the file is refused for what it is, and not because it cannot be used now.
fn is_no_lock_file(why: &Unfit) -> bool {
    match why {
        Unfit::Other(_) => true,
        Unfit::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::NotADatabase),
        Unfit::Busy(_) => false,
    }
}

/// Writes the record into `-lock` again, after `-lock` was removed while a connection kept the other files open.
/// Returns the identity of the new `-lock`. `None`: the other files were replaced too, or another process has `-lock` locked.
pub(crate) fn confirm(paths: &DatabasePaths, files: &Files) -> Option<Id> {
    let mut gate = EntryLock::lock(paths).ok()?;
    let now = Files::at(paths);
    let is_ours = now.share_a_log_with(files) && creation::is_at(&gate.file, &paths.lock);
    (is_ours && gate.write(files).is_ok())
        .then_some(now.lock)
        .flatten()
}

/// The lock on `-lock`, which one process at a time has. The kernel drops it when the process ends.
struct EntryLock<'a> {
    paths: &'a DatabasePaths,
    file: File,
    /// True if this process created `-lock`.
    made: bool,
}

/// A child that was forked meanwhile has the file open too, and a lock ends by itself only with the last copy.
impl Drop for EntryLock<'_> {
    fn drop(&mut self) {
        // If it fails, the lock ends with the file.
        let _ = self.file.unlock();
    }
}

impl<'a> EntryLock<'a> {
    fn lock(paths: &'a DatabasePaths) -> Result<Self, Unfit> {
        let made = Id::of_entry(&paths.lock).is_none();
        if made {
            creation::make_companion(&paths.lock, &paths.main);
        }
        let denied = |error: std::io::Error| {
            let closed = "its companion, whose name ends with -lock, cannot be opened by this user";
            let (kind, why) = match error.kind() {
                std::io::ErrorKind::TooManyLinks => (
                    ErrorKind::Refused,
                    "its companion, whose name ends with -lock, is a link or no plain file: another user may have put it there so that this process \
                     overwrites what the link leads to. Remove it and connect again",
                ),
                std::io::ErrorKind::PermissionDenied => (ErrorKind::Refused, closed),
                _ => (ErrorKind::Unavailable, closed),
            };
            Unfit::Other(Error::new(kind).because(why).caused_by(error))
        };
        let file = creation::open_companion(&paths.lock).map_err(|error| {
            match address::may_not_make_files_beside(&paths.lock) {
                // Creating it has failed before, and opening it only says that it is missing.
                Some(why) if error.kind() == std::io::ErrorKind::NotFound => Unfit::Other(
                    Error::new(ErrorKind::Refused)
                        .because("this user may not create files in its folder")
                        .caused_by(why),
                ),
                _ => denied(error),
            }
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Unfit::Busy(Busy::Opening)),
            Err(TryLockError::Error(error)) => return Err(denied(error)),
        }
        // Another process may have removed `-lock` between the open and the lock. Our lock would then be on a file that
        // nobody else opens.
        if creation::is_at(&file, &paths.lock) {
            Ok(Self { paths, file, made })
        } else {
            Err(Unfit::Busy(Busy::Opening))
        }
    }

    fn pass(&mut self, create: bool) -> Result<Entered, Unfit> {
        let mut before = Files::at(self.paths);
        let line = self.read().unwrap_or_default();
        if !before.are_those_of(&line) {
            before = self.agree(&line, create)?;
        }
        let connection = connect(self.paths, create, Log::Known)?;
        // We compare with the files from before SQLite opened them. Otherwise we would mistake a file that was replaced
        // in between for the one that SQLite has open.
        let files = Files::at(self.paths);
        if files.share_a_log_with(&before) {
            Ok(Entered { connection, files })
        } else {
            Err(Unfit::Busy(Busy::Replaced))
        }
    }

    /// Records which log is in use from now on. Called when no process uses the log, or when it is missing.
    fn agree(&mut self, line: &str, create: bool) -> Result<Files, Unfit> {
        let ready = make_sure_to_be_alone(self.paths, create)?;
        if !ready && !create {
            return Err(Unfit::Other(missing("the file is empty")));
        }
        let mut expected = Files::at(self.paths);
        if expected.have_a_foreign_log(line) {
            self.discard_log()?;
            expected = Files::at(self.paths);
        }
        // We create these files instead of SQLite, so that we know their identities: an old copy may replace them at
        // any time.
        let DatabasePaths { main, wal, shm, .. } = self.paths;
        expected.wal = creation::make_companion(wal, main).or(expected.wal);
        expected.shm = creation::make_companion(shm, main).or(expected.shm);
        drop(connect(self.paths, create, Log::New)?);
        let files = Files::at(self.paths);
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

    /// Removes a log that does not belong to this file, for example after a copy or a restore. Otherwise SQLite would
    /// write the log's old pages over newer pages of the file.
    fn discard_log(&self) -> Result<(), Unfit> {
        tracing::warn!(file = %Escaped(self.paths.main.display()), "the -wal file beside the lock file belongs to another file; removing it");
        for path in [&self.paths.wal, &self.paths.shm] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let why = "the -wal and -shm files beside it belong to another lock file and cannot be removed; remove them by hand";
                    let refused = Error::new(ErrorKind::Refused).because(why);
                    return Err(Unfit::Other(refused.caused_by(error)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the `-lock` file that we created, because the main file is not a lock file.
    fn clean_up(&self) {
        if self.made {
            let _ = std::fs::remove_file(&self.paths.lock);
        }
    }
}

/// Fails unless no other process has the file open, by any path. Leaves the file and its log unchanged. Returns whether
/// the tables exist.
fn make_sure_to_be_alone(paths: &DatabasePaths, create: bool) -> Result<bool, Unfit> {
    let connection = Connection::open_with_flags(&paths.main, flags(create))?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let alone = connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    match alone {
        Ok(()) => schema::is_ready(&connection),
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

/// The state of the log beside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// The log is the one in use; it has every write.
    Known,
    /// The previous log may have been removed together with its contents.
    New,
}

fn connect(paths: &DatabasePaths, create: bool, log: Log) -> Result<Connection, Unfit> {
    #[allow(
        unused_mut,
        reason = "needed by some versions in the range of rusqlite"
    )]
    let mut connection = Connection::open_with_flags(&paths.main, flags(create))?;
    connection.busy_handler(Some(still_busy))?;
    // Otherwise the last connection to close would remove the log, and nobody could tell that from a log that was
    // removed with contents. This also makes closing faster.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(32);
    // On an error, dropping the connection ends the transaction.
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
        // We check again inside the transaction: a tool may have created the tables in the meantime.
        let first = !schema::is_ready(&connection)?;
        if first {
            schema::create(&connection)?;
        }
        connection.execute_batch("COMMIT")?;
        if first {
            // The reserve is optional. On a full disk we go on without it.
            let _ = schema::reserve(&connection);
        }
    }
    Ok(connection)
}

/// Turns on the write-ahead log. SQLite does not call the busy handler for this statement, so we retry here.
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
        "{what}: no lock was ever acquired there; check the path. Only an acquire creates the file"
    ))
}

#[cfg(test)]
mod tests;
