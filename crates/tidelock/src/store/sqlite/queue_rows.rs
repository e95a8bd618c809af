//! The queue of fair locks in SQL: the rows of the waiters, and the hand-over to the first that is alive.
//!
//! The table exists from the first waiter on. A file of an older tidelock gets it in the same way, and that tidelock
//! goes on without it: see `docs/stores/sqlite.md`.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{OptionalExtension, Result, params};

use crate::store::Ticket;
use crate::store::beats::ALIVE;
use crate::store::fair_waiters::{COUNTED, FairPosition, QueueLook, unconfirmed};
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::rows::{RowOwner, nanos, note_of};

/// The table of the waiters, in the order of their places.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS waiters (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,     -- grows with each arrival
    owner TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    lease INTEGER NOT NULL,     -- nanoseconds
    ends INTEGER NOT NULL,      -- alive until: nanoseconds of the clock named by domain
    domain TEXT NOT NULL,
    PRIMARY KEY (name, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiters_of_client ON waiters (name, client);
";

/// The row of a waiter.
struct WaiterRow {
    owner: String,
    lease: i64,
    ends: i64,
    domain: String,
}

impl LockTransaction<'_> {
    /// Whether there are waiters of any fair lock. A file has no table until there were some.
    pub(crate) fn has_queue(&self) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'waiters'")?
            .exists([])
    }

    pub(crate) fn has_place(&self, owner: &str) -> Result<bool> {
        Ok(self.has_queue()?
            && self
                .connection
                .prepare_cached("SELECT 1 FROM waiters WHERE owner = ?1")?
                .exists([owner])?)
    }

    /// As [`attempt`](Self::attempt), for a fair lock.
    pub(crate) fn attempt_fair(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
    ) -> Result<Decision> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let row = self.row(name)?;
        let mut row_owner = self.owner_of_row(row.as_ref(), name, owner);
        if row_owner == RowOwner::Ours || self.is_withdrawn(owner)? || self.is_semaphore(name)? {
            return self.attempt(ticket, lease, 0);
        }
        if row_owner == RowOwner::Free && self.has_sides_of(name)? {
            // Those of a read-write lock that came first have their turn first.
            self.take_place(ticket, lease, position)?;
            self.serve(name)?;
            row_owner = self.owner_of_row(self.row(name)?.as_ref(), name, owner);
            if row_owner == RowOwner::Ours {
                return self.attempt(ticket, lease, 0);
            }
        }
        if row_owner == RowOwner::Free {
            match self.first_waiter(name)? {
                Some(first) if first.owner != owner => {
                    if let Decision::NoToken(value) = self.grant(name, &first)? {
                        return Ok(Decision::NoToken(value));
                    }
                }
                _ => {
                    self.leave_queue(owner)?;
                    return self.attempt(ticket, lease, 0);
                }
            }
        }
        self.take_place(ticket, lease, position)?;
        let left = self.held_by_other(name, owner)?;
        Ok(Decision::Held(left.unwrap_or_default()))
    }

    /// Puts the waiter into the queue, unless it has a place. Returns the remaining time if another owner holds the lock.
    /// Otherwise changes nothing.
    pub(crate) fn wait_behind_holder(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
    ) -> Result<Option<Duration>> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let held = self.held_by_other(name, owner)?;
        if held.is_none() || self.is_withdrawn(owner)? {
            return Ok(None);
        }
        self.take_place(ticket, lease, position)?;
        Ok(held)
    }

    /// Puts the waiter into the queue, unless it has a place.
    fn take_place(&self, ticket: &Ticket, lease: Duration, position: FairPosition) -> Result<()> {
        if position == FairPosition::None {
            return Ok(());
        }
        if !self.has_queue()? {
            self.connection.execute_batch(TABLE)?;
        }
        let owner = &ticket.owner;
        let place = self.next_place(ticket.name.as_str(), position)?;
        self.connection
            .prepare_cached(
                "INSERT OR IGNORE INTO waiters (name, place, owner, client, lease, ends, domain) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                ticket.name.as_str(),
                place,
                owner.text(),
                owner.client(),
                nanos(lease),
                self.now.plus(ALIVE),
                self.now.domain
            ])
            .map(drop)
    }

    /// The place for a new waiter. The places of fair locks and of read-write locks are in one order.
    pub(crate) fn next_place(&self, name: &str, position: FairPosition) -> Result<i64> {
        let mut places = Vec::new();
        for (exists, table) in [(self.has_queue()?, "waiters"), (self.has_sides()?, "sides")] {
            if exists {
                places.push(format!("SELECT place FROM {table} WHERE name = ?1"));
            }
        }
        let next = if position == FairPosition::First {
            "coalesce(min(place), 0) - 1"
        } else {
            "coalesce(max(place), 0) + 1"
        };
        let all = places.join(" UNION ALL ");
        self.connection
            .prepare_cached(&format!("SELECT {next} FROM ({all})"))?
            .query_row([name], |row| row.get(0))
    }

    /// Removes the waiter from the queue.
    pub(crate) fn leave_queue(&self, owner: &str) -> Result<()> {
        if self.has_queue()? {
            self.connection
                .prepare_cached("DELETE FROM waiters WHERE owner = ?1")?
                .execute([owner])?;
        }
        Ok(())
    }

    /// Grants a free lock to the first waiter that is alive. Returns its owner.
    pub(crate) fn hand_over(&self, name: &str) -> Result<Option<String>> {
        let Some(first) = self.first_waiter(name)? else {
            return Ok(None);
        };
        if self.owner_of_row(self.row(name)?.as_ref(), name, "") != RowOwner::Free {
            return Ok(None);
        }
        // Without a next token the lock stays free, and the attempt of the waiter says why.
        let granted = matches!(self.grant(name, &first)?, Decision::Granted(..));
        Ok(granted.then_some(first.owner))
    }

    /// Whether anybody waits for a fair lock, for a side or for permits of this name.
    pub(crate) fn has_waiters(&self, name: &str) -> Result<bool> {
        let any = |sql: &str| self.connection.prepare_cached(sql)?.exists([name]);
        Ok(
            (self.has_queue()? && any("SELECT 1 FROM waiters WHERE name = ?1")?)
                || (self.has_sides()?
                    && any("SELECT 1 FROM sides WHERE name = ?1 AND held_as IS NULL")?)
                || (self.has_permits()?
                    && any("SELECT 1 FROM permits WHERE name = ?1 AND held = 0")?),
        )
    }

    /// Grants a free lock to a waiter. The grant is not confirmed: its owner does not know of it.
    fn grant(&self, name: &str, first: &WaiterRow) -> Result<Decision> {
        let lease = Duration::from_nanos(u64::try_from(first.lease).unwrap_or(0));
        let granted = self.take(name, &first.owner, unconfirmed(lease), 0)?;
        if matches!(granted, Decision::Granted(..)) {
            self.leave_queue(&first.owner)?;
        }
        Ok(granted)
    }

    /// The first waiter that is alive. Those before it are removed.
    fn first_waiter(&self, name: &str) -> Result<Option<WaiterRow>> {
        if !self.has_queue()? {
            return Ok(None);
        }
        loop {
            let first = self
                .connection
                .prepare_cached(
                    "SELECT owner, lease, ends, domain FROM waiters WHERE name = ?1 ORDER BY place LIMIT 1",
                )?
                .query_row([name], waiter)
                .optional()?;
            let Some(first) = first else {
                return Ok(None);
            };
            if self.is_alive(&first)? {
                return Ok(Some(first));
            }
            self.leave_queue(&first.owner)?;
            self.seen.forget_note(&note_of("waiters", &first.owner));
        }
    }

    /// A time of another clock means nothing to us: such a waiter counts as alive from the first time we saw it in its
    /// current state.
    fn is_alive(&self, waiter: &WaiterRow) -> Result<bool> {
        let row = ("waiters", &*waiter.owner);
        let left = self.left_until(row, &waiter.domain, waiter.ends, nanos(ALIVE))?;
        Ok(!left.is_zero())
    }

    /// Shows that all waiters of this client for this lock are alive, and removes those of other clients that are not.
    pub(crate) fn show_alive(&self, name: &str, client: &str) -> Result<()> {
        let mut tables = Vec::new();
        if self.has_queue()? {
            tables.push(("waiters", ""));
        }
        if self.has_sides()? {
            tables.push(("sides", "AND held_as IS NULL"));
        }
        if self.has_permits()? {
            tables.push(("permits", "AND held = 0"));
        }
        for (table, waits) in tables {
            self.connection
                .prepare_cached(&format!(
                    "UPDATE {table} SET ends = ?3, domain = ?4 WHERE name = ?1 AND client = ?2 {waits}"
                ))?
                .execute(params![name, client, self.now.plus(ALIVE), self.now.domain])?;
            self.connection
                .prepare_cached(&format!(
                    "DELETE FROM {table} WHERE name = ?1 AND domain = ?2 AND ends <= ?3 {waits}"
                ))?
                .execute(params![name, self.now.domain, self.now.stamp])?;
        }
        Ok(())
    }

    /// The queue, as this client sees it, and whether the first waiter may have the lock now. Only reads.
    pub(crate) fn look_at_queue(&self, name: &str, client: &str) -> Result<(QueueLook, bool)> {
        if self.waits_for_permits(name, client)? {
            return self.look_at_permits(name, client);
        }
        if self.has_sides_of(name)? {
            return self.look_at_sides(name, client);
        }
        let look = self.look_at_fair_queue(name, client)?;
        let due = look.left.is_zero() && !look.waiting.is_empty();
        Ok((look, due))
    }

    fn look_at_fair_queue(&self, name: &str, client: &str) -> Result<QueueLook> {
        let left = self.held_by_other(name, "")?.unwrap_or_default();
        if !self.has_queue()? {
            return Ok(QueueLook {
                left,
                ..QueueLook::default()
            });
        }
        let waiting = self
            .connection
            .prepare_cached("SELECT owner FROM waiters WHERE name = ?1 AND client = ?2")?
            .query_map([name, client], |row| row.get(0))?
            .collect::<Result<HashSet<String>>>()?;
        let ahead = self
            .connection
            .prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM waiters WHERE name = ?1 AND place < \
                 (SELECT min(place) FROM waiters WHERE name = ?1 AND client = ?2) LIMIT ?3)",
            )?
            .query_row(params![name, client, COUNTED], |row| row.get(0))?;
        Ok(QueueLook {
            waiting,
            ahead,
            left,
        })
    }

    /// The owners of all waiters that are alive, in their order.
    pub(crate) fn queue(&self, name: &str) -> Result<Vec<String>> {
        if !self.has_queue()? {
            return Ok(Vec::new());
        }
        let waiters = self
            .connection
            .prepare_cached(
                "SELECT owner, lease, ends, domain FROM waiters WHERE name = ?1 ORDER BY place",
            )?
            .query_map([name], waiter)?
            .collect::<Result<Vec<_>>>()?;
        let mut alive = Vec::new();
        for waiter in waiters {
            if self.is_alive(&waiter)? {
                alive.push(waiter.owner);
            }
        }
        Ok(alive)
    }
}

fn waiter(row: &rusqlite::Row<'_>) -> Result<WaiterRow> {
    Ok(WaiterRow {
        owner: row.get(0)?,
        lease: row.get(1)?,
        ends: row.get(2)?,
        domain: row.get(3)?,
    })
}

#[cfg(test)]
mod tests;
