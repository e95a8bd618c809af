//! Makes the tables: those of every lock at the connect, and all when the first request finds one missing. A database of an
//! older tidelock has some of them only. Somebody may drop them, or replace the server by an empty one.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::one_line;
use crate::store::postgres::connection::{Connection, Param, TextAnswer};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::schema::Sql;
use crate::store::{Liveness, Released, Ticket};

/// Makes what is missing of the tables of every lock. Several processes may come first at the same time: one makes the tables,
/// the others wait for it and find them.
pub(crate) async fn make_all(connection: &Connection, sql: &Sql) -> Result<()> {
    let missing = connection.ask(&sql.missing, &[]).await;
    let missing = missing.map_err(RequestError::error)?;
    let missing = |column: usize| -> String {
        let row = missing.first();
        row.map_or_else(String::new, |row| row.get(column))
    };
    let (looked_at, others) = (missing(0), missing(1));
    // A client that only looks needs no others.
    if looked_at.is_empty() && (others.is_empty() || !sql.may_make) {
        return Ok(());
    }
    if !sql.may_make {
        return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
            "this database lacks {looked_at}: no lock was ever acquired in it, or somebody has dropped them; check the URL. Only a client that may acquire makes them"
        )));
    }
    let made = connection.run(&sql.make).await;
    made.map_err(|failure| {
        let error = failure.error();
        let missing = [looked_at, others];
        let missing: Vec<String> = missing.into_iter().filter(|them| !them.is_empty()).collect();
        match error.kind() {
            ErrorKind::Refused => Error::new(ErrorKind::Refused).because(format!(
                "this database lacks {}, and this user may not make them ({}); run this as a user with that right: {}",
                missing.join(", "),
                error.detail().unwrap_or_default(),
                one_line(&sql.make)
            )),
            _ => error,
        }
    })
}

/// Makes the tables of every lock after a request has found one of them missing, and so has changed nothing. Their holders
/// hear of it at the next renewal.
pub(crate) async fn make_again(connection: &Connection, sql: &Sql) -> Result<(), RequestError> {
    let made = make_all(connection, sql).await;
    made.map_err(|error| RequestError::Classified(error.without_effect()))
}

/// Sends one statement. If a table of every lock is missing, makes it and sends the statement again.
pub(crate) async fn ask(
    connection: &Connection,
    sql: &Sql,
    statement: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, RequestError> {
    match connection.ask(statement, params).await {
        Err(failure) if failure.is_no_table() => {
            make_again(connection, sql).await?;
            connection.ask(statement, params).await
        }
        answer => answer,
    }
}

/// Withdraws a ticket for a lock without a queue. Returns the row of the statement. An attempt that makes missing tables may
/// still arrive, and has to find the mark.
pub(crate) async fn withdraw(
    connection: &Connection,
    sql: &Sql,
    ticket: &Ticket,
) -> Result<Option<Row>> {
    let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
    let params = [(&name as _, Type::TEXT), (&owner as _, Type::TEXT)];
    let rows = ask(connection, sql, &sql.withdraw, &params).await;
    Ok(rows.map_err(RequestError::error)?.into_iter().next())
}

/// Whether the ticket held its lock, by the row of a withdrawal.
pub(crate) fn released(row: Option<&Row>) -> Released {
    match row {
        Some(row) if row.get(0) => Released::Freed,
        _ => Released::NotHeld,
    }
}

/// Makes `what`. Nothing of a lock has changed yet.
pub(crate) async fn make(connection: &Connection, what: &str, statements: &str) -> Result<()> {
    connection.run(statements).await.map_err(|failure| {
        let error = failure.error();
        match error.kind() {
            ErrorKind::Refused => Error::new(ErrorKind::Refused).because(format!(
                "{what} does not exist, and this user may not create it ({}); run this as a user with that right, and grant SELECT, INSERT, UPDATE and DELETE on it: {}",
                error.detail().unwrap_or_default(),
                one_line(statements)
            )),
            ErrorKind::OutcomeUnknown => Error::new(ErrorKind::Unavailable)
                .because(format!("cannot create {what}"))
                .caused_by(error),
            _ => error,
        }
    })
}

/// Sends a text of several statements. If a table is missing, makes it and sends the text again: a database of an older
/// tidelock, or one without such locks, has none. The pair: which table, and what makes it. That may be one of those of every
/// lock as well, which `sql` makes.
pub(crate) async fn ask_and_make(
    connection: &Connection,
    sql: &Sql,
    (what, make_it): (&str, &str),
    liveness: &Liveness,
    text: &str,
) -> Result<TextAnswer, RequestError> {
    let deadline = connection.deadline();
    match connection.ask_text(liveness, text, deadline).await {
        Err(failure) if failure.is_no_table() => {
            make_again(connection, sql).await?;
            let made = make(connection, what, make_it).await;
            made.map_err(RequestError::Classified)?;
            connection.ask_text(liveness, text, deadline).await
        }
        answer => answer,
    }
}
