//! The requests for permits of semaphores.

use tokio_postgres::types::Type;

use crate::error::Result;
use crate::snapshot::{Mode, PermitCount, Snapshot};
use crate::store::fair_waiters::FairPosition;
use crate::store::kinds::is_lock;
use crate::store::postgres::columns::duration;
use crate::store::postgres::errors::{RequestError, withdrawn};
use crate::store::postgres::permit_sql::PermitSql;
use crate::store::postgres::permit_table::{PermitLocks, ask};
use crate::store::postgres::schema::SEMAPHORE;
use crate::store::postgres::{Postgres, inspect, tables};
use crate::store::{
    Attempt, AttemptRequest, BoxFuture, Liveness, Name, OwnerId, Page, PermitChange, PermitCounter,
    Released, Ticket,
};

impl Postgres {
    pub(crate) async fn attempt_permits(
        &self,
        ask_for: &AttemptRequest,
        permits: u16,
    ) -> Result<Attempt> {
        let AttemptRequest { ticket, lease, .. } = ask_for;
        let PermitLocks { sql, waiters } = &*self.permits;
        // The listener has to hear before the attempt, or the looks poll.
        if ask_for.wants_wake() {
            self.listener.hears(self.connection.limit() / 2).await;
        }
        let wake = waiters.arm(ask_for);
        let text = sql.attempt_permits(ticket, permits, *lease, FairPosition::of(ask_for));
        let liveness = &ask_for.liveness;
        let answer = ask(&self.connection, &self.sql, sql, liveness, &text).await;
        let columns = match answer {
            // Another transaction keeps the row. What was sent behind this attempt has waited for it too.
            Err(failure) if failure.is_row_taken() => {
                return Ok(Attempt::held(None, self.connection.limit() / 2));
            }
            answer => answer.map_err(RequestError::error)?,
        };
        match columns.number(1)? {
            0 => {}
            1 => return Err(withdrawn()),
            _ => return Err(is_lock()),
        }
        if columns.number(0)? == 0 {
            waiters.was_refused(ask_for);
            // The looks of this process notice the end of a holder's lease.
            return Ok(Attempt::held(wake, self.lease));
        }
        waiters.leave(&ticket.name, &ticket.owner);
        Ok(Attempt::granted(None))
    }

    /// `withdraws`: later attempts of the ticket take no effect.
    pub(crate) async fn end_permits(&self, ticket: &Ticket, withdraws: bool) -> Result<Released> {
        let PermitLocks { sql, waiters } = &*self.permits;
        if withdraws {
            waiters.leave(&ticket.name, &ticket.owner);
        }
        let end =
            |withdraws| self.free_permits(move |serves| sql.end_permits(ticket, withdraws, serves));
        let mut ended = end(withdraws).await;
        if withdraws && ended.as_ref().is_err_and(RequestError::is_no_table) {
            // An attempt that makes the tables may still arrive, and has to find the mark.
            tables::withdraw(&self.connection, &self.sql, ticket).await?;
            // The tables of every lock are there now, so the missing one may have been one of them.
            ended = end(false).await;
        }
        match ended {
            // Nobody holds a permit without the table of the permits, or without that of the locks.
            Err(failure) if failure.is_no_table() => Ok(Released::NotHeld),
            ended => ended.map_err(RequestError::error),
        }
    }

    /// Takes all permits back, or only if no other acquisition than those in `seen` holds some. `None`: the name is no
    /// semaphore.
    pub(crate) async fn force_permits(
        &self,
        name: &Name,
        seen: Option<&Snapshot>,
    ) -> Result<Option<bool>> {
        let sql = &self.permits.sql;
        let key = name.as_str();
        let named = [(&key as _, Type::TEXT)];
        let rows = tables::ask(&self.connection, &self.sql, &sql.is_semaphore, &named).await;
        if rows.map_err(RequestError::error)?.is_empty() {
            return Ok(None);
        }
        let owners = match seen {
            Some(seen) => Some(self.owners_in(name, seen).await?),
            None => None,
        };
        let freed = self.free_permits(|serves| sql.force_permits(name, owners.as_deref(), serves));
        match freed.await {
            Err(failure) if failure.is_no_table() => Ok(Some(false)),
            freed => Ok(Some(freed.map_err(RequestError::error)? == Released::Freed)),
        }
    }

    /// The owners in the table that an earlier snapshot shows. It shows the ids of their permits.
    async fn owners_in(&self, name: &Name, seen: &Snapshot) -> Result<Vec<String>> {
        let key = name.as_str();
        let named = [(&key as _, Type::TEXT)];
        let rows = match self.connection.ask(&self.permits.sql.holders, &named).await {
            Err(failure) if failure.is_no_table() => return Ok(Vec::new()),
            rows => rows.map_err(RequestError::error)?,
        };
        let owners = rows.iter().map(|row| row.get::<_, String>(0));
        let is_seen = |owner: &String| seen.has_owner(&OwnerId::of_text(owner).permit_id(0));
        Ok(owners.filter(is_seen).collect())
    }

    /// Sends a text that takes permits back. It is built with whether it also gives them to those that are next.
    async fn free_permits(&self, text: impl Fn(bool) -> String) -> Result<Released, RequestError> {
        let (connection, somebody) = (&self.connection, Liveness::default());
        let deadline = connection.deadline();
        let answer = match connection.ask_text(&somebody, &text(true), deadline).await {
            // Without the table of the semaphores nobody gets a permit. Those that are held are in the other one.
            Err(failure) if failure.is_no_table() => {
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

    /// Shows the permits of a semaphore instead of the row that stands for them. Returns whether the name is one.
    pub(crate) async fn show_permits(&self, name: &Name, snapshot: &mut Snapshot) -> Result<bool> {
        let PermitSql {
            numbers, holders, ..
        } = &*self.permits.sql;
        let is_semaphore = snapshot.holders.iter().any(|it| it.owner == SEMAPHORE);
        if !is_semaphore {
            return Ok(false);
        }
        *snapshot = Snapshot::free(name.as_str());
        let key = name.as_str();
        let named = [(&key as _, Type::TEXT)];
        let rows = self.connection.ask(holders, &named).await;
        for row in &rows.map_err(RequestError::error)? {
            let id = OwnerId::of_text(row.get(0)).permit_id(0);
            let mut holder = inspect::holder(id, Mode::Permits, row);
            holder.holds = row.get::<_, i32>(1).unsigned_abs().into();
            snapshot.holders.push(holder);
            snapshot.expires_in = snapshot.expires_in.max(duration(row, 2));
        }
        let rows = self.connection.ask(numbers, &named).await;
        if let Some(row) = rows.map_err(RequestError::error)?.first() {
            let total: i64 = row.get(0);
            snapshot.permits = Some(PermitCount::new(row.get(1), total));
            snapshot.waiters = u64::try_from(row.get::<_, i64>(2)).ok();
        }
        Ok(true)
    }

    /// One page of the names of locks and semaphores that are held.
    pub(crate) async fn page(&self, pattern: &str, after: Option<&str>) -> Result<Page> {
        let connection = &self.connection;
        let mut page = inspect::page(connection, &self.sql, pattern, after).await?;
        if !page.semaphores.is_empty() {
            let named = [(&page.semaphores as _, Type::TEXT_ARRAY)];
            match connection.ask(&self.permits.sql.held, &named).await {
                Ok(held) => page
                    .locks
                    .extend(held.iter().map(|row| row.get::<_, String>(0))),
                // The table is gone, or a right to it. A user with rights to locks only can still list them.
                Err(RequestError::Server(_)) => {}
                Err(failure) => return Err(failure.error()),
            }
        }
        Ok(Page {
            names: page.locks,
            next: page.next,
        })
    }

    async fn change_number(&self, name: &Name, change: PermitChange) -> Result<bool> {
        let sql = &self.permits.sql;
        let text = sql.change_permits(name, change);
        let (connection, somebody) = (&self.connection, Liveness::default());
        let answer = ask(connection, &self.sql, sql, &somebody, &text).await;
        let columns = answer.map_err(RequestError::error)?;
        if columns.number(1)? != 0 {
            return Err(is_lock());
        }
        Ok(columns.number(0)? != 0)
    }
}

impl PermitCounter for Postgres {
    fn queues(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.change_number(name, change))
    }
}

#[cfg(test)]
mod tests;
