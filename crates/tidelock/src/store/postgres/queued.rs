//! Fair and read-write locks of this store: its part of [`fair_waiters`](crate::store::fair_waiters).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::errors::unexpected;
use crate::store::fair_waiters::{
    COUNTED, FairPosition, FairWaiters, QueueLook, QueueTable, show_queue,
};
use crate::store::kinds::is_semaphore;
use crate::store::postgres::columns::{fencing, newest};
use crate::store::postgres::connection::{Connection, TextAnswer};
use crate::store::postgres::errors::{RequestError, withdrawn};
use crate::store::postgres::named_row::NamedRow;
use crate::store::postgres::queue_sql::{QueueSql, SEPARATOR};
use crate::store::postgres::schema::Sql;
use crate::store::postgres::wake::NotifyListener;
use crate::store::postgres::{inspect, tables};
use crate::store::side_order::{Follows, STANDS_FOR_SIDES, mode_of, turns_of};
use crate::store::{Attempt, AttemptRequest, Liveness, Name, Released, Ticket};
use crate::types::LostReason;

/// The pause before the next attempt while another transaction locks the row.
const ROW_TAKEN: Duration = Duration::from_millis(50);

/// The pause before the next look while a fence keeps everybody from a lock that is free. Nobody is told of its end.
const FENCED: Duration = Duration::from_millis(500);

/// The queue table, on a connection.
pub(crate) struct PostgresQueue {
    pub(crate) connection: Connection,
    pub(crate) sql: Arc<QueueSql>,
    /// The statements of a lock without a queue.
    pub(crate) plain: Arc<Sql>,
    pub(crate) listener: Arc<NotifyListener>,
}

impl QueueTable for PostgresQueue {
    async fn look(&self, name: &Name, client: &str, beat: bool) -> Result<QueueLook> {
        let (connection, sql, somebody) = (&self.connection, &self.sql, Liveness::default());
        let both = (&*self.plain, &**sql);
        let text = sql.look(name, client, beat, true);
        let mut answer = ask(connection, both, &somebody, &text).await;
        // A fence in a user's transaction allows no grant. The beat must not be rolled back with the grant: otherwise all
        // waiters would be dead once the fence was open for long, and their order would be lost.
        let is_fenced = answer.as_ref().is_err_and(RequestError::is_row_taken);
        if is_fenced {
            let text = sql.look(name, client, beat, false);
            answer = ask(connection, both, &somebody, &text).await;
        }
        let columns = answer.map_err(RequestError::error)?;
        let left = Duration::from_micros(columns.number(2)?);
        let left = if is_fenced && left.is_zero() {
            FENCED
        } else {
            left
        };
        let owners = columns.text(0)?.split(SEPARATOR);
        let waiting = owners.filter(|owner| !owner.is_empty());
        Ok(QueueLook {
            waiting: waiting.map(str::to_owned).collect(),
            ahead: turns_of(columns.text(1)?).min(COUNTED),
            left,
        })
    }

    fn is_told(&self) -> bool {
        self.listener.is_live()
    }
}

/// Sends one request. If a table of the queue is missing, creates it and sends the request again: a database of an older
/// tidelock, or one without such locks, has none.
async fn ask(
    connection: &Connection,
    (plain, sql): (&Sql, &QueueSql),
    liveness: &Liveness,
    text: &str,
) -> Result<TextAnswer, RequestError> {
    let made_by = ("a table of the fair and read-write locks", &*sql.make);
    tables::ask_and_make(connection, plain, made_by, liveness, text).await
}

/// Whether an attempt takes a place in the queue if the lock is not granted. A downgrade enters beside its writer.
fn takes_a_place(ask_for: &AttemptRequest) -> bool {
    FairPosition::of(ask_for) != FairPosition::None && ask_for.downgrade_of.is_none()
}

/// Whether there is a queue that this user may read. A user who has rights to locks without a queue only can still look
/// at them.
const SHOWS: &str = "SELECT coalesce(has_table_privilege(to_regclass($1), 'SELECT') \
    AND has_table_privilege(to_regclass($2), 'SELECT'), false)";

/// What an operation on a fair lock or on a side of a read-write lock needs.
pub(crate) struct QueuedLocks<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) sql: &'a QueueSql,
    /// The statements of a lock without a queue.
    pub(crate) plain: &'a Sql,
    pub(crate) listener: &'a Arc<NotifyListener>,
    pub(crate) waiters: &'a FairWaiters<PostgresQueue>,
    /// Whether the last release has seen the tables of the queue.
    pub(crate) has_queue: &'a AtomicBool,
    pub(crate) lease: Duration,
}

impl QueuedLocks<'_> {
    pub(crate) async fn attempt(self, ask_for: &AttemptRequest) -> Result<Attempt> {
        let ticket = &ask_for.ticket;
        // The listener has to hear before the attempt, or the looks poll.
        if ask_for.wants_wake() {
            self.listener.hears(self.connection.limit() / 2).await;
        }
        let wake = self.waiters.arm(ask_for);
        let (connection, both) = (self.connection, (self.plain, self.sql));
        let text = self.attempt_text(ask_for, true);
        let mut answer = ask(connection, both, &ask_for.liveness, &text).await;
        if answer.as_ref().is_err_and(RequestError::is_row_taken) && takes_a_place(ask_for) {
            // A fence in a user's transaction allows no grant, but a place.
            let text = self.attempt_text(ask_for, false);
            answer = ask(connection, both, &ask_for.liveness, &text).await;
        }
        let columns = match answer {
            // Another transaction locks the row: the attempt changed nothing. Without the wake the next one is the first
            // again.
            Err(failure) if failure.is_row_taken() => {
                return Ok(Attempt::held(None, self.row_taken(ask_for)));
            }
            answer => answer.map_err(RequestError::error)?,
        };
        match columns.number(3)? {
            0 => {}
            1 => return Err(withdrawn()),
            _ => return Err(is_semaphore()),
        }
        // Also if the ticket was granted: its reader may have been lost since, and others may have had the lock in between.
        if ask_for.upgrade_of.is_some() && columns.number(4)? == 0 {
            return Err(Error::lost(LostReason::Taken));
        }
        if columns.number(0)? == 0 {
            if ask_for.downgrade_of.is_some() {
                return Err(Error::lost(LostReason::Taken));
            }
            self.waiters.was_refused(ask_for);
            // The looks of this process notice the end of the holder's lease.
            return Ok(Attempt::held(wake, self.lease));
        }
        self.waiters.leave(&ticket.name, &ticket.owner);
        let token = i64::try_from(columns.number(2)?).ok().and_then(fencing);
        let token = token.ok_or_else(|| unexpected("a grant without a token"))?;
        Ok(Attempt::granted(token))
    }

    /// The pause before the next attempt while another transaction locks the row. One that takes a place has waited for the
    /// row itself, and with it what was sent behind it.
    fn row_taken(&self, ask_for: &AttemptRequest) -> Duration {
        if takes_a_place(ask_for) {
            self.connection.limit() / 2
        } else {
            ROW_TAKEN
        }
    }

    fn attempt_text(&self, ask_for: &AttemptRequest, serves: bool) -> String {
        let AttemptRequest { ticket, lease, .. } = ask_for;
        let position = FairPosition::of(ask_for);
        if ticket.kind.is_fair() {
            return self.sql.attempt_fair(ticket, *lease, position, serves);
        }
        let follows = Follows::of(ask_for);
        self.sql
            .attempt_side(ticket, *lease, position, follows, serves)
    }

    pub(crate) async fn release(self, ticket: &Ticket) -> Result<Released> {
        match self.end(ticket, false).await {
            // Nobody holds a lock without the table of the locks, or a side without that of the sides.
            Err(failure) if failure.is_no_table() => Ok(Released::NotHeld),
            released => released.map_err(RequestError::error),
        }
    }

    /// Releases a lock without a queue. Without the table nobody holds one.
    async fn release_row(&self, ticket: &Ticket) -> Result<Option<NamedRow>> {
        let asked = (self.connection).ask_named_for_ticket(ticket, &self.plain.release);
        match asked.await {
            Err(failure) if failure.is_no_table() => Ok(None),
            row => row.map_err(RequestError::error),
        }
    }

    /// Releases a lock without a queue, and hands it over if somebody waits in the queue of this name. The waiters for the
    /// lock without a queue would otherwise be faster every time. One request, if nobody waits in the queue.
    pub(crate) async fn release_plain(self, ticket: &Ticket) -> Result<Released> {
        let Self {
            connection, plain, ..
        } = self;
        if self.has_queue.load(Ordering::Relaxed) {
            let asked = connection.ask_named_for_ticket(ticket, &plain.release_unless_waited);
            let answer = match asked.await {
                Ok(Some(_)) => return Ok(Released::Freed),
                // Somebody waits, or the ticket does not hold the lock.
                Ok(None) => self.end(ticket, false).await,
                Err(failure) => Err(failure),
            };
            match answer {
                // A table is gone, or a right to it. Nothing has happened.
                Err(RequestError::Server(_)) => self.has_queue.store(false, Ordering::Relaxed),
                released => return released.map_err(RequestError::error),
            }
        }
        let Some(row) = self.release_row(ticket).await? else {
            return Ok(Released::NotHeld);
        };
        self.has_queue.store(row.is_true(2), Ordering::Relaxed);
        Ok(Released::Freed)
    }

    /// Withdraws a ticket for a lock without a queue. What it held is handed over, as by
    /// [`release_plain`](Self::release_plain).
    pub(crate) async fn withdraw_plain(self, ticket: &Ticket) -> Result<Released> {
        if let Some(ended) = self.while_queued(self.end(ticket, true)).await {
            return ended;
        }
        let Self {
            connection, plain, ..
        } = self;
        let row = tables::withdraw(connection, plain, ticket).await?;
        if let Some(row) = &row {
            self.has_queue.store(row.get(2), Ordering::Relaxed);
        }
        Ok(tables::released(row.as_ref()))
    }

    /// Frees a lock regardless of its owner, and hands it over if somebody waits in its queue. It is rare, and comes from
    /// clients that have released nothing. So it looks for the tables of the queue first. `seen`: only if it is held so.
    pub(crate) async fn force_release(self, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
        if seen.is_some_and(|seen| !seen.is_locked()) {
            return Ok(false);
        }
        if !self.has_queue.load(Ordering::Relaxed) && self.may_look().await? {
            self.has_queue.store(true, Ordering::Relaxed);
        }
        let freed = self.free(|serves| self.sql.force(name, seen, serves));
        if let Some(freed) = self.while_queued(freed).await {
            return Ok(freed? == Released::Freed);
        }
        let (connection, plain, name) = (self.connection, self.plain, name.as_str());
        let rows = match seen {
            None => {
                let params = [(&name as _, Type::TEXT)];
                tables::ask(connection, plain, &plain.force, &params).await
            }
            Some(seen) => {
                let owners: Vec<&str> = seen.owners().collect();
                let token = seen.token.map(newest);
                let params = [
                    (&name as _, Type::TEXT),
                    (&owners as _, Type::TEXT_ARRAY),
                    (&token as _, Type::INT8),
                ];
                tables::ask(connection, plain, &plain.force_if, &params).await
            }
        };
        Ok(!rows.map_err(RequestError::error)?.is_empty())
    }

    /// Runs a transaction that hands over, if there is a queue. `None`: there is none, and nothing has happened.
    async fn while_queued(
        &self,
        transaction: impl Future<Output = Result<Released, RequestError>>,
    ) -> Option<Result<Released>> {
        if !self.has_queue.load(Ordering::Relaxed) {
            return None;
        }
        match transaction.await {
            // A table is gone, or a right to it.
            Err(RequestError::Server(_)) => {
                self.has_queue.store(false, Ordering::Relaxed);
                None
            }
            ended => Some(ended.map_err(RequestError::error)),
        }
    }

    pub(crate) async fn withdraw(self, ticket: &Ticket) -> Result<Released> {
        self.waiters.leave(&ticket.name, &ticket.owner);
        match self.end(ticket, true).await {
            Err(failure) if failure.is_no_table() => self.withdraw_what_is_left(ticket).await,
            withdrawn => withdrawn.map_err(RequestError::error),
        }
    }

    /// Withdraws a ticket while a table is missing. An attempt that makes the table may still arrive, and has to find the
    /// mark.
    async fn withdraw_what_is_left(&self, ticket: &Ticket) -> Result<Released> {
        let row = tables::withdraw(self.connection, self.plain, ticket).await?;
        let held = tables::released(row.as_ref());
        // The tables of every lock are there now. If that of the waiters or that of the sides is missing, the ticket may have
        // left a place or a hold in the other one. A side leaves nothing among the waiters for fair locks.
        match self.end(ticket, ticket.kind.is_fair()).await {
            Ok(Released::NotHeld) => Ok(held),
            Err(failure) if failure.is_no_table() => Ok(held),
            ended => ended.map_err(RequestError::error),
        }
    }

    async fn end(&self, ticket: &Ticket, withdraws: bool) -> Result<Released, RequestError> {
        self.free(|serves| self.sql.end(ticket, withdraws, serves))
            .await
    }

    /// Sends a text that frees a lock. It is built with whether it also lets in those that are next.
    async fn free(&self, text: impl Fn(bool) -> String) -> Result<Released, RequestError> {
        let (connection, somebody) = (self.connection, Liveness::default());
        let deadline = connection.deadline();
        let answer = match connection.ask_text(&somebody, &text(true), deadline).await {
            // A fence in a user's transaction allows no grant, but a release. So does a missing table that only a grant needs:
            // the looks of those that wait make it, and let in who is next.
            Err(failure) if failure.is_row_taken() || failure.is_no_table() => {
                connection.ask_text(&somebody, &text(false), deadline).await
            }
            answer => answer,
        };
        let freed = answer?.number(0).map_err(RequestError::Classified)?;
        Ok(match freed {
            0 => Released::NotHeld,
            _ => Released::Freed,
        })
    }

    /// Whether there is a queue that this user may read.
    async fn may_look(&self) -> Result<bool> {
        let tables = [&self.sql.waiters, &self.sql.sides].map(|table| (table as _, Type::TEXT));
        let shows = self.connection.ask(SHOWS, &tables).await;
        let shows = shows.map_err(RequestError::error)?;
        Ok(shows.first().is_some_and(|row| row.get(0)))
    }

    /// Shows the waiters of a lock, and the holders of its sides instead of the row that stands for them.
    pub(crate) async fn show(self, name: &Name, snapshot: &mut Snapshot) -> Result<()> {
        if !self.may_look().await? {
            return Ok(());
        }
        let name = name.as_str();
        let params = [(&name as _, Type::TEXT)];
        let rows = self.connection.ask(&self.sql.queue, &params).await;
        let rows = rows.map_err(RequestError::error)?;
        let fair = rows.iter().filter(|row| row.get(1));
        show_queue(snapshot, fair.map(|row| row.get(0)).collect());
        let stands_for_sides = snapshot
            .holders
            .iter()
            .any(|holder| holder.owner.ends_with(STANDS_FOR_SIDES));
        let queued = stands_for_sides || !rows.is_empty();
        snapshot.waiters = queued.then_some(rows.len() as u64);
        if !stands_for_sides {
            return Ok(());
        }
        let rows = self.connection.ask(&self.sql.holders, &params).await;
        let holders = rows.map_err(RequestError::error)?;
        snapshot.holders = holders
            .iter()
            .map(|row| {
                let owner: String = row.get(0);
                let mode = mode_of(row.get(1), &owner);
                inspect::holder(owner, mode, row)
            })
            .collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
