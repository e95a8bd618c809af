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
