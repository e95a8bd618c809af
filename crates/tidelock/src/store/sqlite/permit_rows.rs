//! Semaphores in SQL: the number of permits of each, and a row for each holder and each waiter, in the order of their
//! arrival.
//!
//! How many permits are available is stored nowhere. It is the number of all, less those of the holders whose lease has
//! not ended. So nothing that comes twice, or late, can give back a permit too many.
//!
//! The tables exist from the first attempt or number on. An older tidelock goes on without them: see
//! `docs/stores/sqlite.md`.

use std::time::Duration;

use rusqlite::{OptionalExtension, Result, params};

use crate::store::Ticket;
use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::permit_order::{PermitTurn, decide};
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::rows::{nanos, note_of};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS semaphores (
    name TEXT NOT NULL PRIMARY KEY,
    total INTEGER NOT NULL      -- how many permits there are, those that are held included
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS permits (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,     -- grows with each arrival
    owner TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    permits INTEGER NOT NULL,   -- how many it has, or waits for
    held INTEGER NOT NULL,      -- 1: a holder, 0: a waiter
    lease INTEGER NOT NULL,     -- nanoseconds
    ends INTEGER NOT NULL,      -- a holder: its deadline; a waiter: alive until. Nanoseconds of the clock named by domain
    domain TEXT NOT NULL,
    PRIMARY KEY (name, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS permits_of_client ON permits (name, client);
";

/// A holder of permits, or a waiter for some.
#[derive(Debug)]
pub(crate) struct PermitRow {
    pub(crate) owner: String,
    pub(crate) client: String,
    pub(crate) permits: u16,
    pub(crate) is_held: bool,
    lease: i64,
    ends: i64,
    domain: String,
    /// How long it still counts, as far as we know.
    pub(crate) left: Duration,
}

impl PermitRow {
    /// The lease that a waiter has asked for.
    pub(crate) fn asked(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.lease).unwrap_or(0))
    }
}

/// The holders and waiters of a semaphore, each in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct PermitQueue {
    /// `None`: the semaphore has no number yet.
    pub(crate) total: Option<i64>,
    pub(crate) holders: Vec<PermitRow>,
    pub(crate) waiters: Vec<PermitRow>,
    /// Owners whose lease has ended, or whose process has shown no life.
    pub(crate) dead: Vec<String>,
}

impl PermitQueue {
    pub(crate) fn has_holder(&self, owner: &str) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
    }

    pub(crate) fn has_waiter(&self, owner: &str) -> bool {
        self.waiters.iter().any(|waiter| waiter.owner == owner)
    }

    pub(crate) fn held(&self) -> i64 {
        let held = self.holders.iter().map(|holder| i64::from(holder.permits));
        held.sum()
    }

    /// The waiters that get their permits now.
    pub(crate) fn served(&self) -> impl Iterator<Item = &PermitRow> {
        let turns = self.turns(self.waiters.iter().map(|waiter| waiter.permits));
        let served = self.waiters.iter().zip(turns);
        served
            .filter(|(_, turn)| *turn == PermitTurn::Gets)
            .map(|(waiter, _)| waiter)
    }

    /// Whether nobody would get permits if a ticket for so many came to this position.
    pub(crate) fn keeps_out(&self, permits: u16, position: FairPosition) -> bool {
        let waiters = self.waiters.iter().map(|waiter| waiter.permits);
        let turns = match position {
            FairPosition::First => self.turns([permits].into_iter().chain(waiters)),
            FairPosition::None | FairPosition::Last => self.turns(waiters.chain([permits])),
        };
        !turns.contains(&PermitTurn::Gets)
    }

    fn turns(&self, waiters: impl Iterator<Item = u16>) -> Vec<PermitTurn> {
        decide(self.total.unwrap_or(0), self.held(), waiters)
    }

    /// How long it takes until the first lease ends. `None`: no permit is held.
    pub(crate) fn first_end(&self) -> Option<Duration> {
        self.holders.iter().map(|holder| holder.left).min()
    }
}

impl LockTransaction<'_> {
    /// Whether any semaphore was ever used. A file has no tables until then.
    pub(crate) fn has_permits(&self) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'permits'")?
            .exists([])
    }

    pub(crate) fn make_permits(&self) -> Result<()> {
        if self.has_permits()? {
            return Ok(());
        }
        self.connection.execute_batch(TABLES)
    }

    /// How many permits a semaphore has. `None`: it has no number, or the name is no semaphore.
    pub(crate) fn total_permits(&self, name: &str) -> Result<Option<i64>> {
        if !self.has_permits()? {
            return Ok(None);
        }
        self.connection
            .prepare_cached("SELECT total FROM semaphores WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
            .optional()
    }

    pub(crate) fn is_semaphore(&self, name: &str) -> Result<bool> {
        Ok(self.total_permits(name)?.is_some())
    }

    pub(crate) fn set_total_permits(&self, name: &str, total: i64) -> Result<()> {
        self.connection
            .prepare_cached("REPLACE INTO semaphores (name, total) VALUES (?1, ?2)")?
            .execute(params![name, total])
            .map(drop)
    }

    /// The holders and waiters of a semaphore. Only reads.
    pub(crate) fn permit_queue(&self, name: &str) -> Result<PermitQueue> {
        let mut queue = PermitQueue::default();
        if !self.has_permits()? {
            return Ok(queue);
        }
        queue.total = self.total_permits(name)?;
        let all = "SELECT owner, client, permits, held, lease, ends, domain FROM permits WHERE name = ?1 ORDER BY place";
        for row in self.permit_rows(all, name)? {
            if row.left.is_zero() {
                queue.dead.push(row.owner);
            } else if row.is_held {
                queue.holders.push(row);
            } else {
                queue.waiters.push(row);
            }
        }
        Ok(queue)
    }

    /// The row of one owner, unless it no longer counts. Only reads.
    pub(crate) fn permits_of(&self, owner: &str) -> Result<Option<PermitRow>> {
        let one = "SELECT owner, client, permits, held, lease, ends, domain FROM permits WHERE owner = ?1";
        let own = self.permit_rows(one, owner)?.pop();
        Ok(own.filter(|own| !own.left.is_zero()))
    }

    fn permit_rows(&self, select: &str, key: &str) -> Result<Vec<PermitRow>> {
        self.connection
            .prepare_cached(select)?
            .query_map([key], |row| {
                let mut entry = PermitRow {
                    owner: row.get(0)?,
                    client: row.get(1)?,
                    permits: row.get(2)?,
                    is_held: row.get(3)?,
                    lease: row.get(4)?,
                    ends: row.get(5)?,
                    domain: row.get(6)?,
                    left: Duration::ZERO,
                };
                let foreign = if entry.is_held {
                    entry.lease
                } else {
                    nanos(ALIVE)
                };
                let row = ("permits", &*entry.owner);
                entry.left = self.left_until(row, &entry.domain, entry.ends, foreign)?;
                Ok(entry)
            })?
            .collect()
    }

    /// Puts the ticket into the queue, unless it has a place.
    pub(crate) fn take_permit_place(
        &self,
        ticket: &Ticket,
        permits: u16,
        lease: Duration,
        position: FairPosition,
    ) -> Result<()> {
        let next = if position == FairPosition::First {
            "coalesce(min(place), 0) - 1"
        } else {
            "coalesce(max(place), 0) + 1"
        };
        let owner = &ticket.owner;
        self.connection
            .prepare_cached(&format!(
                "INSERT OR IGNORE INTO permits (name, place, owner, client, permits, held, lease, ends, domain) \
                 SELECT ?1, {next}, ?2, ?3, ?4, 0, ?5, ?6, ?7 FROM permits WHERE name = ?1"
            ))?
            .execute(params![
                ticket.name.as_str(),
                owner.text(),
                owner.client(),
                permits,
                nanos(lease),
                self.now.plus(ALIVE),
                self.now.domain
            ])
            .map(drop)
    }

    /// Removes a holder or a waiter.
    pub(crate) fn remove_permits(&self, owner: &str) -> Result<()> {
        self.seen.forget_note(&note_of("permits", owner));
        self.connection
            .prepare_cached("DELETE FROM permits WHERE owner = ?1")?
            .execute([owner])
            .map(drop)
    }

    /// Removes all holders; the waiters keep their places. Returns whether the lease of any had not ended.
    pub(crate) fn take_back_permits(&self, name: &str) -> Result<bool> {
        // One that cannot be read is removed too.
        let queue = unless_unreadable(self.permit_queue(name))?;
        let was_held = queue.is_none_or(|queue| !queue.holders.is_empty());
        if self.has_permits()? {
            self.connection
                .prepare_cached("DELETE FROM permits WHERE name = ?1 AND held = 1")?
                .execute([name])?;
        }
        Ok(was_held)
    }

    /// Makes a waiter a holder.
    pub(crate) fn hold_permits(&self, owner: &str, lease: Duration) -> Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE permits SET held = 1, lease = ?2, ends = ?3, domain = ?4 WHERE owner = ?1",
            )?
            .execute(params![
                owner,
                nanos(lease),
                self.now.plus(lease),
                self.now.domain
            ])
            .map(drop)
    }

    /// The end of the lease never moves backwards. A grant that another process has made has the time of its clock.
    pub(crate) fn extend_permits(&self, owner: &str, lease: Duration) -> Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE permits SET lease = max(lease, ?2), domain = ?4, \
                 ends = CASE WHEN domain = ?4 THEN max(ends, ?3) ELSE ?3 END WHERE owner = ?1",
            )?
            .execute(params![
                owner,
                nanos(lease),
                self.now.plus(lease),
                self.now.domain
            ])
            .map(drop)
    }
}
