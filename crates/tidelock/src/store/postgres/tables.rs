//! Makes the tables: those of every lock at the connect, the others when the first request finds one missing. A database
//! of an older tidelock has none of those.

use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Liveness;
use crate::store::errors::one_line;
use crate::store::postgres::connection::{Connection, TextAnswer};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::schema::Sql;

/// Several processes may come first at the same time: one makes the tables, the others wait for it and find them.
pub(crate) async fn make_all(connection: &Connection, sql: &Sql, create: bool) -> Result<()> {
    let names = [
        (&sql.table as _, Type::TEXT),
        (&sql.clients as _, Type::TEXT),
    ];
    let there = connection.ask(&sql.there, &names).await;
    let there = there.map_err(RequestError::error)?;
    let exists = |column: usize| there.first().is_some_and(|row| row.get::<_, bool>(column));
    // A client that only looks needs no function.
    if exists(0) && (exists(1) || !create) {
        return Ok(());
    }
    if !create {
        return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
            "this database has no table {}, so no lock was ever acquired in it; check the URL. Only an acquire creates tables",
            sql.table
        )));
    }
    let made = connection.run(&sql.make).await;
    made.map_err(|failure| {
        let error = failure.error();
        match error.kind() {
            ErrorKind::Refused => Error::new(ErrorKind::Refused).because(format!(
                "tidelock's tables or the function of its fence do not exist, and this user may not create them ({}); run this as a user with that right: {}",
                error.detail().unwrap_or_default(),
                one_line(&sql.make)
            )),
            _ => error,
        }
    })
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
/// tidelock, or one without such locks, has none. The pair: which table, and what makes it.
pub(crate) async fn ask_and_make(
    connection: &Connection,
    (what, make_it): (&str, &str),
    liveness: &Liveness,
    text: &str,
) -> Result<TextAnswer, RequestError> {
    let deadline = connection.deadline();
    match connection.ask_text(liveness, text, deadline).await {
        Err(failure) if failure.is_no_table() => {
            let made = make(connection, what, make_it).await;
            made.map_err(RequestError::Classified)?;
            connection.ask_text(liveness, text, deadline).await
        }
        answer => answer,
    }
}
