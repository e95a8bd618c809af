//! Read-write locks in SQL: a row for each holder and each waiter, in the order of their arrival.
//!
//! One row of `locks` stands for all holders of a name. It lasts as long as the longest of their leases, so a lock
//! without sides waits for it like for any other holder; an older tidelock does too. A holder has the lock only while
//! the row that it entered under stands there: if another client removes or replaces that row, all holders are lost.
//!
//! The table exists from the first attempt on. An older tidelock goes on without it: see `docs/stores/sqlite.md`.

use std::time::{Duration, SystemTime};

use rusqlite::{Result, params};

use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::side_order::{STANDS_FOR_SIDES, entering};
use crate::store::sqlite::records::{LockTransaction, millis};
use crate::store::sqlite::rows::{Row, nanos, note_of};
use crate::store::{LockKind, OwnerId, Ticket};

/// The table of the holders and waiters, in the order of their places.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS sides (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,     -- grows with each arrival
    owner TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    reads INTEGER NOT NULL,     -- 1: a reader, 0: a writer
    lease INTEGER NOT NULL,     -- nanoseconds
    ends INTEGER NOT NULL,      -- a holder: its deadline; a waiter: alive until. Nanoseconds of the clock named by domain
    domain TEXT NOT NULL,
    held_as TEXT,               -- a holder: the owner in the row of locks that stands for it
    token INTEGER,              -- a holder: its token
    PRIMARY KEY (name, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sides_of_client ON sides (name, client);
";

/// A holder, or a waiter of a side or of a fair lock.
#[derive(Debug, Clone)]
pub(crate) struct QueuedRow {
    pub(crate) owner: String,
    pub(crate) client: String,
    pub(crate) kind: LockKind,
    pub(crate) lease: i64,
    ends: i64,
    domain: String,
    pub(crate) token: Option<i64>,
    pub(crate) held_as: Option<String>,
    /// How long it still counts, as far as we know.
    pub(crate) left: Duration,
}

impl QueuedRow {
    /// Whether it is a live waiter, or a holder that has the lock. `row`: that of the lock.
    fn counts_under(&self, row: Option<&Row>) -> bool {
        let stands = match &self.held_as {
            Some(held_as) => row.is_some_and(|row| row.owner == *held_as),
            None => true,
        };
        stands && !self.left.is_zero()
    }

    /// The lease that a waiter has asked for.
    pub(crate) fn asked(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.lease).unwrap_or(0))
    }
}

/// The holders and waiters of a name, each in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct SideQueue {
    pub(crate) holders: Vec<QueuedRow>,
    pub(crate) waiters: Vec<QueuedRow>,
    /// Owners whose lease has ended, or whose process has shown no life, and upgrades without their reader.
    pub(crate) dead: Vec<String>,
    /// For how long a lock without sides is held under the same name.
    pub(crate) held_without_sides: Option<Duration>,
}

impl SideQueue {
    pub(crate) fn holder(&self, owner: &str) -> Option<&QueuedRow> {
        self.holders.iter().find(|holder| holder.owner == owner)
    }

    pub(crate) fn has_waiter(&self, owner: &str) -> bool {
        self.waiters.iter().any(|waiter| waiter.owner == owner)
    }

    /// An upgrade whose reader does not hold the lock counts as dead. Otherwise it would keep out all others.
    fn drop_orphans(&mut self) {
        let Self {
            holders,
            waiters,
            dead,
            ..
        } = self;
        waiters.retain(|waiter| {
            let Some(reader) = OwnerId::upgraded(&waiter.owner) else {
                return true;
            };
            let stays = holders.iter().any(|holder| holder.owner == reader);
            if !stays {
                dead.push(waiter.owner.clone());
            }
            stays
        });
    }

    /// The waiters that enter now.
    pub(crate) fn entering(&self) -> Vec<&QueuedRow> {
        let numbers = self.numbers_entering(self.waiters.iter().map(as_entry));
        numbers.into_iter().map(|at| &self.waiters[at]).collect()
    }

    /// Whether nobody would enter if this ticket came to this position.
    pub(crate) fn keeps_out(&self, ticket: &Ticket, position: FairPosition) -> bool {
        let own = [(ticket.kind, ticket.owner.text())];
        let waiters = self.waiters.iter().map(as_entry);
        let entering = match position {
            FairPosition::First => self.numbers_entering(own.into_iter().chain(waiters)),
            FairPosition::None | FairPosition::Last => self.numbers_entering(waiters.chain(own)),
        };
        entering.is_empty()
    }

    fn numbers_entering<'a>(
        &'a self,
        waiters: impl Iterator<Item = (LockKind, &'a str)>,
    ) -> Vec<usize> {
        if self.held_without_sides.is_some() {
            return Vec::new();
        }
        entering(self.holders.iter().map(as_entry), waiters)
    }

    /// How long the lock is held. `None`: it is free.
    pub(crate) fn left(&self) -> Option<Duration> {
        let holders = self.holders.iter().map(|holder| holder.left);
        holders.chain(self.held_without_sides).max()
    }
}

fn as_entry(row: &QueuedRow) -> (LockKind, &str) {
    (row.kind, &row.owner)
}

/// Whether the owner in a row of `locks` stands for the holders of a read-write lock.
fn stands_for_sides(owner: &str) -> bool {
    owner.ends_with(STANDS_FOR_SIDES)
}

impl LockTransaction<'_> {
    /// Whether any read-write lock was ever used. A file has no table until then.
    pub(crate) fn has_sides(&self) -> Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'sides'")?
            .exists([])
    }

    /// Whether this name has holders or waiters of a side.
    pub(crate) fn has_sides_of(&self, name: &str) -> Result<bool> {
        Ok(self.has_sides()?
            && self
                .connection
                .prepare_cached("SELECT 1 FROM sides WHERE name = ?1")?
                .exists([name])?)
    }

    pub(crate) fn make_sides(&self) -> Result<()> {
        if self.has_sides()? {
            return Ok(());
        }
        self.connection.execute_batch(TABLE)
    }

    /// The holders and waiters of a name, those of a fair lock included. Only reads. The table of the sides must exist.
    pub(crate) fn side_queue(&self, name: &str) -> Result<SideQueue> {
        let row = self.row(name)?;
        let mut queue = SideQueue::default();
        for entry in self.queued_rows(name)? {
            if !entry.counts_under(row.as_ref()) {
                queue.dead.push(entry.owner);
            } else if entry.held_as.is_some() {
                queue.holders.push(entry);
            } else {
                queue.waiters.push(entry);
            }
        }
        queue.drop_orphans();
        let without_sides = row.filter(|row| !stands_for_sides(&row.owner));
        let left = without_sides.map(|row| row.left(name, self.now, self.seen));
        queue.held_without_sides = left.filter(|left| !left.is_zero());
        Ok(queue)
    }

    fn queued_rows(&self, name: &str) -> Result<Vec<QueuedRow>> {
        let sides = "SELECT owner, client, reads, lease, ends, domain, token, held_as, place FROM sides WHERE name = ?1";
        let fair = "SELECT owner, client, NULL, lease, ends, domain, NULL, NULL, place FROM waiters WHERE name = ?1";
        let all = if self.has_queue()? {
            format!("{sides} UNION ALL {fair} ORDER BY place, owner")
        } else {
            format!("{sides} ORDER BY place")
        };
        self.read_rows(&all, name)
    }

    /// The row of one owner, unless it no longer counts. Only reads.
    pub(crate) fn side_of(&self, name: &str, owner: &str) -> Result<Option<QueuedRow>> {
        let one = "SELECT owner, client, reads, lease, ends, domain, token, held_as FROM sides WHERE owner = ?1";
        let own = self.read_rows(one, owner)?.pop();
        let row = self.row(name)?;
        Ok(own.filter(|own| own.counts_under(row.as_ref())))
    }

    fn read_rows(&self, select: &str, key: &str) -> Result<Vec<QueuedRow>> {
        self.connection
            .prepare_cached(select)?
            .query_map([key], |row| {
                let (owner, reads): (String, Option<bool>) = (row.get(0)?, row.get(2)?);
                let mut entry = QueuedRow {
                    client: row.get(1)?,
                    kind: match reads {
                        Some(true) => LockKind::Read,
                        Some(false) if OwnerId::is_upgradeable(&owner) => LockKind::UpgradeableRead,
                        Some(false) => LockKind::Write,
                        None => LockKind::Fair,
                    },
                    owner,
                    lease: row.get(3)?,
                    ends: row.get(4)?,
                    domain: row.get(5)?,
                    token: row.get(6)?,
                    held_as: row.get(7)?,
                    left: Duration::ZERO,
                };
                entry.left = self.left_of(&entry)?;
                Ok(entry)
            })?
            .collect()
    }

    fn left_of(&self, entry: &QueuedRow) -> Result<Duration> {
        let table = if entry.kind.is_fair() {
            "waiters"
        } else {
            "sides"
        };
        let foreign = match entry.held_as {
            Some(_) => entry.lease,
            None => nanos(ALIVE),
        };
        self.left_until((table, &*entry.owner), &entry.domain, entry.ends, foreign)
    }

    /// How long a holder or a waiter counts. A time of another clock means nothing to us: such a row counts for `foreign`
    /// nanoseconds from the first time we saw it in its current state.
    pub(crate) fn left_until(
        &self,
        (table, owner): (&str, &str),
        domain: &str,
        ends: i64,
        foreign: i64,
    ) -> Result<Duration> {
        let ends = if domain == self.now.domain {
            ends
        } else {
            let since = self.first_seen(table, owner, domain, ends)?;
            since.saturating_add(foreign)
        };
        let left = ends.saturating_sub(self.now.stamp);
        Ok(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
    }

    /// Puts the ticket into the queue, unless it has a place.
    pub(crate) fn take_side_place(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
    ) -> Result<()> {
        let owner = &ticket.owner;
        let place = self.next_place(ticket.name.as_str(), position)?;
        self.connection
            .prepare_cached(
                "INSERT OR IGNORE INTO sides (name, place, owner, client, reads, lease, ends, domain) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                ticket.name.as_str(),
                place,
                owner.text(),
                owner.client(),
                ticket.kind.is_read(),
                nanos(lease),
                self.now.plus(ALIVE),
                self.now.domain
            ])
            .map(drop)
    }

    /// Removes a holder or a waiter.
    pub(crate) fn remove_side(&self, owner: &str) -> Result<()> {
        self.seen.forget_note(&note_of("sides", owner));
        self.connection
            .prepare_cached("DELETE FROM sides WHERE owner = ?1")?
            .execute([owner])
            .map(drop)
    }

    /// Removes the row of `locks` that stands for this holder, unless there is another holder.
    pub(crate) fn remove_row_of_last(&self, name: &str, owner: &str) -> Result<()> {
        self.connection
            .prepare_cached(
                "DELETE FROM locks WHERE name = ?1 AND owner = (SELECT held_as FROM sides WHERE owner = ?2) \
                 AND NOT EXISTS (SELECT 1 FROM sides WHERE name = ?1 AND owner <> ?2 AND held_as IS NOT NULL)",
            )?
            .execute([name, owner])
            .map(drop)
    }

    /// Removes all holders; the waiters keep their places.
    pub(crate) fn remove_holders(&self, name: &str) -> Result<()> {
        if !self.has_sides()? {
            return Ok(());
        }
        self.connection
            .prepare_cached("DELETE FROM sides WHERE name = ?1 AND held_as IS NOT NULL")?
            .execute([name])
            .map(drop)
    }

    /// Makes a waiter a holder.
    pub(crate) fn hold_side(
        &self,
        owner: &str,
        lease: Duration,
        held_as: &str,
        token: i64,
    ) -> Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE sides SET lease = ?2, ends = ?3, domain = ?4, held_as = ?5, token = ?6 WHERE owner = ?1",
            )?
            .execute(params![
                owner,
                nanos(lease),
                self.now.plus(lease),
                self.now.domain,
                held_as,
                token
            ])
            .map(drop)
    }

    /// The end of the lease never moves backwards. A grant that another process has made has the time of its clock.
    pub(crate) fn extend_side(&self, holder: &QueuedRow, lease: Duration) -> Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE sides SET lease = max(lease, ?2), domain = ?4, \
                 ends = CASE WHEN domain = ?4 THEN max(ends, ?3) ELSE ?3 END WHERE owner = ?1",
            )?
            .execute(params![
                holder.owner,
                nanos(lease),
                self.now.plus(lease),
                self.now.domain
            ])
            .map(drop)
    }

    /// Brings the row of `locks` that stands for the holders up to date. Removes it if there are none.
    pub(crate) fn show_holders(&self, name: &str, held_as: &str) -> Result<()> {
        let held = "SELECT owner, client, reads, lease, ends, domain, token, held_as FROM sides \
            WHERE name = ?1 AND held_as IS NOT NULL";
        let mut holders = self.read_rows(held, name)?;
        holders.retain(|row| row.held_as.as_deref() == Some(held_as) && !row.left.is_zero());
        self.seen.forget(name);
        let Some(left) = holders.iter().map(|holder| holder.left).max() else {
            return self
                .connection
                .prepare_cached("DELETE FROM locks WHERE name = ?1 AND owner = ?2")?
                .execute([name, held_as])
                .map(drop);
        };
        let lease = holders.iter().map(|holder| holder.lease).max();
        let token = holders.iter().filter_map(|holder| holder.token).max();
        let revision = self.row(name)?.map_or(1, |row| row.next_revision());
        self.connection
            .prepare_cached(
                "INSERT INTO locks (name, owner, revision, lease, ends, domain, token, since) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
                 ON CONFLICT (name) DO UPDATE SET \
                   since = CASE WHEN owner = excluded.owner THEN since ELSE excluded.since END, \
                   owner = excluded.owner, revision = excluded.revision, lease = excluded.lease, \
                   ends = excluded.ends, domain = excluded.domain, token = excluded.token",
            )?
            .execute(params![
                name,
                held_as,
                revision,
                lease.unwrap_or_default(),
                self.now.plus(left),
                self.now.domain,
                token.unwrap_or_default(),
                millis(SystemTime::now())
            ])
            .map(drop)
    }
}

/// The owner in `locks` under which this waiter and those that enter with it hold the lock.
pub(crate) fn holds_as(first: &str) -> String {
    format!("{first}{STANDS_FOR_SIDES}")
}
