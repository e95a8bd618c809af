//! The row-lease algorithm in SQL: the statements of each operation inside one transaction.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::snapshot::{ClientInfo, since_epoch};
use crate::store::beats::ALIVE;
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::rows::{ForeignRows, Now, Row, RowOwner, nanos, note_of};
use crate::store::{CLIENT_INFO_TTL, ClientId, Name, Released, Renewal, Ticket};

/// Bounds how long a withdrawn ticket is remembered: far longer than its request can stay in the worker queue of its
/// process.
const WITHDRAWN_TTL: Duration = Duration::from_secs(300);

/// Bounds the rows of other clocks that one sweep looks at.
const MOST_SWEPT: u32 = 1000;

/// The context of one transaction.
pub(crate) struct LockTransaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) now: Now<'a>,
    pub(crate) seen: &'a ForeignRows,
}

impl LockTransaction<'_> {
    pub(crate) fn row(&self, name: &str) -> Result<Option<Row>> {
        let row = self
            .connection
            .prepare_cached(
                "SELECT owner, revision, lease, ends, domain, token FROM locks WHERE name = ?1",
            )?
            .query_row([name], |row| {
                Ok(Row {
                    owner: row.get(0)?,
                    revision: row.get(1)?,
                    lease: row.get(2)?,
                    ends: row.get(3)?,
                    domain: row.get(4)?,
                    token: row.get(5)?,
                })
            })
            .optional()?;
        if let Some(row) = &row {
            self.recall(name, row)?;
        }
        Ok(row)
    }

    pub(crate) fn owner_of_row(&self, row: Option<&Row>, name: &str, owner: &str) -> RowOwner {
        row.map_or(RowOwner::Free, |row| {
            row.owner_of_row(name, owner, self.now, self.seen)
        })
    }

    /// Returns the remaining time if another owner holds the lock. Only reads.
    pub(crate) fn held_by_other(&self, name: &str, owner: &str) -> Result<Option<Duration>> {
        Ok(
            match self.owner_of_row(self.row(name)?.as_ref(), name, owner) {
                RowOwner::Theirs(left) => Some(left),
                RowOwner::Free | RowOwner::Ours => None,
            },
        )
    }

    pub(crate) fn attempt(&self, ticket: &Ticket, lease: Duration, spare: u32) -> Result<Decision> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.to_string());
        // The attempt of a withdrawn ticket may arrive after the withdrawal. It must not acquire the lock.
        if self.is_withdrawn(&owner)? {
            return Ok(Decision::Withdrawn);
        }
        if self.is_semaphore(name)? {
            return Ok(Decision::IsSemaphore);
        }
        let row = self.row(name)?;
        match self.owner_of_row(row.as_ref(), name, &owner) {
            RowOwner::Theirs(left) => Ok(Decision::Held(left)),
            RowOwner::Ours => {
                if let Some(row) = &row {
                    self.extend(row, name, lease)?;
                }
                // The tokens reserved by the first attempt may be in use, so we do not hand them out again.
                Ok(Decision::Granted(row.and_then(|row| row.token), 0))
            }
            RowOwner::Free => self.take(name, &owner, lease, spare),
        }
    }

    /// Grants a lock that is free.
    pub(crate) fn take(
        &self,
        name: &str,
        owner: &str,
        lease: Duration,
        spare: u32,
    ) -> Result<Decision> {
        let (token, spare) = match self.next_token(spare)? {
            Ok(next) => next,
            Err(value) => return Ok(Decision::NoToken(value)),
        };
        let revision = self.row(name)?.map_or(1, |row| row.next_revision());
        // Those of a row of this clock too: processes of other clocks have seen it.
        self.forget_sights("locks", name)?;
        self.connection
            .prepare_cached("REPLACE INTO locks (name, owner, revision, lease, ends, domain, token, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
            .execute(params![name, owner, revision, nanos(lease), self.now.plus(lease), self.now.domain, token, millis(SystemTime::now())])?;
        self.seen.forget(name);
        Ok(Decision::Granted(Some(token), spare))
    }

    /// Returns the next token, and how many tokens after it were reserved (zero if the counter would overflow). The
    /// counter is shared by all names and never set back, so each token is larger than all before. Returns the
    /// counter's content as an error if it is no valid counter: any user with write access to the file may have changed
    /// it.
    pub(crate) fn next_token(&self, spare: u32) -> Result<std::result::Result<(i64, u32), String>> {
        let last = match self.counter()? {
            Ok(last) => last,
            Err(value) => return Ok(Err(value)),
        };
        let token = last + 1;
        let (newest, spare) = match token.checked_add(i64::from(spare)) {
            Some(newest) => (newest, spare),
            None => (token, 0),
        };
        self.connection
            .prepare_cached("UPDATE counter SET token = ?1")?
            .execute([newest])?;
        Ok(Ok((token, spare)))
    }

    /// The newest token of all names that was given out or reserved. The error of the inner result is the counter's
    /// content, if no token can follow it.
    pub(crate) fn counter(&self) -> Result<std::result::Result<i64, String>> {
        let counter = self
            .connection
            .prepare_cached("SELECT token FROM counter")?
            .query_row([], |row| row.get::<_, Value>(0))
            .optional()?;
        Ok(match counter {
            Some(Value::Integer(last)) if (0..i64::MAX).contains(&last) => Ok(last),
            other => Err(shown(other)),
        })
    }

    /// Raises the counter to `newest`, unless it is there or beyond.
    pub(crate) fn raise_counter(&self, newest: i64) -> Result<std::result::Result<i64, String>> {
        let last = match self.counter()? {
            Ok(last) if last < newest => newest,
            enough => return Ok(enough),
        };
        self.connection
            .prepare_cached("UPDATE counter SET token = ?1")?
            .execute([last])?;
        Ok(Ok(last))
    }

    /// The end of the lease never moves backwards. A grant that another process has made has the time of its clock.
    fn extend(&self, row: &Row, name: &str, lease: Duration) -> Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE locks SET revision = ?5, lease = max(lease, ?3), domain = ?6, \
                 ends = CASE WHEN domain = ?6 THEN max(ends, ?4) ELSE ?4 END WHERE name = ?1 AND owner = ?2",
            )?
            .execute(params![name, row.owner, nanos(lease), self.now.plus(lease), row.next_revision(), self.now.domain])?;
        Ok(())
    }

    /// Returns false if this ticket does not hold the lock any more.
    pub(crate) fn renew(&self, renewal: &Renewal) -> Result<bool> {
        if renewal.ticket.kind.is_read_write() {
            return self.renew_side(renewal);
        }
        if renewal.ticket.kind.is_permits() {
            return self.renew_permits(renewal);
        }
        let (name, owner) = (
            renewal.ticket.name.as_str(),
            renewal.ticket.owner.to_string(),
        );
        let row = self.row(name)?;
        let ours = self.owner_of_row(row.as_ref(), name, &owner) == RowOwner::Ours;
        match row.filter(|_| ours) {
            Some(row) => self.extend(&row, name, renewal.lease).map(|()| true),
            None => Ok(false),
        }
    }

    pub(crate) fn release(&self, ticket: &Ticket) -> Result<Released> {
        if ticket.kind.is_read_write() {
            return self.release_side(ticket);
        }
        if ticket.kind.is_permits() {
            return self.release_permits(ticket);
        }
        let (name, owner) = (ticket.name.as_str(), ticket.owner.to_string());
        // One that cannot be read is deleted too, or nobody would get the lock any more. Nobody knows when its lease ends.
        let row = unless_unreadable(self.row(name))?.flatten();
        let ours = self.owner_of_row(row.as_ref(), name, &owner) == RowOwner::Ours;
        self.connection
            .prepare_cached("DELETE FROM locks WHERE name = ?1 AND owner = ?2")?
            .execute([name, owner.as_str()])?;
        // An expired row of this owner is deleted too, but only a live one counts as a release.
        Ok(if ours {
            Released::Freed
        } else {
            Released::NotHeld
        })
    }

    /// Releases, and leaves a tombstone so that a later attempt of the ticket has no effect. A place in a queue is given up.
    pub(crate) fn withdraw(&self, ticket: &Ticket) -> Result<Released> {
        self.leave_queue(ticket.owner.text())?;
        if self.seen.sweeps_tombstones(self.now.stamp) {
            self.sweep("withdrawn")?;
        }
        self.connection
            .prepare_cached("REPLACE INTO withdrawn (owner, ends, domain) VALUES (?1, ?2, ?3)")?
            .execute(params![
                ticket.owner.to_string(),
                self.now.plus(WITHDRAWN_TTL),
                self.now.domain
            ])?;
        self.release(ticket)
    }

    pub(crate) fn is_withdrawn(&self, owner: &str) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM withdrawn WHERE owner = ?1")?
            .exists([owner])
    }

    pub(crate) fn force_release(&self, name: &Name) -> Result<bool> {
        let name = name.as_str();
        let is_held =
            |row: Option<Row>| self.owner_of_row(row.as_ref(), name, "") != RowOwner::Free;
        // Nobody gets the lock while its row cannot be read.
        let mut held = unless_unreadable(self.row(name))?.is_none_or(is_held);
        self.connection
            .prepare_cached("DELETE FROM locks WHERE name = ?1")?
            .execute([name])?;
        self.remove_holders(name)?;
        held |= self.take_back_permits(name)?;
        self.seen.forget(name);
        Ok(held)
    }

    pub(crate) fn newest_token(&self, name: &str) -> Result<Option<i64>> {
        self.connection
            .prepare_cached("SELECT token FROM locks WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
            .optional()
    }

    /// Returns up to `most` names in order, held or not, that come after `after`.
    pub(crate) fn names(&self, most: i64, after: &str) -> Result<Vec<String>> {
        let all = if self.has_permits()? {
            "SELECT name FROM (SELECT name FROM locks UNION SELECT name FROM permits WHERE held = 1) \
             WHERE name > ?2 ORDER BY name LIMIT ?1"
        } else {
            "SELECT name FROM locks WHERE name > ?2 ORDER BY name LIMIT ?1"
        };
        self.connection
            .prepare_cached(all)?
            .query_map(params![most, after], |row| row.get(0))?
            .collect()
    }

    pub(crate) fn announce(
        &self,
        client: &ClientId,
        info: &ClientInfo,
        ttl: Duration,
    ) -> Result<()> {
        self.sweep("clients")?;
        self.sweep("locks")?;
        if self.has_queue()? {
            self.sweep("waiters")?;
        }
        if self.has_sides()? {
            self.sweep("sides")?;
        }
        if self.has_permits()? {
            self.sweep("permits")?;
        }
        self.connection
            .prepare_cached("REPLACE INTO clients (client, host, pid, program, since, ends, domain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
            .execute(params![client.as_str(), info.host, info.pid, info.program, millis(info.since), self.now.plus(ttl), self.now.domain])?;
        if info.user.is_some() && self.has_users()? {
            self.connection
                .prepare_cached("UPDATE clients SET os_user = ?2 WHERE client = ?1")?
                .execute(params![client.as_str(), info.user])?;
        }
        Ok(())
    }

    /// Whether there is a column for the user. A file of an earlier tidelock has none.
    fn has_users(&self) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM pragma_table_info('clients') WHERE name = 'os_user'")?
            .exists([])
    }

    pub(crate) fn retract(&self, client: &ClientId) -> Result<()> {
        self.connection
            .prepare_cached("DELETE FROM clients WHERE client = ?1")?
            .execute([client.as_str()])?;
        Ok(())
    }

    pub(crate) fn client(&self, client: &str) -> Result<Option<ClientInfo>> {
        let user = if self.has_users()? { "os_user" } else { "NULL" };
        self.connection
            .prepare_cached(&format!(
                "SELECT host, pid, program, since, {user} FROM clients WHERE client = ?1"
            ))?
            .query_row([client], |row| {
                let since = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0);
                let (host, program): (String, String) = (row.get(0)?, row.get(2)?);
                let info = ClientInfo::new(host, row.get(1)?, program, since_epoch(since));
                Ok(info.run_by(row.get::<_, Option<String>>(4)?))
            })
            .optional()
    }

    /// Deletes expired rows. Tombstones, client details and waiters for fair locks of another clock are deleted after they
    /// were seen unchanged for as long as they are valid. Another boot id proves nothing: a container may have one of its
    /// own, and its processes live. A lock row of another clock stays, as does a holder of a side or of permits: only a
    /// waiter that watches it knows when it may be taken.
    fn sweep(&self, table: &str) -> Result<()> {
        let Now { stamp, domain } = self.now;
        self.connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE domain = ?1 AND ends <= ?2 AND typeof(ends) = 'integer'"
            ))?
            .execute(params![domain, stamp])?;
        match table {
            "withdrawn" => self.sweep_foreign(table, "owner", WITHDRAWN_TTL)?,
            "clients" => self.sweep_foreign(table, "client", CLIENT_INFO_TTL)?,
            "waiters" => self.sweep_foreign(table, "owner", ALIVE)?,
            _ => {}
        }
        self.sweep_sights(table)
    }

    /// Deletes the rows of other clocks that were seen unchanged for `valid`: their processes have ended, or would have
    /// written them again.
    fn sweep_foreign(&self, table: &str, key: &str, valid: Duration) -> Result<()> {
        let all = format!(
            "SELECT {key}, ends, domain FROM {table} WHERE domain <> ?1 LIMIT {MOST_SWEPT}"
        );
        let rows: Vec<(String, i64, String)> = self
            .connection
            .prepare_cached(&all)?
            .query_map([self.now.domain], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            // One that another program has changed stays. It must not keep the others from being swept, nor fail the
            // withdrawal or the announcement that sweeps.
            .filter_map(|row| unless_unreadable(row).transpose())
            .collect::<Result<_>>()?;
        for (id, ends, domain) in rows {
            let since = self.first_seen(table, &id, &domain, ends)?;
            if self.now.stamp.saturating_sub(since) >= nanos(valid) {
                let delete =
                    format!("DELETE FROM {table} WHERE {key} = ?1 AND ends = ?2 AND domain = ?3");
                self.connection
                    .prepare_cached(&delete)?
                    .execute(params![id, ends, domain])?;
                self.seen.forget_note(&note_of(table, &id));
            }
        }
        Ok(())
    }
}

pub(crate) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Formats a value that another program may have written, for use in an error.
fn shown(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Real(number)) => number.to_string(),
        Some(Value::Text(text)) => {
            let short: String = text.chars().take(64).collect();
            format!("\"{}\"", short.escape_debug())
        }
        Some(Value::Blob(_)) => "bytes".to_owned(),
    }
}

#[cfg(test)]
mod tests;
