//! The tables: created by the first client, or by hand if its user lacks the rights.

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::errors::one_line;
use crate::store::mysql::connection::Pool;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql::TABLES;
use crate::store::mysql::raw_connection::TextRow;
use crate::store::mysql::sql::NOW;

/// The version of the table format. A change that an older tidelock could misread gets a new number.
const FORMAT: u64 = 1;

/// The tables that all locks need.
const NEEDED: [&str; 3] = ["tidelock_counter", "tidelock_locks", "tidelock_clients"];

/// Statements that create the tables. Each can be repeated, also by several clients at the same time.
///
/// We raise the counter to the clock before we create the table of the locks, so tokens keep growing even after somebody has
/// dropped all tables or one of them. Otherwise another client could insert a row in between, and its tokens would begin again
/// where the counter stands.
pub(crate) fn tables() -> [String; 6] {
    let [waiters, sides] = TABLES.map(str::to_owned);
    [
        "CREATE TABLE IF NOT EXISTS tidelock_counter (\n\
         \x20 one TINYINT UNSIGNED NOT NULL PRIMARY KEY,\n\
         \x20 token BIGINT UNSIGNED NOT NULL, -- no deleted row had a larger one\n\
         \x20 format INT UNSIGNED NOT NULL\n\
         ) ENGINE = InnoDB"
            .to_owned(),
        format!(
            "INSERT INTO tidelock_counter (one, token, format) VALUES (1, {NOW}, {FORMAT}) \
             ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))"
        ),
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
        waiters,
        sides,
    ]
}

/// Finds the tables, or creates them. Fails with `Unsupported` if a newer tidelock created them, and with `Refused`
/// if the user may not create them.
pub(crate) async fn ready(pool: &Pool, deadline: BootInstant) -> Result<()> {
    find_or_make(pool, deadline, None).await
}

/// As [`ready`], after a statement has failed because a table is missing: somebody has dropped it. If all locks need it, we
/// create it again, even if the counter is there.
pub(crate) async fn ready_again(
    pool: &Pool,
    deadline: BootInstant,
    failure: &RequestError,
) -> Result<()> {
    let missing = failure.missing_table();
    let missing = missing.filter(|table| NEEDED.contains(table));
    find_or_make(pool, deadline, missing).await
}

async fn find_or_make(pool: &Pool, deadline: BootInstant, missing: Option<&str>) -> Result<()> {
    let look = pool.ask(
        "SELECT format FROM tidelock_counter WHERE one = 1".to_owned(),
        deadline,
    );
    let found = match look.await {
        Err(failure) if failure.is_no_table() => Vec::new(),
        rows => rows.map_err(RequestError::error)?,
    };
    refuse_newer(&found)?;
    if found.is_empty() || missing.is_some() {
        make(pool, deadline, missing).await?;
    }
    Ok(())
}

/// Refuses tables whose format this program does not know. `found`: the row of the counter, if there is one.
fn refuse_newer(found: &[TextRow]) -> Result<()> {
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

/// Creates the tables. `missing`: one of those that all locks need, which is missing although the counter is there.
async fn make(pool: &Pool, deadline: BootInstant, missing: Option<&str>) -> Result<()> {
    if !pool.may_create() {
        let database = pool.database();
        let why = match missing {
            None => format!(
                "the database {database} has none of tidelock's tables, so no lock was ever acquired in it; check the URL. Only an acquire creates tables"
            ),
            Some(table) => format!(
                "the database {database} lacks the table {table}; a client that acquires locks creates it again, this one creates no tables"
            ),
        };
        return Err(Error::new(ErrorKind::InvalidOptions).because(why));
    }
    let by_hand = || {
        let lacks = match missing {
            None => "tidelock's tables do not exist, and this user may not create them".to_owned(),
            Some(table) => {
                format!("the table {table} does not exist, and this user may not create it")
            }
        };
        format!(
            "{lacks}; run this as a user with that right: {};",
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
    match pool.ask(statement, deadline).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(not_created(failure, what, by_hand)),
    }
}

/// The error of a statement that was to create `what`.
fn not_created(failure: RequestError, what: &str, by_hand: impl FnOnce() -> String) -> Error {
    if failure.is_denied() {
        return Error::new(ErrorKind::Refused).because(by_hand());
    }
    let error = failure.error();
    let kind = match error.kind() {
        ErrorKind::OutcomeUnknown => ErrorKind::Unavailable,
        kind => kind,
    };
    Error::new(kind)
        .because(format!("cannot create {what}"))
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::store::Env;
    use crate::store::mysql::errors::MysqlError;
    use crate::store::mysql::tests::server::{ScriptedServer, denied, no_table};
    use crate::store::mysql::tests::{env, pool, pool_at, row};
    use crate::store::tests::scripted::HANG_UP;

    #[test]
    fn only_tables_of_a_newer_tidelock_are_refused() {
        for known in [vec![], vec![row("0")], vec![row("1")], vec![row("x")]] {
            assert!(refuse_newer(&known).is_ok(), "{known:?}");
        }
        let error = refuse_newer(&[row("2")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("format 2"), "{error}");
    }

    /// The command looks at locks, and must leave no tables in a database that a user has named by mistake.
    #[tokio::test]
    async fn a_client_that_may_create_nothing_creates_nothing() {
        let (env, opened) = env();
        let env = Env {
            create: false,
            ..env
        };
        let pool = pool(&env);
        for (missing, words) in [
            (None, "none of tidelock's tables"),
            (Some("tidelock_clients"), "lacks the table tidelock_clients"),
        ] {
            let error = make(&pool, pool.deadline(), missing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.to_string().contains("database locks"), "{error}");
        }
        assert_eq!(opened.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_table_without_a_reply_is_not_reported_as_created() {
        let (env, opened) = env();
        let pool = pool(&env);
        let deadline = pool.deadline();
        pool.break_next();
        let error = make(&pool, deadline, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("tidelock's tables"), "{error}");
        pool.break_next();
        let error = make_later(&pool, "the marks", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("table of the marks"), "{error}");
        pool.break_next();
        assert!(ready(&pool, deadline).await.is_err());
        pool.break_next();
        let dropped = RequestError::Broken("x".to_owned());
        assert!(ready_again(&pool, deadline, &dropped).await.is_err());
        assert_eq!(opened.load(Ordering::SeqCst), 0, "nothing was sent again");
    }

    #[test]
    fn a_user_without_the_right_is_told_what_to_run() {
        let refused = |code| {
            let (text, undone) = ("x".to_owned(), true);
            let failure = RequestError::Server(MysqlError { code, text, undone });
            not_created(failure, "the tables", || "run this".to_owned())
        };
        for (code, kind, words) in [
            (1142, ErrorKind::Refused, "run this"),
            (1044, ErrorKind::Refused, "run this"),
            (1064, ErrorKind::Unsupported, "cannot create the tables"),
            (1213, ErrorKind::Unavailable, "cannot create the tables"),
            (1317, ErrorKind::Unavailable, "cannot create the tables"),
        ] {
            let error = refused(code);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    /// Otherwise another client could insert a row in between, and its tokens would begin again where the counter stands.
    #[test]
    fn the_counter_is_raised_before_there_is_a_table_of_the_locks() {
        let all = tables();
        let first = |words: &str| all.iter().position(|text| text.starts_with(words)).unwrap();
        let counter = first("CREATE TABLE IF NOT EXISTS tidelock_counter (");
        let raised = first("INSERT INTO tidelock_counter");
        assert!(counter < raised && raised < first("CREATE TABLE IF NOT EXISTS tidelock_locks ("));
        assert!(all[raised].contains("token = GREATEST(token, VALUES(token))"));
        for table in NEEDED {
            first(&format!("CREATE TABLE IF NOT EXISTS {table} ("));
        }
    }

    /// Another client may have made them.
    #[tokio::test]
    async fn tables_are_made_only_where_there_is_no_counter() {
        for (format, made, is_ready) in [
            ("1", 0, true),
            ("EMPTY", 6, true),
            (&no_table("tidelock_counter"), 6, true),
            ("2", 0, false),
            (&denied("tidelock_counter"), 0, false),
            (HANG_UP, 0, false),
        ] {
            let server = ScriptedServer::start().await;
            let pool = pool_at(&server);
            server.answers("SELECT format", &[format]);
            let outcome = ready(&pool, pool.deadline()).await;
            assert_eq!(outcome.is_ok(), is_ready, "{format}");
            assert_eq!(server.made(), made, "{format}");
        }
    }

    #[tokio::test]
    async fn a_table_that_all_locks_need_is_made_again_although_the_counter_is_there() {
        for (table, made) in [
            ("tidelock_locks", 6),
            ("tidelock_clients", 6),
            ("tidelock_counter", 6),
            ("tidelock_waiters", 0),
            ("tidelock_marks", 0),
        ] {
            let server = ScriptedServer::start().await;
            let pool = pool_at(&server);
            let text = format!("Table 'locks.{table}' doesn't exist");
            let (code, undone) = (1146, true);
            let failure = RequestError::Server(MysqlError { code, text, undone });
            let outcome = ready_again(&pool, pool.deadline(), &failure).await;
            assert!(outcome.is_ok(), "{table}");
            assert_eq!(server.made(), made, "{table}");
        }
    }

    /// A table of the locks without the counter would begin its tokens again.
    #[tokio::test]
    async fn nothing_is_made_after_a_table_that_could_not_be_made() {
        for (missing, words) in [
            (None, "tidelock's tables do not exist"),
            (
                Some("tidelock_locks"),
                "the table tidelock_locks does not exist",
            ),
        ] {
            let server = ScriptedServer::start().await;
            let pool = pool_at(&server);
            server.answers(
                "INSERT INTO tidelock_counter",
                &[&denied("tidelock_counter")],
            );
            let error = make(&pool, pool.deadline(), missing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            let all = one_line(&tables().join("; "));
            assert!(error.to_string().contains(&all), "{error}");
            assert_eq!(server.made(), 2, "the counter, and its row");
        }
    }

    #[tokio::test]
    async fn a_table_of_an_earlier_database_is_made_when_it_is_needed() {
        let server = ScriptedServer::start().await;
        let pool = pool_at(&server);
        server.answers(
            "CREATE TABLE",
            &["OK", "ERR 1044 Access denied", "ERR 1064 syntax"],
        );
        let [waiters, _] = TABLES;
        assert!(make_later(&pool, "the queues", waiters).await.is_ok());
        assert_eq!(server.statements(), [waiters]);
        for (kind, words) in [
            (
                ErrorKind::Refused,
                "the table of the queues does not exist or is out of",
            ),
            (
                ErrorKind::Unsupported,
                "cannot create the table of the queues",
            ),
        ] {
            let error = make_later(&pool, "the queues", waiters).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
