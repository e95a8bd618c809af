//! A database connection to the lock file, and the transactions on it. Only one thread uses it at a time.

use std::sync::Arc;

use rusqlite::Connection;

use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::alarm::IdleAlarm;
use crate::store::sqlite::busy;
use crate::store::sqlite::entry;
use crate::store::sqlite::entry::Entered;
use crate::store::sqlite::errors::{TransactionStage, explain, has_no_room, is_damage, spoils};
use crate::store::sqlite::file_system;
use crate::store::sqlite::files::{DatabasePaths, Files};
use crate::store::sqlite::holder_bytes::HolderBytes;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::rows::ForeignRows;
use crate::store::sqlite::schema;
use crate::store::sqlite::timebase::Timebase;
use crate::store::sqlite::write_turn::WriteTurn;
use crate::store::{Clock, Ticket};
use crate::types::Escaped;

/// Bounds the retries when a connection leaves a removed log, to a few milliseconds in total. The connections of all
/// processes leave such a log at the same moment, one after the other.
const TRIES_TO_LEAVE: u32 = 7;

/// Tells whether a commit must be on the disk before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// For a grant and its token: a power failure must not lose them.
    Yes,
    /// For renewals and releases: a power failure ends all holders together with the machine, and a killed process
    /// loses no write. This halves the time spent waiting for the disk.
    No,
}

/// The settings that all connections of a client share.
#[derive(Debug, Clone)]
pub(crate) struct SharedConnectionState {
    pub(crate) paths: Arc<DatabasePaths>,
    pub(crate) timebase: Timebase,
    pub(crate) seen: Arc<ForeignRows>,
    /// `None`: no other process uses the file.
    pub(crate) shown: Option<Arc<HolderBytes>>,
    /// Tells the other connections, which may be idle, that one was closed because a file was removed or replaced.
    pub(crate) alarm: Arc<IdleAlarm>,
    /// Whether to create a missing file.
    pub(crate) create: bool,
}

impl SharedConnectionState {
    /// Those of a connection that shares nothing with others.
    pub(crate) fn of_one(paths: Arc<DatabasePaths>, create: bool) -> Self {
        Self {
            paths,
            timebase: Timebase::new(Clock::Boot),
            seen: Arc::default(),
            shown: None,
            alarm: Arc::default(),
            create,
        }
    }
}

/// A connection that opens on demand, and opens again after one of its files was removed or replaced.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) setting: SharedConnectionState,
    open: Option<OpenDatabase>,
    /// Counts the connections opened so far. A `data_version` of one connection cannot be compared with that of
    /// another.
    opened: u64,
}

#[derive(Debug)]
struct OpenDatabase {
    connection: Connection,
    files: Files,
    turn: WriteTurn,
    durable: Durable,
    /// The database was removed or replaced, and this connection waits until its log is in the old one.
    is_abandoned: bool,
}

impl Database {
    pub(crate) fn new(setting: SharedConnectionState) -> Self {
        Self {
            setting,
            open: None,
            opened: 0,
        }
    }

    /// Runs a read transaction, which does not block writers.
    pub(crate) fn read<T>(
        &mut self,
        look: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.connected()?;
        let result = self.transaction("BEGIN", None, &look);
        self.settle(result)
    }

    /// Runs a write transaction. After an error of any kind except `OutcomeUnknown`, nothing was changed.
    pub(crate) fn write<T>(
        &mut self,
        durable: Durable,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.connected()?;
        let mut result = self.transaction("BEGIN IMMEDIATE", Some(durable), &change);
        // Without room the failed transaction changed nothing, so we free log space and retry once.
        if matches!(&result, Err((error, _)) if has_no_room(error)) && self.make_room() {
            result = self.transaction("BEGIN IMMEDIATE", Some(durable), &change);
        }
        self.settle(result)
    }

    /// Returns a value that changes when another connection writes.
    pub(crate) fn version(&mut self) -> Result<(u64, i64)> {
        let connection = self.connected()?;
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row([], |row| row.get(0)));
        let version = self.settle(version.map_err(|error| (error, TransactionStage::Before)))?;
        Ok((self.opened, version))
    }

    /// Returns the open connection, for use outside a transaction. Opens it if necessary. Fails if the database was
    /// removed or replaced and the old one cannot be left yet.
    pub(crate) fn connected(&mut self) -> Result<&Connection> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.enter()?,
        };
        let open = self.open.insert(open);
        if open.is_abandoned {
            // Others use the new file already. If we renewed in the old one, a lock would have two holders.
            return Err(Error::new(ErrorKind::Unavailable)
                .because(
                    "the lock file was removed, renamed or replaced, and a program that reads the old one keeps this process from leaving it; \
                     end that program. Nothing was changed",
                )
                .prefix(self.setting.paths.main.display()));
        }
        Ok(&open.connection)
    }

    fn enter(&mut self) -> Result<OpenDatabase> {
        let Entered { connection, files } = entry::enter(&self.setting.paths, self.setting.create)?;
        self.opened += 1;
        Ok(OpenDatabase {
            connection,
            files,
            turn: WriteTurn::beside(&self.setting.paths.lock),
            durable: Durable::Yes,
            is_abandoned: false,
        })
    }

    /// Shows the other processes that this ticket holds its lock.
    pub(crate) fn show(&self, ticket: &Ticket) {
        if let Some(shown) = &self.setting.shown {
            shown.show(ticket.name.as_str(), &ticket.owner);
        }
    }

    pub(crate) fn hide(&self, ticket: &Ticket) {
        if let Some(shown) = &self.setting.shown {
            shown.hide(ticket.name.as_str(), &ticket.owner);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Closes the connection if one of its files was removed or replaced. No process may use the new files while any
    /// process still has the old ones open. The worker calls this before each job.
    pub(crate) fn leave_if_replaced(&mut self) {
        let Some(open) = &mut self.open else {
            return;
        };
        let paths = &self.setting.paths;
        let now = Files::at(paths);
        open.is_abandoned = now.main != open.files.main;
        if now == open.files {
            return;
        }
        // Only `-lock` was replaced, so we keep the connection and write the record again.
        if now.share_a_log_with(&open.files) {
            // We do not look at the files again: a log that has gone since must be left.
            if let Some(lock) = entry::confirm(paths, &open.files) {
                open.files.lock = Some(lock);
                open.turn = WriteTurn::beside(&paths.lock);
            }
            return;
        }
        // We leave the connection open until its log is in the file. Otherwise grants that only the log has would be
        // lost.
        if !open.empty_log() {
            return;
        }
        tracing::warn!(file = %Escaped(paths.main.display()), "the lock file, or the -wal or -shm beside it, was removed, renamed or replaced; reopening it");
        self.open = None;
        self.setting.alarm.ring();
    }

    fn transaction<T>(
        &mut self,
        begin: &str,
        durable: Option<Durable>,
        work: &impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, (rusqlite::Error, TransactionStage)> {
        let Some(open) = &mut self.open else {
            return Err((rusqlite::Error::InvalidQuery, TransactionStage::Before));
        };
        let before = |error| (error, TransactionStage::Before);
        if let Some(durable) = durable {
            open.be(durable).map_err(before)?;
        }
        let connection = &open.connection;
        let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
        let turn = durable.and_then(|_| open.turn.take());
        let entered = run(begin);
        drop(turn);
        entered.map_err(before)?;
        let snapshot = if durable.is_some() {
            Ok(())
        } else {
            take_snapshot(connection)
        };
        // We read the clock inside the transaction. A time read before we exclude other writers would be too early to
        // judge their rows by.
        let view = LockTransaction {
            connection,
            now: self.setting.timebase.now(),
            seen: &self.setting.seen,
        };
        let result = match snapshot.and_then(|()| work(&view)) {
            Ok(value) => run("COMMIT")
                .map(|()| value)
                .map_err(|e| (e, TransactionStage::Commit)),
            Err(error) => Err((error, TransactionStage::Before)),
        };
        // If the rollback fails, the connection may still be inside the transaction, so we drop it.
        if result.is_err() && !connection.is_autocommit() && run("ROLLBACK").is_err() {
            self.open = None;
        }
        result
    }

    fn settle<T>(&mut self, result: Result<T, (rusqlite::Error, TransactionStage)>) -> Result<T> {
        result.map_err(|(error, stage)| {
            if spoils(&error) {
                self.open = None;
            }
            explain(error, stage)
        })
    }

    /// Like [`write`](Self::write), for changes that make the file grow. It fails while the disk is full. Otherwise new
    /// grants would fill the log with pages that cannot be moved into the file, and no lease could be renewed any more.
    pub(crate) fn grow<T>(
        &mut self,
        durable: Durable,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let paths = Arc::clone(&self.setting.paths);
        self.write(durable, move |view| {
            if is_out_of_room(view, &paths)? {
                return Err(disk_full());
            }
            change(view)
        })
    }

    /// Runs a write transaction that its caller can do without. We try it once, and not while the disk is full: the room
    /// that is left is for renewals and releases.
    pub(crate) fn write_if_room<T>(
        &mut self,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.connected()?;
        let result = if file_system::is_full(&self.setting.paths.main) {
            Err((disk_full(), TransactionStage::Before))
        } else {
            self.transaction("BEGIN IMMEDIATE", Some(Durable::No), &change)
        };
        self.settle(result)
    }

    /// Frees log space on a full disk: moves the contents of the log into the file, so that the log can be overwritten.
    /// A release needs no more room than that. Returns false if this was not possible.
    fn make_room(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.checkpoint("RESTART").unwrap_or(false))
    }
}

impl OpenDatabase {
    /// Moves the contents of the log into the file. Returns true if all of it was moved.
    fn checkpoint(&self, how: &str) -> rusqlite::Result<bool> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let done = self.connection.query_row(&sql, [], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, i64>(2)?,
            ))
        });
        done.map(|(busy, logged, moved)| busy == 0 && logged == moved)
    }

    /// Moves the contents of an abandoned log into the file. Returns false if some remain, because others read or
    /// checkpoint the log at this moment. We then keep the file open and retry with the next job; until we close it, no
    /// process can use the new log. Otherwise a grant that exists only in the old log would be lost, and the lock would
    /// be granted to a second process before the first one learns of it.
    fn empty_log(&self) -> bool {
        for tries in 0..TRIES_TO_LEAVE {
            match self.checkpoint("PASSIVE") {
                Ok(true) => return true,
                // The old log cannot be read any more, so waiting does not help. Holders learn of it when they renew. After any other
                // error, as of a write to the file, it has what nothing else has.
                Err(error) if is_damage(&error) => return true,
                Ok(false) | Err(_) if busy::pause(tries) => {}
                Ok(false) | Err(_) => return false,
            }
        }
        false
    }

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

/// Whether the disk is full and the file has no room left inside.
pub(crate) fn is_out_of_room(
    view: &LockTransaction<'_>,
    paths: &DatabasePaths,
) -> rusqlite::Result<bool> {
    Ok(schema::is_tight(view.connection)? && file_system::is_full(&paths.main))
}

fn disk_full() -> rusqlite::Error {
    let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    rusqlite::Error::SqliteFailure(full, None)
}

/// Decides what this read transaction sees. SQLite decides that with the first statement that reads, so without this one
/// the transaction could see rows that were written after its time.
fn take_snapshot(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?
        .exists([])
        .map(drop)
}

#[cfg(test)]
mod tests;
