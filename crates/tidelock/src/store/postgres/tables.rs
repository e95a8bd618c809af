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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LockKind;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{
        NO_RIGHT, NO_TABLE, NOTHING, ServerAnswer, flag, row, text,
    };
    use crate::store::postgres::tests::{sql, ticket};

    #[tokio::test]
    async fn a_user_who_may_not_make_the_tables_is_told_what_to_run() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        for (lacks, named) in [
            (["one", "two"], "lacks one, two, and"),
            (["one", ""], "lacks one, and"),
            (["", "two"], "lacks two, and"),
        ] {
            server.on(&sql().missing, [row(lacks.map(text))]);
            server.answers([NO_RIGHT]);
            let error = make_all(&connection, &sql()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            let detail = error.detail().unwrap();
            assert!(detail.contains(named), "{detail}");
            assert!(detail.ends_with(&one_line(&sql().make)), "{detail}");
            assert!(detail.contains("the server says no"), "{detail}");
        }
        // Another error says nothing of rights.
        server.answers([ServerAnswer::Fails("53100")]);
        let error = make_all(&connection, &sql()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.detail(), Some("the server says no"));
    }

    #[tokio::test]
    async fn only_what_is_missing_is_made() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        let looks = Sql {
            may_make: false,
            ..sql()
        };
        for (lacks, sql, makes) in [
            (["", ""], &sql(), false),
            (["", "two"], &sql(), true),
            (["one", ""], &sql(), true),
            (["", "two"], &looks, false),
        ] {
            server.on(&sql.missing, [row(lacks.map(text))]);
            server.answers([NOTHING].into_iter().take(usize::from(makes)));
            make_all(&connection, sql).await.unwrap();
            let made = server.texts().contains(&sql.make);
            assert_eq!(made, makes, "{lacks:?}");
        }
    }

    /// Nothing of a lock has changed yet.
    #[tokio::test]
    async fn a_table_that_cannot_be_made_is_never_an_unknown_outcome() {
        let server = ScriptedDatabase::start().await;
        for (answer, kind, said) in [
            (NO_RIGHT, ErrorKind::Refused, "till does not exist"),
            (
                ServerAnswer::HangsUp,
                ErrorKind::Unavailable,
                "cannot create till",
            ),
            (
                ServerAnswer::Fails("53100"),
                ErrorKind::Unavailable,
                "the server says no",
            ),
        ] {
            server.answers([answer.clone()]);
            let made = make(&server.connection(), "till", "CREATE TABLE till ()").await;
            let error = made.unwrap_err();
            assert_eq!(error.kind(), kind, "{answer:?}");
            let detail = error.detail().unwrap();
            assert!(detail.starts_with(said), "{detail}");
            let names_it = detail.ends_with("on it: CREATE TABLE till ()");
            assert_eq!(names_it, kind == ErrorKind::Refused, "{detail}");
        }
        server.on(&sql().missing, [ServerAnswer::HangsUp]);
        let made = make_again(&server.connection(), &sql()).await;
        assert!(made.unwrap_err().is_certain());
    }

    #[tokio::test]
    async fn a_statement_is_sent_again_only_if_a_table_was_missing() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        for (answers, is_answered) in [
            (vec![NOTHING], true),
            (vec![NO_TABLE, NOTHING], true),
            (vec![NO_TABLE, NO_TABLE], false),
            (vec![NO_RIGHT], false),
        ] {
            server.answers(answers.clone());
            let answer = ask(&connection, &sql(), "SELECT 1", &[]).await;
            assert_eq!(answer.is_ok(), is_answered, "{answers:?}");
            assert_eq!(server.texts(), vec!["SELECT 1"; answers.len()]);
        }
    }

    #[tokio::test]
    async fn a_text_makes_the_table_that_it_needs_and_is_sent_again_once() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        let somebody = Liveness::default();
        let sent = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT 1";
        for (answers, texts) in [
            (vec![NO_RIGHT], &[sent][..]),
            (vec![NO_TABLE, NO_RIGHT], &[sent, "CREATE"]),
            (vec![NO_TABLE, NOTHING, NO_TABLE], &[sent, "CREATE", sent]),
        ] {
            server.answers(answers.clone());
            let made_by = ("it", "CREATE");
            let answer = ask_and_make(&connection, &sql(), made_by, &somebody, "SELECT 1").await;
            assert!(answer.is_err());
            assert_eq!(server.texts(), texts, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_withdrawal_tells_whether_the_ticket_held_its_lock() {
        let server = ScriptedDatabase::start().await;
        let (connection, ticket) = (server.connection(), ticket(LockKind::Mutex));
        for (answer, told) in [
            (row([flag(true)]), Released::Freed),
            (row([flag(false)]), Released::NotHeld),
            (NOTHING, Released::NotHeld),
        ] {
            server.answers([NO_TABLE, answer]);
            let row = withdraw(&connection, &sql(), &ticket).await.unwrap();
            assert_eq!(released(row.as_ref()), told);
            let asked = server.asked();
            assert_eq!(asked[1].params, ["stock", ticket.owner.text()]);
        }
    }
}
