//! The tables, the format version, and the check that a file is ours.
//!
//! A later tidelock may add tables, and columns with defaults, without a new version. A change that an older tidelock
//! could misread needs a new version.

use rusqlite::Connection;

use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::errors::Busy;

/// "tdlk": marks the file as ours, so that we never write into another program's database.
const APPLICATION: i64 = 0x7464_6c6b;
/// The version of the file format. A file with a larger version is refused.
const VERSION: i64 = 1;

/// The schema of a new file.
const TABLES: &str = "
CREATE TABLE locks (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    revision INTEGER NOT NULL,  -- changes with every write
    lease INTEGER NOT NULL,     -- nanoseconds
    ends INTEGER NOT NULL,      -- deadline: nanoseconds of the clock named by domain
    domain TEXT NOT NULL,       -- boot id and offset of the time namespace
    token INTEGER NOT NULL,
    since INTEGER NOT NULL      -- wall clock, milliseconds; for people only
) WITHOUT ROWID;
-- One counter for all names: every grant has a token, and names that are never used again leave no row behind.
CREATE TABLE counter (token INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
CREATE TABLE withdrawn (owner TEXT NOT NULL PRIMARY KEY, ends INTEGER NOT NULL, domain TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clients (
    client TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    program TEXT NOT NULL,
    since INTEGER NOT NULL,     -- wall clock, milliseconds
    ends INTEGER NOT NULL,
    domain TEXT NOT NULL,
    os_user TEXT
) WITHOUT ROWID;
";

/// Bytes of free space that we keep inside the file as a reserve.
const RESERVE: i64 = 256 * 1024;
/// With fewer free pages than this, the reserve is used up. A grant changes no more pages than this.
const FEW_PAGES: i64 = 8;

/// More tokens than one log can have used: each grant writes two pages of the log and reserves at most a thousand
/// tokens.
const SKIPPED: i64 = 1 << 32;

/// The reason why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Unfit {
    Sqlite(rusqlite::Error),
    Other(Error),
    /// A temporary condition.
    Busy(Busy),
}

impl From<rusqlite::Error> for Unfit {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Returns whether the tables exist. Fails if the file belongs to another program or to a newer tidelock. Call this
/// inside a transaction: otherwise a file that another process is just creating could look like another program's file.
pub(crate) fn is_ready(connection: &Connection) -> Result<bool, Unfit> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (application, version) = (
        number("PRAGMA application_id")?,
        number("PRAGMA user_version")?,
    );
    if application == APPLICATION && version > VERSION {
        return Err(Unfit::Other(Error::new(ErrorKind::Unsupported).because(format!(
            "the lock file was created by a newer tidelock (format {version}, this one knows {VERSION}); update this program, or use another file"
        ))));
    }
    let empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
    if application != APPLICATION && (application != 0 || version != 0 || !empty) {
        return Err(Unfit::Other(Error::new(ErrorKind::InvalidOptions).because(
            "the file is an SQLite database of another program; use another file. It was not changed",
        )));
    }
    Ok(version == VERSION)
}

/// Creates the tables. Call this inside a write transaction in which [`is_ready`] returned false.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    ))
}

/// Skips tokens after a log was removed. The log may have had grants whose tokens the file does not know; the next
/// tokens are larger than any of those.
pub(crate) fn skip_tokens(connection: &Connection) -> rusqlite::Result<()> {
    // An invalid counter stays as it is, and the next acquire refuses it. Otherwise SQLite would count text as 0, and
    // turn a sum beyond the largest integer into a fraction.
    connection.execute_batch(&format!(
        "UPDATE counter SET token = min(token, {}) + {SKIPPED} WHERE typeof(token) = 'integer' AND token >= 0",
        i64::MAX - SKIPPED
    ))
}

/// Makes the file larger than necessary. With free pages inside the file, SQLite can move the log into it and restart
/// the log even when the disk is full. Held locks can then still be renewed and released.
pub(crate) fn reserve(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "CREATE TABLE reserve (room); INSERT INTO reserve VALUES (zeroblob({RESERVE}));"
    ))?;
    // We checkpoint before the drop. Pages that were freed before they reached the file would be holes in it.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    connection.execute_batch("DROP TABLE reserve")
}

/// Returns true if the reserve is used up.
pub(crate) fn is_tight(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("PRAGMA freelist_count")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|free| free < FEW_PAGES)
}

#[cfg(test)]
mod tests {
    use rusqlite::types::Value;

    use super::*;

    #[test]
    fn a_file_is_ours_or_new_or_of_another_program() {
        let (ours, refused) = (APPLICATION, Err(ErrorKind::InvalidOptions));
        for (application, version, has_table, found) in [
            (0, 0, false, Ok(false)),
            (ours, 0, false, Ok(false)),
            (ours, VERSION, true, Ok(true)),
            (ours, VERSION + 1, true, Err(ErrorKind::Unsupported)),
            (0, 0, true, refused),
            (0, VERSION, false, refused),
            (7, 0, false, refused),
            (7, VERSION + 1, true, refused),
        ] {
            let connection = Connection::open_in_memory().unwrap();
            let set =
                format!("PRAGMA application_id = {application}; PRAGMA user_version = {version};");
            connection.execute_batch(&set).unwrap();
            if has_table {
                connection.execute_batch("CREATE TABLE goods (id)").unwrap();
            }
            let ready = is_ready(&connection).map_err(|unfit| match unfit {
                Unfit::Other(error) => error.kind(),
                other => panic!("{other:?}"),
            });
            assert_eq!(ready, found, "{application} {version} {has_table}");
        }
    }

    #[test]
    fn a_file_with_fewer_free_pages_than_a_grant_may_need_is_tight() {
        for (free, tight) in [(FEW_PAGES - 1, true), (FEW_PAGES, false)] {
            let connection = Connection::open_in_memory().unwrap();
            for change in ["CREATE", "DROP"] {
                for number in 0..free {
                    let columns = if change == "CREATE" { "(room)" } else { "" };
                    let change = format!("{change} TABLE filler{number} {columns}");
                    connection.execute_batch(&change).unwrap();
                }
            }
            assert_eq!(is_tight(&connection).unwrap(), tight, "{free} pages");
        }
    }

    #[test]
    fn a_counter_without_a_next_token_stays_so_when_tokens_are_skipped() {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        let text = Value::Text("seven".to_owned());
        for (before, after) in [
            (Value::Integer(7), Value::Integer(7 + SKIPPED)),
            (Value::Integer(i64::MAX - 1), Value::Integer(i64::MAX)),
            (Value::Integer(i64::MAX), Value::Integer(i64::MAX)),
            (Value::Integer(-1), Value::Integer(-1)),
            (Value::Real(1.5), Value::Real(1.5)),
            (text.clone(), text),
        ] {
            let set = "UPDATE counter SET token = ?1";
            connection.execute(set, [&before]).unwrap();
            skip_tokens(&connection).unwrap();
            let now: Value = connection
                .query_row("SELECT token FROM counter", [], |row| row.get(0))
                .unwrap();
            assert_eq!(now, after, "after {before:?}");
        }
    }
}
