//! One connection to the lock file, and the transactions on it. Used by one thread at a time.

use std::sync::Arc;

use rusqlite::Connection;

use super::entry::{self, Entered};
use super::files::{Files, Place};
use super::patience;
use super::records::View;
use super::rows::Seen;
use super::schema;
use super::shown::Shown;
use super::timebase::Timebase;
use super::trouble::{Stage, explain, spoils};
use super::volume;
use super::worker::Alarm;
use crate::error::Result;

/// A few milliseconds: the connections of all processes leave a log that was removed at the same moment, one after the other.
const TRIES_TO_LEAVE: u32 = 7;

/// Whether a commit is on the disk before it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// A grant and its token: they must not be forgotten by a power failure.
    Yes,
    /// Renewals and releases: a power failure ends all holders with the machine, and a process that is killed loses
    /// nothing that was written. Saves half of the waiting for the disk.
    No,
}

/// What all connections of a client have in common.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) place: Arc<Place>,
    pub(super) base: Timebase,
    pub(super) seen: Arc<Seen>,
    /// `None`: there are no other processes.
    pub(super) shown: Option<Arc<Shown>>,
    /// Rung when one of them is closed because a file was removed or replaced: the others may be idle.
    pub(super) alarm: Arc<Alarm>,
    /// A file that is not there is made.
    pub(super) create: bool,
}

/// A connection that is opened when it is needed, and again when one of its files was removed or replaced.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) setting: Setting,
    open: Option<Open>,
    /// How many connections there were: what one of them says of versions has no meaning for another.
    opened: u64,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    files: Files,
    durable: Durable,
}

impl Desk {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            open: None,
            opened: 0,
        }
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
    pub(super) fn version(&mut self) -> Result<(u64, i64)> {
        let connection = self.connected()?;
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row([], |row| row.get(0)));
        let version = self.settle(version.map_err(|error| (error, Stage::Before)))?;
        Ok((self.opened, version))
    }

    /// The open connection, for what is no transaction.
    pub(super) fn connected(&mut self) -> Result<&Connection> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.enter()?,
        };
        Ok(&self.open.insert(open).connection)
    }

    fn enter(&mut self) -> Result<Open> {
        let Entered { connection, files } = entry::enter(&self.setting.place, self.setting.create)?;
        self.opened += 1;
        Ok(Open {
            connection,
            files,
            durable: Durable::Yes,
        })
    }

    /// The other processes are shown that this client has that lock.
    pub(super) fn show(&self, name: &str) {
        self.setting.shown.iter().for_each(|shown| shown.show(name));
    }

    pub(super) fn hide(&self, name: &str) {
        self.setting.shown.iter().for_each(|shown| shown.hide(name));
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Closes the connection when one of its files was removed or replaced: as long as anybody has the old ones open,
    /// nobody may use the new ones. To be called before each job.
    pub(super) fn leave_if_replaced(&mut self) {
        let Some(open) = &mut self.open else {
            return;
        };
        let place = &self.setting.place;
        let now = Files::at(place);
        if now == open.files {
            return;
        }
        if now.share_a_log_with(&open.files) {
            if entry::confirm(place, &open.files) {
                open.files = Files::at(place);
            }
            return;
        }
        if !open.empty_log() {
            return;
        }
        tracing::warn!(file = %place.main.display(), "the lock file, or the -wal or -shm beside it, was removed, renamed or replaced; it is opened again");
        self.open = None;
        self.setting.alarm.ring();
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
            now: self.setting.base.now(),
            seen: &self.setting.seen,
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
        let place = Arc::clone(&self.setting.place);
        self.write(Durable::Yes, move |view| {
            if schema::is_tight(view.connection)? && volume::is_full(&place.main) {
                let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
                return Err(rusqlite::Error::SqliteFailure(full, None));
            }
            change(view)
        })
    }

    /// On a full disk: moves what is in the log into the file, so that the log's space can be written again. A release
    /// needs no more room than that. False: that was not possible.
    fn make_room(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.checkpoint("RESTART").unwrap_or(false))
    }
}

impl Open {
    /// Moves what is in the log into the file. True: all of it.
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

    /// Moves a log that is being left into the file. False: not all of it, because others read it or move it at this moment.
    /// We then keep the file open, and try again with the next job: until we close it nobody can use the new log. A grant that
    /// only the old log has would be lost, and the lock would be granted to a second process before the first one is told.
    fn empty_log(&self) -> bool {
        for tries in 0..TRIES_TO_LEAVE {
            match self.checkpoint("PASSIVE") {
                Ok(true) => return true,
                // The old log cannot be read any more: waiting does not help. Holders are told when they renew.
                Err(error) if spoils(&error) => return true,
                Ok(false) | Err(_) if patience::pause(tries) => {}
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

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}
