//! One connection to the lock file, and the transactions on it. Used by one thread at a time.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::place;
use super::records::View;
use super::rows::Seen;
use super::schema::{self, Unfit};
use super::timebase::Timebase;
use super::trouble::{Stage, explain, spoils};
use super::volume;
use crate::error::{Error, ErrorKind, Result};

/// Whether a commit is on the disk before it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// A grant and its token: they must not be forgotten by a power failure.
    Yes,
    /// Renewals and releases: a power failure ends all holders with the machine, and a process that is killed loses
    /// nothing that was written. Saves half of the waiting for the disk.
    No,
}

/// A connection that is opened when it is needed, and again when the file was replaced.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) path: PathBuf,
    pub(super) base: Timebase,
    pub(super) seen: Arc<Seen>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    identity: Option<(u64, u64)>,
    durable: Durable,
}

thread_local! {
    /// Until when the busy handler of this thread's connection goes on trying.
    static PATIENCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Called by SQLite while somebody else writes. Its own handler sleeps up to 100 ms at a time, far longer than a write takes.
fn still_busy(tries: i32) -> bool {
    let left = PATIENCE.get().is_some_and(|until| Instant::now() < until);
    if left {
        let step = 100_u64 << tries.clamp(0, 4);
        std::thread::sleep(Duration::from_micros(step));
    }
    left
}

impl Desk {
    pub(super) fn new(path: PathBuf, base: Timebase, seen: Arc<Seen>) -> Self {
        Self {
            path,
            base,
            seen,
            open: None,
        }
    }

    /// For how long the next transactions may wait for other processes.
    pub(super) fn be_patient_for(time: Duration) {
        PATIENCE.set(Instant::now().checked_add(time));
    }

    /// Reads at one instant, without keeping anybody from writing.
    pub(super) fn read<T>(&mut self, look: impl Fn(&View<'_>) -> rusqlite::Result<T>) -> Result<T> {
        self.connected()?;
        let result = self.transaction("BEGIN", None, &look);
        self.settle(result)
    }

    /// Reads and writes at one instant. On an error of a kind other than `OutcomeUnknown` nothing was changed.
    pub(super) fn write<T>(
        &mut self,
        durable: Durable,
        change: impl Fn(&View<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.connected()?;
        let mut result = self.transaction("BEGIN IMMEDIATE", Some(durable), &change);
        if matches!(&result, Err((error, _)) if is_full(error)) && self.make_room() {
            result = self.transaction("BEGIN IMMEDIATE", Some(durable), &change);
        }
        self.settle(result)
    }

    /// Changes when another connection has written.
    pub(super) fn version(&mut self) -> Result<i64> {
        let connection = self.connected()?;
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row([], |row| row.get(0)));
        self.settle(version.map_err(|error| (error, Stage::Before)))
    }

    /// The open connection, for what is no transaction.
    pub(super) fn connected(&mut self) -> Result<&Connection> {
        let moved = |open: &Open| open.identity != place::identity(&self.path);
        if self.open.as_ref().is_some_and(moved) {
            tracing::warn!(file = %self.path.display(), "the lock file was removed or replaced; what was held in it is lost");
            self.open = None;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => open_file(&self.path)?,
        };
        Ok(&self.open.insert(open).connection)
    }

    fn transaction<T>(
        &mut self,
        begin: &str,
        durable: Option<Durable>,
        work: &impl Fn(&View<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, (rusqlite::Error, Stage)> {
        let Some(open) = &mut self.open else {
            return Err((rusqlite::Error::InvalidQuery, Stage::Before));
        };
        let before = |error| (error, Stage::Before);
        if let Some(durable) = durable {
            open.be(durable).map_err(before)?;
        }
        let connection = &open.connection;
        let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
        run(begin).map_err(before)?;
        // The clock is read inside: before others were kept out, the time would be too early to judge their rows by.
        let view = View {
            connection,
            now: self.base.now(),
            seen: &self.seen,
        };
        let result = match work(&view) {
            Ok(value) => run("COMMIT")
                .map(|()| value)
                .map_err(|e| (e, Stage::Commit)),
            Err(error) => Err((error, Stage::Before)),
        };
        if result.is_err() && !connection.is_autocommit() && run("ROLLBACK").is_err() {
            self.open = None;
        }
        result
    }

    fn settle<T>(&mut self, result: Result<T, (rusqlite::Error, Stage)>) -> Result<T> {
        result.map_err(|(error, stage)| {
            if spoils(&error) {
                self.open = None;
            }
            explain(error, stage)
        })
    }

    /// As [`write`](Self::write), for what makes the file grow: not while the disk is full, because what was granted
    /// then would fill the log with what cannot be moved out of it, and nothing could be renewed any more.
    pub(super) fn grow<T>(
        &mut self,
        change: impl Fn(&View<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let path = self.path.clone();
        self.write(Durable::Yes, move |view| {
            if schema::is_tight(view.connection)? && volume::is_full(&path) {
                let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
                return Err(rusqlite::Error::SqliteFailure(full, None));
            }
            change(view)
        })
    }

    /// On a full disk: moves what is in the log into the file, so that the log's space can be written again. A release
    /// needs no more room than that. False: that was not possible.
    fn make_room(&self) -> bool {
        self.open.as_ref().is_some_and(|open| {
            open.connection
                .query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
                    row.get::<_, i64>(0)
                })
                .is_ok_and(|busy| busy == 0)
        })
    }
}

impl Open {
    fn be(&mut self, durable: Durable) -> rusqlite::Result<()> {
        if self.durable != durable {
            self.connection.execute_batch(match durable {
                Durable::Yes => "PRAGMA synchronous = FULL",
                Durable::No => "PRAGMA synchronous = NORMAL",
            })?;
            self.durable = durable;
        }
        Ok(())
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

fn open_file(path: &Path) -> Result<Open> {
    place::make_file(path);
    let identity = place::identity(path);
    let opened = open_connection(path).map_err(|unfit| match unfit {
        Unfit::Sqlite(error) => explain(error, Stage::Before),
        Unfit::Other(error) => error,
    });
    let connection = opened.map_err(|error| error.prefix(path.display()))?;
    if identity.is_some() && identity != place::identity(path) {
        return Err(Error::new(ErrorKind::Unavailable)
            .because("the lock file was replaced while it was being opened")
            .prefix(path.display()));
    }
    Ok(Open {
        connection,
        identity: place::identity(path),
        durable: Durable::Yes,
    })
}

fn open_connection(path: &Path) -> Result<Connection, Unfit> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    #[allow(
        unused_mut,
        reason = "needed by some versions in the range of rusqlite"
    )]
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(still_busy))?;
    connection.set_prepared_statement_cache_capacity(32);
    // Dropping the connection, on an error, ends the transaction.
    connection.execute_batch("BEGIN")?;
    let ready = schema::is_ready(&connection)?;
    connection.execute_batch("COMMIT")?;
    log_ahead(&connection)?;
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    if !ready {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // Asked again: another process may have been faster.
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
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && still_busy(tries) =>
            {
                tries += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
