//! The marks of a job's slots: a table of its own, which the first mark creates. A database of an earlier tidelock has
//! none.

use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::since_epoch;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::raw_connection::{TextRow, is_any, number, text};
use crate::store::mysql::sql::{NOW, SWEPT, hex, id, micros};
use crate::store::mysql::{Mysql, schema};
use crate::store::{BoxFuture, MarkChange, Marks, Name};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tidelock_marks (\n\
    \x20 id BINARY(32) NOT NULL, -- SHA-256 of the name\n\
    \x20 slot VARBINARY(255) NOT NULL,\n\
    \x20 mark BLOB NOT NULL,\n\
    \x20 written BIGINT NOT NULL,\n\
    \x20 expires BIGINT NOT NULL, -- microseconds since 1970, by the server's clock\n\
    \x20 PRIMARY KEY (id, slot),\n\
    \x20 KEY expires (expires)\n\
    ) ENGINE = InnoDB";

fn read(name: &Name, slot: &str) -> String {
    format!(
        "SELECT mark FROM tidelock_marks WHERE id = {} AND slot = {} AND expires > {NOW}",
        id(name),
        hex(slot)
    )
}

/// Answers: 1 if the slot has the mark `after` now. A mark is unique, so it is the one that this text wrote.
///
/// The assignments run from left to right: `expires` is last, because the others read it.
fn replace(name: &Name, change: MarkChange<'_>) -> String {
    let (id, slot) = (id(name), hex(change.slot));
    let (after, keep) = (hex(change.after), micros(change.keep));
    let change = match change.before {
        None => format!(
            "INSERT INTO tidelock_marks (id, slot, mark, written, expires) VALUES ({id}, {slot}, {after}, {NOW}, {NOW} + {keep}) \
             ON DUPLICATE KEY UPDATE mark = IF(expires <= {NOW}, {after}, mark), written = IF(expires <= {NOW}, {NOW}, written), \
             expires = IF(expires <= {NOW}, {NOW} + {keep}, expires)"
        ),
        Some(before) => format!(
            "UPDATE tidelock_marks SET mark = {after}, written = {NOW}, expires = {NOW} + {keep} \
             WHERE id = {id} AND slot = {slot} AND mark = {} AND expires > {NOW}",
            hex(before)
        ),
    };
    format!(
        "{change}; SELECT COUNT(*) FROM tidelock_marks WHERE id = {id} AND slot = {slot} AND mark = {after}"
    )
}

fn newest(name: &Name, limit: u32) -> String {
    format!(
        "SELECT slot, mark FROM tidelock_marks WHERE id = {} AND expires > {NOW} ORDER BY written DESC LIMIT {limit}",
        id(name)
    )
}

fn sweep() -> String {
    format!("DELETE FROM tidelock_marks WHERE expires <= {NOW} ORDER BY expires LIMIT {SWEPT}")
}

impl Mysql {
    async fn wall_time(&self) -> Result<SystemTime> {
        let rows = self.ask(format!("SELECT {NOW} DIV 1000")).await?;
        let row = rows.first().ok_or_else(|| {
            Error::new(ErrorKind::Unavailable).because("the server did not tell its time")
        })?;
        number(row, 0).map(since_epoch)
    }

    async fn read_mark(&self, name: &Name, slot: &str) -> Result<Option<String>> {
        let rows = self.if_there(read(name, slot)).await?;
        rows.first().map(|row| text(row, 0)).transpose()
    }

    async fn replace_mark(&self, name: &Name, change: MarkChange<'_>) -> Result<bool> {
        let change = replace(name, change);
        let deadline = self.pool.deadline();
        let rows = match self.pool.ask(change.clone(), deadline).await {
            Err(failure) if failure.is_no_table() => {
                schema::make_later(&self.pool, "the marks", TABLE).await?;
                self.pool.ask(change, deadline).await
            }
            rows => rows,
        };
        let rows = rows.map_err(RequestError::error)?;
        let is_written = is_any(&rows)?;
        // A failed sweep does no harm; the next write repeats it.
        if let Err(error) = self.ask(sweep()).await {
            tracing::debug!(%error, "cannot delete expired marks");
        }
        Ok(is_written)
    }

    async fn newest_marks(&self, name: &Name, limit: u32) -> Result<Vec<(String, String)>> {
        let rows = self.if_there(newest(name, limit)).await?;
        let pairs = rows.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?)));
        pairs.collect()
    }

    /// Reads. Without the table there is nothing to read.
    pub(super) async fn if_there(&self, statement: String) -> Result<Vec<TextRow>> {
        match self.pool.ask(statement, self.pool.deadline()).await {
            Err(failure) if failure.is_no_table() => Ok(Vec::new()),
            rows => rows.map_err(RequestError::error),
        }
    }
}

impl Marks for Mysql {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        Box::pin(self.wall_time())
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(self.read_mark(name, slot))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.replace_mark(name, change))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        Box::pin(self.newest_marks(name, limit))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockKind;
    use crate::store::mysql::tests::server::{ScriptedServer, denied, no_table};
    use crate::store::mysql::tests::{mysql_at, ticket};
    use crate::store::tests::scripted::HANG_UP;

    #[test]
    fn each_statement_is_about_the_slots_of_one_name() {
        let name = ticket(LockKind::Mutex).name;
        let (keep, slot) = (Duration::from_secs(60), hex("noon"));
        let change = |before| MarkChange::unacknowledged("noon", before, "done", keep);
        for text in [
            read(&name, "noon"),
            replace(&name, change(None)),
            replace(&name, change(Some("begun"))),
        ] {
            assert!(text.contains(&id(&name)) && text.contains(&slot), "{text}");
        }
        let text = newest(&name, 3);
        assert!(
            text.contains(&id(&name)) && text.ends_with("LIMIT 3"),
            "{text}"
        );
    }

    /// Two processes that begin the same slot must not both succeed.
    #[test]
    fn a_mark_replaces_only_the_one_that_it_names() {
        let name = ticket(LockKind::Mutex).name;
        let keep = Duration::from_secs(60);
        let change = |before| {
            replace(
                &name,
                MarkChange::unacknowledged("noon", before, "done", keep),
            )
        };
        let named = change(Some("begun"));
        let condition = format!("mark = {} AND expires > {NOW}", hex("begun"));
        assert!(
            named.starts_with("UPDATE") && named.contains(&condition),
            "{named}"
        );
        let new = change(None);
        assert!(new.starts_with("INSERT"), "{new}");
        assert!(
            new.contains(&format!("IF(expires <= {NOW}, {}, mark)", hex("done"))),
            "{new}"
        );
        for text in [named, new] {
            assert!(text.contains(&format!("{NOW} + 60000000")), "{text}");
            assert!(text.ends_with(&format!("mark = {}", hex("done"))), "{text}");
        }
    }

    #[test]
    fn only_expired_marks_are_deleted() {
        let text = sweep();
        assert!(text.starts_with("DELETE FROM tidelock_marks"), "{text}");
        assert!(text.contains(&format!("WHERE expires <= {NOW} ")), "{text}");
    }

    /// The first mark of a slot.
    fn first() -> MarkChange<'static> {
        MarkChange::unacknowledged("noon", None, "done", Duration::from_secs(60))
    }

    #[tokio::test]
    async fn the_first_mark_of_a_database_makes_their_table() {
        for (answers, made, written) in [
            (["1", "OK"], 0, Some(true)),
            (["0", "OK"], 0, Some(false)),
            ([&no_table("tidelock_marks"), "1"], 1, Some(true)),
            ([&denied("tidelock_marks"), "1"], 0, None),
            ([HANG_UP, "1"], 0, None),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers("INSERT INTO tidelock_marks", &answers);
            let name = ticket(LockKind::Mutex).name;
            let done = mysql.replace_mark(&name, first()).await;
            assert_eq!(done.ok(), written, "{answers:?}");
            assert_eq!(server.made(), made, "{answers:?}");
            let swept = server.heard("DELETE FROM tidelock_marks").len();
            assert_eq!(swept, usize::from(written.is_some()), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_mark_is_written_even_if_old_ones_cannot_be_deleted() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers("INSERT INTO tidelock_marks", &["1"]);
        server.answers("DELETE", &["ERR 1205 Lock wait timeout"]);
        let name = ticket(LockKind::Mutex).name;
        assert!(mysql.replace_mark(&name, first()).await.unwrap());
    }

    #[tokio::test]
    async fn a_database_without_the_table_of_the_marks_has_none() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        let name = ticket(LockKind::Mutex).name;
        for (answer, mark, history) in [
            ("noon done", Some(Some("noon")), Some(1)),
            ("EMPTY", Some(None), Some(0)),
            (&no_table("tidelock_marks"), Some(None), Some(0)),
            (&denied("tidelock_marks"), None, None),
        ] {
            server.answers("SELECT mark", &[answer]);
            server.answers("SELECT slot, mark", &[answer]);
            let read = mysql.read_mark(&name, "noon").await.ok();
            assert_eq!(read.as_ref().map(Option::as_deref), mark, "{answer}");
            let newest = mysql.newest_marks(&name, 3).await.ok();
            assert_eq!(newest.map(|marks| marks.len()), history, "{answer}");
        }
        assert_eq!(server.made(), 0);
    }

    #[tokio::test]
    async fn the_time_of_the_store_is_that_of_the_server() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers("SELECT TIMESTAMPDIFF", &["5000", "EMPTY"]);
        assert_eq!(mysql.wall_time().await.unwrap(), since_epoch(5000));
        let error = mysql.wall_time().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
