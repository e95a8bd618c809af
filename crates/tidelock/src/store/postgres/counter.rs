//! The counter of the fencing tokens.

use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::unexpected;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::{Postgres, schema, tables};
use crate::store::{BoxFuture, Name, TokenCounter};

impl Postgres {
    /// The last number of the sequence, which the new tokens of all names come from, and the newest token of this name.
    async fn tokens(&self, name: &Name) -> Result<(u64, u64)> {
        let name = name.as_str();
        let params = [(&name as _, Type::TEXT)];
        let rows = tables::ask(&self.connection, &self.sql, &self.sql.counter, &params).await;
        let rows = rows.map_err(RequestError::error)?;
        let row = rows
            .first()
            .ok_or_else(|| unexpected("the sequence has no row"))?;
        let (last, of_lock): (i64, Option<i64>) = (row.get(0), row.get(1));
        let last = u64::try_from(last).map_err(|_| {
            Error::new(ErrorKind::WrongType).because(format!(
                "the sequence of the fencing tokens is at {last}, which is not a token; restart it at the largest token in use"
            ))
        })?;
        // The token of the row is the larger one if the sequence is behind.
        let of_lock = of_lock.and_then(|token| u64::try_from(token).ok());
        Ok((last, of_lock.map_or(last, |token| token.max(last))))
    }

    async fn raise_tokens(&self, name: &Name, at_least: u64) -> Result<u64> {
        let (last, newest) = self.tokens(name).await?;
        if last >= at_least {
            return Ok(newest);
        }
        let at_least = i64::try_from(at_least).unwrap_or(i64::MAX);
        let raise = schema::raise(&self.sql.table, at_least);
        let raised = match self.connection.run(&raise).await {
            // The sequence is there, and the table of the locks is not.
            Err(failure) if failure.is_no_table() => {
                tables::make_all(&self.connection, &self.sql).await?;
                self.connection.run(&raise).await
            }
            raised => raised,
        };
        raised.map_err(RequestError::error)?;
        Ok(self.tokens(name).await?.1)
    }
}

impl TokenCounter for Postgres {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.raise_tokens(name, newest))
    }
}
