//! Renewals. A row that somebody's transaction locks delays its own lock only.
//!
//! 1. For each table, one statement renews the locks of a batch. It passes over rows that another transaction locks.
//! 2. Of those that it has not renewed, a second statement, which waits for no row, tells which are held. The others are
//!    gone.
//! 3. The rows of those that are held are waited for, one after the other and for a short time. Most of them are locked by
//!    a short request of another client. Otherwise a lock that many ask for could be passed over each time. All that is held
//!    of one name has one row.
//!
//! The first two have a connection of their own. The other requests of the steward may wait for a row for as long as the
//! response timeout, and what is sent behind them on a connection waits too.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::unexpected;
use crate::store::postgres::Postgres;
use crate::store::postgres::columns::micros;
use crate::store::postgres::connection::{Connection, Param};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::permit_table::parts;
use crate::store::postgres::schema::timeout;
use crate::store::{Liveness, LockKind, Renewal, Renewed};

/// The table with the leases of some kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalTable {
    Locks,
    Sides,
    Permits,
}

impl RenewalTable {
    const ALL: [Self; 3] = [Self::Locks, Self::Sides, Self::Permits];

    fn of(kind: LockKind) -> Self {
        if kind.is_read_write() {
            Self::Sides
        } else if kind.is_permits() {
            Self::Permits
        } else {
            Self::Locks
        }
    }
}

impl Postgres {
    /// Renews a batch. What fails for one table does not fail for the locks in the others.
    pub(crate) async fn renew_batch(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let patience = self.patience(batch);
        let (mut answers, mut failed, mut answered) = (HashMap::new(), None, false);
        for table in RenewalTable::ALL {
            let part: Vec<(i64, &Renewal)> = (1..)
                .zip(batch)
                .filter(|(_, one)| RenewalTable::of(one.ticket.kind) == table)
                .collect();
            if part.is_empty() {
                continue;
            }
            match self.renew_part(table, &part, patience).await {
                Ok(renewed) => {
                    answered = true;
                    answers.extend(renewed);
                }
                Err(failure) => {
                    let error = failure.error();
                    answers.extend(all_failed(&part, &error));
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if !answered => Err(error),
            _ => Ok((1..)
                .zip(batch)
                .filter_map(|(number, _)| answers.remove(&number))
                .collect()),
        }
    }

    /// How long the locks of one table may wait for rows. A third of the lease has passed before, and the other locks of the
    /// batch wait for its answer.
    fn patience(&self, batch: &[Renewal]) -> Duration {
        let leases = batch.iter().map(|one| one.lease / 8);
        leases.fold(self.connection.limit() / 2, Duration::min)
    }

    /// Renews the locks of one table.
    async fn renew_part(
        &self,
        table: RenewalTable,
        part: &[(i64, &Renewal)],
        patience: Duration,
    ) -> Result<Vec<(i64, Renewed)>, RequestError> {
        let connection = self.free_connection();
        let kept = self.renew_rows(connection, table, part, None).await?;
        let others = part.iter().filter(|(number, _)| !kept.contains(number));
        let others: Vec<(i64, &Renewal)> = others.copied().collect();
        let kept = kept.into_iter().map(|number| (number, Renewed::Kept));
        let mut answers: Vec<(i64, Renewed)> = kept.collect();
        if others.is_empty() {
            return Ok(answers);
        }
        let held = match self.held_rows(connection, table, &others).await {
            Ok(held) => held,
            Err(failure) => {
                answers.extend(all_failed(&others, &failure.error()));
                return Ok(answers);
            }
        };
        let (mut held, gone): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| held.contains(&one.0));
        answers.extend(gone.iter().map(|(number, _)| (*number, Renewed::Gone)));
        // A wait for the row of a name renews all that is held of it: permits, or sides. Otherwise each of them could wait in a
        // line of requests of other clients, and a client with many would lose some.
        held.sort_by(|a, b| a.1.ticket.name.cmp(&b.1.ticket.name));
        let rows: Vec<_> = held
            .chunk_by(|a, b| a.1.ticket.name == b.1.ticket.name)
            .collect();
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let timers = self.connection.timers();
        let end = timers.now() + patience;
        for (row, left) in rows.iter().zip((1..=count).rev()) {
            // Each row has its share, so rows that nobody gives up leave time for the others.
            let share = end.since(timers.now()) / left;
            answers.extend(self.renew_patiently(table, row, share).await);
        }
        Ok(answers)
    }

    /// The connection on which nothing waits for a row. Until it is open, and while the server has no room for one more, it
    /// is that of all else.
    fn free_connection(&self) -> &Connection {
        if self.renewals.is_open() {
            return &self.renewals;
        }
        let renewals = self.renewals.clone();
        self.connection.background().spawn(async move {
            renewals.open().await;
        });
        &self.connection
    }

    /// Renews what is held of one name, and waits for its row for that long.
    async fn renew_patiently(
        &self,
        table: RenewalTable,
        row: &[(i64, &Renewal)],
        patience: Duration,
    ) -> Vec<(i64, Renewed)> {
        let is_kept = || {
            let why = "another transaction keeps the row of the lock";
            all_failed(row, &Error::new(ErrorKind::Unavailable).because(why))
        };
        // Otherwise a statement would be sent whose answer nobody waits for.
        if patience.is_zero() {
            return is_kept();
        }
        let timers = self.connection.timers();
        let end = timers.now() + patience;
        // One at a time: what else is sent on this connection waits for one row at most.
        let Some(Ok(_turn)) = timers.until(end, self.waits.acquire()).await else {
            return is_kept();
        };
        let patience = end.since(timers.now());
        let renewed = self.renew_rows(&self.connection, table, row, Some(patience));
        match timers.until(end, renewed).await {
            Some(Ok(kept)) => row
                .iter()
                .map(|(number, _)| {
                    let renewed = if kept.contains(number) {
                        Renewed::Kept
                    } else {
                        Renewed::Gone
                    };
                    (*number, renewed)
                })
                .collect(),
            Some(Err(failure)) if !failure.is_row_taken() => all_failed(row, &failure.error()),
            Some(Err(_)) | None => is_kept(),
        }
    }

    /// Renews locks of one table. Returns the numbers of those that are kept. `patience`: how long it waits for a row; `None`:
    /// it passes over rows that another transaction locks.
    async fn renew_rows(
        &self,
        connection: &Connection,
        table: RenewalTable,
        part: &[(i64, &Renewal)],
        patience: Option<Duration>,
    ) -> Result<HashSet<i64>, RequestError> {
        let text = match table {
            RenewalTable::Locks => {
                let statement = match patience {
                    Some(_) => &self.sql.renew_patiently,
                    None => &self.sql.renew,
                };
                return ask_locks(connection, statement, part, patience).await;
            }
            RenewalTable::Sides => self.queue_sql.renew_sides(part, patience),
            RenewalTable::Permits => self.permits.sql.renew_permits(part, patience),
        };
        ask_numbers(connection, &text).await
    }

    /// The numbers of those locks of one table that are held.
    async fn held_rows(
        &self,
        connection: &Connection,
        table: RenewalTable,
        part: &[(i64, &Renewal)],
    ) -> Result<HashSet<i64>, RequestError> {
        let text = match table {
            RenewalTable::Locks => {
                return ask_locks(connection, &self.sql.held, part, None).await;
            }
            RenewalTable::Sides => self.queue_sql.held_sides(part),
            RenewalTable::Permits => self.permits.sql.held_permits(part),
        };
        ask_numbers(connection, &text).await
    }
}

fn all_failed(part: &[(i64, &Renewal)], error: &Error) -> Vec<(i64, Renewed)> {
    part.iter()
        .map(|(number, _)| (*number, Renewed::Failed(error.retold())))
        .collect()
}

/// Runs a statement on some rows in the table of the locks. Returns the numbers that it answers.
async fn ask_locks(
    connection: &Connection,
    statement: &str,
    part: &[(i64, &Renewal)],
    patience: Option<Duration>,
) -> Result<HashSet<i64>, RequestError> {
    let renewals = || part.iter().map(|(_, one)| one);
    let numbers: Vec<i64> = part.iter().map(|(number, _)| *number).collect();
    let names: Vec<&str> = renewals().map(|one| one.ticket.name.as_str()).collect();
    let owners: Vec<&str> = renewals().map(|one| one.ticket.owner.text()).collect();
    let leases: Vec<i64> = renewals().map(|one| micros(one.lease)).collect();
    let mut params: Vec<Param<'_>> = vec![
        (&names as _, Type::TEXT_ARRAY),
        (&owners as _, Type::TEXT_ARRAY),
        (&leases as _, Type::INT8_ARRAY),
        (&numbers as _, Type::INT8_ARRAY),
    ];
    let patience = patience.map(timeout);
    if let Some(patience) = &patience {
        params.push((patience as _, Type::TEXT));
    }
    let rows = match connection.ask(statement, &params).await {
        // Nobody holds a lock without the table.
        Err(failure) if failure.is_no_table() => return Ok(HashSet::new()),
        rows => rows?,
    };
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Runs a text that answers numbers. Without the tables of its kind, nobody holds such a lock.
async fn ask_numbers(connection: &Connection, text: &str) -> Result<HashSet<i64>, RequestError> {
    let (deadline, somebody) = (connection.deadline(), Liveness::default());
    let columns = match connection.ask_text(&somebody, text, deadline).await {
        Err(failure) if failure.is_no_table() => return Ok(HashSet::new()),
        columns => columns?,
    };
    let numbers = parts(&columns).map_err(RequestError::Classified)?;
    let numbers = numbers.map(|number| number.parse().map_err(unexpected));
    let numbers: Result<HashSet<i64>> = numbers.collect();
    numbers.map_err(RequestError::Classified)
}

#[cfg(test)]
mod tests;
