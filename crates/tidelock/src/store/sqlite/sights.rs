//! When the processes of one clock first saw a row of another clock in its current state, kept in the file.
//!
//! The deadline of another clock means nothing, so such a row counts from the first time that somebody saw it. A process
//! remembers that ([`ForeignRows`](crate::store::sqlite::rows::ForeignRows)), but one that only tries, or waits for less
//! than a lease, ends before the row does. After a restart of the machine such processes would never get a lock whose
//! holder had died with it. So a refused attempt stores what it has seen, and the next process goes on from there.
//!
//! The table exists from the first such attempt on. An older tidelock goes on without it, and counts from its own first
//! look.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{OptionalExtension, Result, params};

use crate::store::sqlite::busy::be_patient_for;
use crate::store::sqlite::connection::Database;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::rows::{Row, note_of};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS sights (
    kind TEXT NOT NULL,         -- the table of the row
    id TEXT NOT NULL,           -- its name in locks, its client in clients, its owner in other tables
    state TEXT NOT NULL,        -- changes with every write of the row
    since INTEGER NOT NULL,     -- first seen in this state: nanoseconds of the clock named by domain
    domain TEXT NOT NULL,
    PRIMARY KEY (kind, id, domain)
) WITHOUT ROWID;
";

/// Bounds how long a refused attempt waits for other writers, as its answer is known already.
const PATIENCE: Duration = Duration::from_millis(50);

/// Bounds the rows that one transaction stores, of all tables together. They fit into a few pages, so that the log does not
/// grow much for them.
const MOST_STORED: u32 = 20;

/// Stores what a refused attempt has seen of other clocks under this name. Without a name: what the removal of dead
/// processes has seen. An error is not one of the caller, because only later processes need what is stored.
pub(crate) fn remember(database: &mut Database, name: Option<&str>) {
    let now = database.setting.timebase.now().stamp;
    remember_at(database, name, now);
}

fn remember_at(database: &mut Database, name: Option<&str>, now: i64) {
    let seen = Arc::clone(&database.setting.seen);
    if seen.is_empty() || !seen.may_be_stored(now) {
        return;
    }
    let stored = match database.read(|view| view.has_new_sights(name)) {
        Ok(false) => return,
        Ok(true) => {
            be_patient_for(PATIENCE);
            database.write_if_room(|view| view.store_sights(name))
        }
        Err(error) => Err(error),
    };
    if let Err(error) = stored {
        seen.could_not_be_stored(now);
        tracing::debug!(%error, "cannot store when a row of another clock was seen");
    }
}

/// The expressions for the id and the state of a row `seen` of this table.
fn id_and_state(table: &str) -> (&'static str, &'static str) {
    match table {
        // The row of a later grant may have the revision of an earlier one of the same owner, but never its token.
        "locks" => (
            "seen.name",
            "seen.owner || ' ' || seen.revision || ' ' || seen.token",
        ),
        "clients" => ("seen.client", "seen.domain || ' ' || seen.ends"),
        _ => ("seen.owner", "seen.domain || ' ' || seen.ends"),
    }
}

/// The rows of other clocks than `?2` of which no sight is stored: those with the name `?1`, or all. A sight that is later
/// than the time `?3` does not count: the clock was set back.
fn without_sight(table: &str, is_named: bool, has_sights: bool) -> String {
    let (id, state) = id_and_state(table);
    // SQLite refuses a value for a parameter that the statement does not have.
    let which = if is_named {
        "seen.name = ?1"
    } else {
        "?1 IS NULL"
    };
    let unseen = if has_sights {
        format!(
            "NOT EXISTS (SELECT 1 FROM sights WHERE sights.kind = '{table}' AND sights.id = {id} \
             AND sights.domain = ?2 AND sights.state = {state} AND sights.since <= ?3)"
        )
    } else {
        "?3 IS NOT NULL".to_owned()
    };
    format!("FROM {table} AS seen WHERE {which} AND seen.domain <> ?2 AND {unseen}")
}

impl LockTransaction<'_> {
    fn has_sights(&self) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'sights'")?
            .exists([])
    }

    /// The tables whose rows may be of another clock: those with names, or those from which dead processes are removed.
    fn tables_seen(&self, is_named: bool) -> Result<Vec<&'static str>> {
        let mut tables = if is_named {
            vec!["locks"]
        } else {
            vec!["clients", "withdrawn"]
        };
        for (exists, table) in [
            (self.has_queue()?, "waiters"),
            (is_named && self.has_sides()?, "sides"),
            (is_named && self.has_permits()?, "permits"),
        ] {
            if exists {
                tables.push(table);
            }
        }
        Ok(tables)
    }

    /// Lets this process count from the first sight that is stored of the row of a lock.
    pub(crate) fn recall(&self, name: &str, row: &Row) -> Result<()> {
        if row.domain == self.now.domain || self.seen.has(name, row) {
            return Ok(());
        }
        let Some(token) = row.token else {
            return Ok(());
        };
        let state = format!("{} {} {token}", row.owner, row.revision);
        if let Some(since) = self.stored_sight("locks", name, &state)? {
            self.seen.first(name, row, since);
        }
        Ok(())
    }

    /// When this clock first saw a row of another one in its current state: that of an owner or of a client.
    pub(crate) fn first_seen(&self, table: &str, id: &str, domain: &str, ends: i64) -> Result<i64> {
        let (note, mut first) = (note_of(table, id), self.now.stamp);
        if !self.seen.has_note(&note, domain, ends) {
            let state = format!("{domain} {ends}");
            first = self.stored_sight(table, id, &state)?.unwrap_or(first);
        }
        Ok(self.seen.note(&note, domain, ends, first))
    }

    fn stored_sight(&self, table: &str, id: &str, state: &str) -> Result<Option<i64>> {
        if !self.has_sights()? {
            return Ok(None);
        }
        self.connection
            .prepare_cached(
                "SELECT since FROM sights WHERE kind = ?1 AND id = ?2 AND domain = ?3 AND state = ?4 AND since <= ?5",
            )?
            .query_row(
                params![table, id, self.now.domain, state, self.now.stamp],
                |row| row.get(0),
            )
            .optional()
    }

    /// Whether there are rows of other clocks of which no sight is stored. Only reads.
    fn has_new_sights(&self, name: Option<&str>) -> Result<bool> {
        // No other process could use the times of a clock that only this process has.
        if self.now.domain.starts_with("process:") {
            return Ok(false);
        }
        let has_sights = self.has_sights()?;
        for table in self.tables_seen(name.is_some())? {
            let new = without_sight(table, name.is_some(), has_sights);
            let new = self
                .connection
                .prepare_cached(&format!("SELECT 1 {new}"))?
                .exists(params![name, self.now.domain, self.now.stamp])?;
            if new {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Stores that rows of other clocks are seen now, unless it is stored that they were seen in this state before.
    fn store_sights(&self, name: Option<&str>) -> Result<()> {
        self.connection.execute_batch(TABLE)?;
        let mut left = MOST_STORED;
        for table in self.tables_seen(name.is_some())? {
            // A client that publishes its details removes old sights too, but there may be none.
            self.sweep_sights(table)?;
            let (id, state) = id_and_state(table);
            let new = without_sight(table, name.is_some(), true);
            let stored = self
                .connection
                .prepare_cached(&format!(
                    "INSERT INTO sights (kind, id, state, since, domain) \
                     SELECT '{table}', {id}, {state}, ?3, ?2 {new} LIMIT ?4 \
                     ON CONFLICT (kind, id, domain) DO UPDATE SET state = excluded.state, since = excluded.since"
                ))?
                .execute(params![name, self.now.domain, self.now.stamp, left])?;
            left = left.saturating_sub(u32::try_from(stored).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Deletes the sights of a row that was taken over.
    pub(crate) fn forget_sights(&self, table: &str, id: &str) -> Result<()> {
        if self.has_sights()? {
            self.connection
                .prepare_cached("DELETE FROM sights WHERE kind = ?1 AND id = ?2")?
                .execute([table, id])?;
        }
        Ok(())
    }

    /// Deletes the sights of rows that have changed since, or are gone.
    pub(crate) fn sweep_sights(&self, table: &str) -> Result<()> {
        if !self.has_sights()? {
            return Ok(());
        }
        let (id, state) = id_and_state(table);
        self.connection
            .prepare_cached(&format!(
                "DELETE FROM sights WHERE kind = ?1 AND NOT EXISTS \
                 (SELECT 1 FROM {table} AS seen WHERE {id} = sights.id AND {state} = sights.state)"
            ))?
            .execute([table])
            .map(drop)
    }
}

#[cfg(test)]
mod tests;
