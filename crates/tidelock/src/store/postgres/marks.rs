//! The marks of a job's slots: a table of its own, which the first mark creates. A database of an earlier tidelock has
//! none.

use std::time::SystemTime;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Result;
use crate::snapshot::since_epoch;
use crate::store::errors::unexpected;
use crate::store::postgres::Postgres;
use crate::store::postgres::columns::micros;
use crate::store::postgres::connection::Param;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::mark_sql::{MarkSql, NOW};
use crate::store::postgres::tables;
use crate::store::{BoxFuture, MarkChange, Marks, Name};

impl Postgres {
    async fn wall_time(&self) -> Result<SystemTime> {
        let ask = format!("SELECT (extract(epoch FROM {NOW}) * 1000)::bigint");
        let rows = self.connection.ask(&ask, &[]).await;
        let rows = rows.map_err(RequestError::error)?;
        let millis = rows.first().map(|row| row.get::<_, i64>(0));
        let millis = millis.and_then(|millis| u64::try_from(millis).ok());
        millis
            .map(since_epoch)
            .ok_or_else(|| unexpected("the server did not tell its time"))
    }

    async fn read_mark(&self, name: &Name, slot: &str) -> Result<Option<String>> {
        let name = name.as_str();
        let params = [(&name as _, Type::TEXT), (&slot as _, Type::TEXT)];
        let rows = self.if_there(&self.sql.marks.read, &params).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn replace_mark(&self, name: &Name, change: MarkChange<'_>) -> Result<bool> {
        let MarkChange {
            slot,
            before,
            after,
            keep,
            ..
        } = change;
        let (name, keep) = (name.as_str(), micros(keep));
        let mut params: Vec<Param<'_>> = vec![
            (&name as _, Type::TEXT),
            (&slot as _, Type::TEXT),
            (&after as _, Type::TEXT),
            (&keep as _, Type::INT8),
        ];
        let MarkSql {
            make, put, replace, ..
        } = &self.sql.marks;
        let statement = match &before {
            Some(before) => {
                params.push((before as _, Type::TEXT));
                replace
            }
            None => put,
        };
        let rows = match self.connection.ask(statement, &params).await {
            Err(failure) if failure.is_no_table() => {
                tables::make(&self.connection, "the table of the marks", make).await?;
                self.connection.ask(statement, &params).await
            }
            rows => rows,
        };
        Ok(!rows.map_err(RequestError::error)?.is_empty())
    }

    async fn newest_marks(&self, name: &Name, limit: u32) -> Result<Vec<(String, String)>> {
        let (name, limit) = (name.as_str(), i64::from(limit));
        let params = [(&name as _, Type::TEXT), (&limit as _, Type::INT8)];
        let rows = self.if_there(&self.sql.marks.history, &params).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Reads. Without the table there is nothing to read.
    async fn if_there(&self, statement: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        match self.connection.ask(statement, params).await {
            Err(failure) if failure.is_no_table() => Ok(Vec::new()),
            rows => rows.map_err(RequestError::error),
        }
    }
}

impl Marks for Postgres {
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
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{
        NO_RIGHT, NO_TABLE, NOTHING, ServerAnswer, big, int, row, text,
    };
    use crate::store::postgres::tests::{sql, stock};

    #[tokio::test]
    async fn the_time_is_that_of_the_server() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let marks = store.front.extensions().marks.unwrap();
        server.answers([row([big(1500)]), row([big(-1)]), NOTHING]);
        let now = marks.now(&stock()).await.unwrap();
        assert_eq!(now, UNIX_EPOCH + Duration::from_millis(1500));
        for _ in 0..2 {
            assert!(marks.now(&stock()).await.unwrap_err().outcome_unknown());
        }
    }

    #[tokio::test]
    async fn without_the_table_of_the_marks_there_are_none() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let marks = store.front.extensions().marks.unwrap();
        for (answer, mark) in [
            (row([text("done")]), Some("done")),
            (NOTHING, None),
            (NO_TABLE, None),
        ] {
            server.answers([answer]);
            let read = marks.read(&stock(), "slot").await.unwrap();
            assert_eq!(read.as_deref(), mark);
            assert_eq!(server.asked()[0].params, ["stock", "slot"]);
        }
        server.answers([row([text("slot"), text("done")]), NO_TABLE]);
        for expected in [1, 0] {
            let history = marks.history(&stock(), 7).await.unwrap();
            let one = ("slot".to_owned(), "done".to_owned());
            assert_eq!(history, vec![one; expected]);
            assert_eq!(server.asked()[0].params, ["stock", "7"]);
        }
        server.answers([NO_RIGHT, NO_RIGHT]);
        let error = marks.read(&stock(), "slot").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        marks.history(&stock(), 7).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_mark_is_replaced_only_if_it_is_the_expected_one() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let marks = store.front.extensions().marks.unwrap();
        let MarkSql {
            make, put, replace, ..
        } = sql().marks;
        for (before, statement) in [(None, &put), (Some("begun"), &replace)] {
            for (answers, told) in [
                (vec![row([int(1)])], Ok(true)),
                (vec![NOTHING], Ok(false)),
                (vec![NO_TABLE, NOTHING, row([int(1)])], Ok(true)),
                (vec![NO_TABLE, NO_RIGHT], Err(ErrorKind::Refused)),
                (vec![ServerAnswer::HangsUp], Err(ErrorKind::OutcomeUnknown)),
            ] {
                let keep = Duration::from_secs(3);
                let change = MarkChange::unacknowledged("slot", before, "done", keep);
                server.answers(answers.clone());
                let replaced = marks.replace(&stock(), change).await;
                assert_eq!(replaced.map_err(|error| error.kind()), told);
                let asked = server.asked();
                assert_eq!(asked.len(), answers.len());
                assert_eq!(&asked[0].text, statement);
                let params = ["stock", "slot", "done", "3000000"].into_iter();
                let params: Vec<&str> = params.chain(before).collect();
                assert_eq!(asked[0].params, params);
                assert!(asked.get(1).is_none_or(|second| second.text == make));
            }
        }
    }
}
