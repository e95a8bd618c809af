//! The tables: created by the first client, or by hand if its user lacks the rights.

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::errors::one_line;
use crate::store::mysql::connection::Pool;
use crate::store::mysql::sql::NOW;

/// The version of the table format. A change that an older tidelock could misread gets a new number.
const FORMAT: u64 = 1;

/// Statements that create the tables. Each can be repeated, also by several clients at the same time.
pub(crate) fn tables() -> [String; 4] {
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
         \x20 expires BIGINT NOT NULL\n\
         ) ENGINE = InnoDB"
            .to_owned(),
        "CREATE TABLE IF NOT EXISTS tidelock_counter (\n\
         \x20 one TINYINT UNSIGNED NOT NULL PRIMARY KEY,\n\
         \x20 token BIGINT UNSIGNED NOT NULL, -- no deleted row had a larger one\n\
         \x20 format INT UNSIGNED NOT NULL\n\
         ) ENGINE = InnoDB"
            .to_owned(),
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
    let format = format.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    if format.unwrap_or(FORMAT) > FORMAT {
        return Err(Error::new(ErrorKind::Unsupported).because(
            "the tables were created by a newer tidelock; update this program, or use another database",
        ));
    }
    Ok(())
}

async fn make(pool: &Pool, deadline: BootInstant) -> Result<()> {
    if !pool.may_create() {
        return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
            "the database {} has none of tidelock's tables, so no lock was ever acquired in it; check the URL. Only an acquire creates tables",
            pool.database()
        )));
    }
    for table in tables() {
        match pool.ask(table, deadline).await {
            Ok(_) => {}
            Err(failure) if failure.is_denied() => {
                return Err(Error::new(ErrorKind::Refused).because(format!(
                    "tidelock's tables do not exist, and this user may not create them; run this as a user with that right: {};",
                    one_line(&tables().join("; "))
                )));
            }
            Err(other) => {
                // No lock request was sent yet, so nothing is unknown.
                let error = other.error();
                let kind = match error.kind() {
                    ErrorKind::OutcomeUnknown => ErrorKind::Unavailable,
                    kind => kind,
                };
                return Err(Error::new(kind)
                    .because("cannot create tidelock's tables")
                    .caused_by(error));
            }
        }
    }
    Ok(())
}
