//! Sweeps: see [`sweeper`](crate::store::sweeper). The connect makes the first one, which also shows that this user and this
//! server may write.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::store::Env;
use crate::store::postgres::address::Address;
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::schema::{SWEPT, Sql};
use crate::store::sweeper::SweptTables;

/// How long a statement may take. It may have to read the whole table.
const LIMIT: Duration = Duration::from_secs(60);

/// The tables, and a connection that is open during a sweep only. On that of other requests they would wait for each batch.
pub(crate) struct PostgresTables {
    connection: Connection,
    sql: Arc<Sql>,
    /// Statements that delete what dead waiters and holders have left: those of the queues of locks, and of semaphores.
    tidy: [String; 2],
}

impl PostgresTables {
    pub(crate) fn new(address: &Arc<Address>, env: &Env, sql: &Arc<Sql>, tidy: [&str; 2]) -> Self {
        let env = Env {
            response_timeout: LIMIT,
            ..env.clone()
        };
        Self {
            connection: Connection::new(Arc::clone(address), &env),
            sql: Arc::clone(sql),
            tidy: tidy.map(str::to_owned),
        }
    }
}

impl SweptTables for PostgresTables {
    async fn sweep_batch(&self) -> Result<bool> {
        batch(&self.connection, &self.sql).await
    }

    async fn finish(&self) {
        tidy(&self.connection, self.tidy.each_ref().map(String::as_str)).await;
        self.connection.close();
    }
}

/// Deletes what dead waiters and holders have left. A client that lives for seconds only never sweeps; so each does this when
/// it announces its process too.
pub(crate) async fn tidy(connection: &Connection, statements: [&str; 2]) {
    for statement in statements {
        if let Err(failure) = connection.run(statement).await
            && !failure.is_no_table()
        {
            let error = failure.error();
            tracing::debug!(%error, "old rows of queues were not deleted");
        }
    }
}

/// Deletes a batch of rows. Returns whether it was full.
pub(crate) async fn batch(connection: &Connection, sql: &Sql) -> Result<bool> {
    let rows = connection.ask(&sql.sweep, &[]).await;
    let rows = rows.map_err(RequestError::error)?;
    let deleted = rows.first().map(|row| row.get::<_, i64>(0));
    // Some plans read the list of rows again and again, and then delete more than its limit.
    Ok(deleted.is_some_and(|rows| rows >= SWEPT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::sql;
    use crate::store::postgres::tests::wire::{NO_RIGHT, NO_TABLE, NOTHING, big, row};

    #[tokio::test]
    async fn only_a_batch_that_was_full_is_gone_on_with() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        for (answer, is_full) in [
            (row([big(SWEPT - 1)]), false),
            (row([big(SWEPT)]), true),
            (row([big(SWEPT + 1)]), true),
            (NOTHING, false),
        ] {
            server.on(&sql().sweep, [answer.clone()]);
            let swept = batch(&connection, &sql()).await;
            assert_eq!(swept.unwrap(), is_full, "{answer:?}");
        }
        server.on(&sql().sweep, [NO_RIGHT]);
        batch(&connection, &sql()).await.unwrap_err();
    }

    #[tokio::test]
    async fn each_table_is_tidied_whatever_becomes_of_the_others() {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        for answer in [NO_TABLE, NO_RIGHT, NOTHING] {
            server.answers([answer, NOTHING]);
            tidy(&connection, ["one", "other"]).await;
            assert_eq!(server.texts(), ["one", "other"]);
        }
    }
}
