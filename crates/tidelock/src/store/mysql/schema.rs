//! The tables: created by the first client, or by hand if its user lacks the rights.

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::errors::one_line;
use crate::store::mysql::connection::Pool;
use crate::store::mysql::queue_sql::TABLES;
use crate::store::mysql::sql::NOW;

/// The version of the table format. A change that an older tidelock could misread gets a new number.
const FORMAT: u64 = 1;

/// Statements that create the tables. Each can be repeated, also by several clients at the same time.
pub(crate) fn tables() -> [String; 6] {
    let [waiters, sides] = TABLES.map(str::to_owned);
    [
        "CREATE TABLE IF NOT EXISTS tidelock_locks (\n\
         \x20 id BINARY(32) NOT NULL PRIMARY KEY, -- SHA-256 of the name\n\
         \x20 name MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n\
         \x20 owner VARBINARY(128) NOT NULL, -- empty: nobody\n\
         \x20 expires BIGINT NOT NULL, -- microseconds since 1970, by the server's clock\n\
         \x20 token BIGINT UNSIGNED NOT NULL,\n\
         \x20 withdrawn MEDIUMBLOB NOT NULL, -- owners whose late requests take no effect\n\
         \x20 before_that MEDIUMBLOB NOT NULL, -- those of the time before `turned`\n\
         \x20 turned BIGINT NOT NULL,\n\
         \x20 KEY granted (id, token), -- changed by a grant only: what a fence keeps\n\
         \x20 KEY expires (expires)\n\
         ) ENGINE = InnoDB"
            .to_owned(),
        "CREATE TABLE IF NOT EXISTS tidelock_clients (\n\
         \x20 client VARBINARY(64) NOT NULL PRIMARY KEY,\n\
         \x20 host TEXT CHARACTER SET utf8mb4 NOT NULL,\n\
         \x20 pid BIGINT UNSIGNED NOT NULL,\n\
         \x20 program TEXT CHARACTER SET utf8mb4 NOT NULL,\n\
         \x20 since BIGINT NOT NULL,\n\
         \x20 expires BIGINT NOT NULL,\n\
         \x20 os_user TEXT CHARACTER SET utf8mb4\n\
         ) ENGINE = InnoDB"
            .to_owned(),
        "CREATE TABLE IF NOT EXISTS tidelock_counter (\n\
         \x20 one TINYINT UNSIGNED NOT NULL PRIMARY KEY,\n\
         \x20 token BIGINT UNSIGNED NOT NULL, -- no deleted row had a larger one\n\
         \x20 format INT UNSIGNED NOT NULL\n\
         ) ENGINE = InnoDB"
            .to_owned(),
        waiters,
        sides,
        // The counter starts at the clock, so tokens keep growing even after somebody has dropped the tables.
        format!(
            "INSERT IGNORE INTO tidelock_counter (one, token, format) VALUES (1, {NOW}, {FORMAT})"
        ),
    ]
}

/// Finds the tables, or creates them. Fails with `Unsupported` if a newer tidelock created them, and with `Refused`
/// if the user may not create them.
pub(crate) async fn ready(pool: &Pool, deadline: BootInstant) -> Result<()> {
    let look = || {
        pool.ask(
            "SELECT format FROM tidelock_counter WHERE one = 1".to_owned(),
            deadline,
        )
    };
    let found = match look().await {
        Ok(rows) if !rows.is_empty() => rows,
        Ok(_) => make(pool, deadline).await.map(|()| Vec::new())?,
        Err(failure) if failure.is_no_table() => make(pool, deadline).await.map(|()| Vec::new())?,
        Err(other) => return Err(other.error()),
    };
    let format = found.first().and_then(|row| row.first()?.as_deref());
    let format: Option<u64> =
        format.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match format {
        Some(newer) if newer > FORMAT => Err(Error::new(ErrorKind::Unsupported).because(format!(
            "the tables were created by a newer tidelock (format {newer}, this one knows {FORMAT}); update this program, or use another database"
        ))),
        _ => Ok(()),
    }
}

/// Creates the table of `what`, which a database of an earlier tidelock lacks.
pub(crate) async fn make_later(pool: &Pool, what: &str, table: &str) -> Result<()> {
    let what = format!("the table of {what}");
    let by_hand = || {
        format!(
            "{what} does not exist or is out of this user's reach, and this user may not create it; run this as a user with that right, and grant SELECT, INSERT, UPDATE and DELETE on it: {}",
            one_line(table)
        )
    };
    create(pool, table.to_owned(), pool.deadline(), &what, by_hand).await
}

async fn make(pool: &Pool, deadline: BootInstant) -> Result<()> {
    if !pool.may_create() {
        return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
            "the database {} has none of tidelock's tables, so no lock was ever acquired in it; check the URL. Only an acquire creates tables",
            pool.database()
        )));
    }
    let by_hand = || {
        format!(
            "tidelock's tables do not exist, and this user may not create them; run this as a user with that right: {};",
            one_line(&tables().join("; "))
        )
    };
    for table in tables() {
        create(pool, table, deadline, "tidelock's tables", by_hand).await?;
    }
    Ok(())
}

/// Runs a statement that creates `what`. Nothing of a lock has changed yet, so no outcome is unknown. `by_hand`: what to
/// do if this user lacks the right.
async fn create(
    pool: &Pool,
    statement: String,
    deadline: BootInstant,
    what: &str,
    by_hand: impl FnOnce() -> String,
) -> Result<()> {
    let Err(failure) = pool.ask(statement, deadline).await else {
        return Ok(());
    };
    if failure.is_denied() {
        return Err(Error::new(ErrorKind::Refused).because(by_hand()));
    }
    let error = failure.error();
    let kind = match error.kind() {
        ErrorKind::OutcomeUnknown => ErrorKind::Unavailable,
        kind => kind,
    };
    Err(Error::new(kind)
        .because(format!("cannot create {what}"))
        .caused_by(error))
}
