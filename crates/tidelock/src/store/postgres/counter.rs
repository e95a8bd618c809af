//! The counter of the fencing tokens.

use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::unexpected;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::{Postgres, schema};
use crate::store::{BoxFuture, Name, TokenCounter};

impl Postgres {
    /// The newest token of all names, which come from one sequence.
    async fn newest_token(&self) -> Result<u64> {
        let rows = self.connection.ask(&self.sql.counter, &[]).await;
        let rows = rows.map_err(RequestError::error)?;
        let newest = rows.first().map(|row| row.get::<_, i64>(0));
        let newest = newest.ok_or_else(|| unexpected("the sequence has no row"))?;
        u64::try_from(newest).map_err(|_| {
            Error::new(ErrorKind::WrongType).because(format!(
                "the sequence of the fencing tokens is at {newest}, which is not a token; restart it at the largest token in use"
            ))
        })
    }

    async fn raise_tokens(&self, newest: u64) -> Result<u64> {
        let seen = self.newest_token().await?;
        if seen >= newest {
            return Ok(seen);
        }
        let newest = i64::try_from(newest).unwrap_or(i64::MAX);
        let raise = schema::raise(&self.sql.table, newest);
        let raised = self.connection.run(&raise).await;
        raised.map_err(RequestError::error)?;
        self.newest_token().await
    }
}

impl TokenCounter for Postgres {
    fn raise<'a>(&'a self, _name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.raise_tokens(newest))
    }
}
