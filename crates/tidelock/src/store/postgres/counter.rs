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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::schema::raise;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{
        NO_RIGHT, NO_TABLE, NOTHING, ServerAnswer, big, null, row,
    };
    use crate::store::postgres::tests::{sql, stock};

    /// The last number of the sequence, and the token of the lock.
    fn tokens(last: i64, of_lock: Option<i64>) -> ServerAnswer {
        row([big(last), of_lock.map_or(null(Type::INT8), big)])
    }

    #[tokio::test]
    async fn a_counter_is_raised_only_if_it_is_behind() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let counter = store.front.extensions().token_counter.unwrap();
        let (ask, raise) = (sql().counter, raise(&sql().table, 8));
        for (answers, newest, texts) in [
            (vec![tokens(8, None)], 8, vec![&ask]),
            (vec![tokens(9, Some(7))], 9, vec![&ask]),
            // The sequence is behind the row.
            (vec![tokens(9, Some(12))], 12, vec![&ask]),
            (
                vec![tokens(7, Some(7)), NOTHING, tokens(8, Some(7))],
                8,
                vec![&ask, &raise, &ask],
            ),
            (
                vec![tokens(7, Some(20)), NOTHING, tokens(11, Some(20))],
                20,
                vec![&ask, &raise, &ask],
            ),
            (
                vec![tokens(7, None), NO_TABLE, NOTHING, tokens(8, None)],
                8,
                vec![&ask, &raise, &raise, &ask],
            ),
        ] {
            server.answers(answers.clone());
            let raised = counter.raise(&stock(), 8).await;
            assert_eq!(raised.unwrap(), newest, "{answers:?}");
            let asked = server.texts();
            assert_eq!(asked.iter().collect::<Vec<_>>(), texts, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_counter_that_shows_no_token_is_an_error() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let counter = store.front.extensions().token_counter.unwrap();
        for (answers, kind) in [
            (vec![tokens(-1, None)], ErrorKind::WrongType),
            (vec![NOTHING], ErrorKind::OutcomeUnknown),
            (vec![NO_RIGHT], ErrorKind::Refused),
            (vec![tokens(7, None), NO_RIGHT], ErrorKind::Refused),
        ] {
            server.answers(answers.clone());
            let error = counter.raise(&stock(), 8).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{answers:?}");
        }
    }
}
