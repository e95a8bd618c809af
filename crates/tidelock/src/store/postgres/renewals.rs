//! Renewals. A row that somebody's transaction locks delays its own lock only.
//!
//! 1. For each table, one statement renews the locks of a batch. It passes over rows that another transaction locks.
//! 2. Of those that it has not renewed, a second statement, which waits for no row, tells which are held. The others are
//!    gone.
//! 3. The rows of those that are held are waited for, one after the other and for a short time. Most of them are locked by
//!    a short request of another client. Otherwise a lock that many ask for could be passed over each time.
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
        let timers = self.connection.timers();
        let end = timers.now() + patience;
        // One row that nobody gives up leaves time for the others.
        let most = if held.len() > 1 {
            patience / 4
        } else {
            patience
        };
        for one in others {
            let renewed = if held.contains(&one.0) {
                let patience = end.since(timers.now()).min(most);
                self.renew_patiently(table, one, patience).await
            } else {
                Renewed::Gone
            };
            answers.push((one.0, renewed));
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

    /// Renews one lock, and waits for its row for that long.
    async fn renew_patiently(
        &self,
        table: RenewalTable,
        one: (i64, &Renewal),
        patience: Duration,
    ) -> Renewed {
        let is_kept = || {
            let why = "another transaction keeps the row of the lock";
            Renewed::Failed(Error::new(ErrorKind::Unavailable).because(why))
        };
        let timers = self.connection.timers();
        let end = timers.now() + patience;
        // One at a time: what else is sent on this connection waits for one row at most.
        let Some(Ok(_turn)) = timers.until(end, self.waits.acquire()).await else {
            return is_kept();
        };
        let (part, patience) = ([one], end.since(timers.now()));
        let renewed = self.renew_rows(&self.connection, table, &part, Some(patience));
        match timers.until(end, renewed).await {
            Some(Ok(kept)) if kept.is_empty() => Renewed::Gone,
            Some(Ok(_)) => Renewed::Kept,
            Some(Err(failure)) if !failure.is_row_taken() => {
                Renewed::Failed(failure.error().retold())
            }
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
    let rows = connection.ask(statement, &params).await?;
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
