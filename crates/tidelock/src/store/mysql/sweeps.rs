//! Sweeps: see [`sweeper`](crate::store::sweeper).
//!
//! Those of several clients wait for each other at the counter. The later one then finds the rows deleted that it has chosen
//! before. So its batch is not full, and it leaves the rest to the other client.

use crate::error::Result;
use crate::store::mysql::connection::{Pool, Statements};
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql;
use crate::store::mysql::raw_connection::{TextRow, count};
use crate::store::mysql::sql::{SWEPT, sweep};
use crate::store::sweeper::SweptTables;

/// The tables, and the connections of the steward. A sweep takes one of them at a time.
pub(crate) struct MysqlTables(pub(crate) Pool);

impl SweptTables for MysqlTables {
    async fn sweep_batch(&self) -> Result<bool> {
        let text = Statements::Transaction(sweep());
        let rows = self.0.ask(text, self.0.deadline()).await;
        is_full(&rows.map_err(RequestError::error)?)
    }

    async fn finish(&self) {
        for text in queue_sql::sweeps() {
            if let Err(failure) = self.0.ask(text, self.0.deadline()).await
                && !failure.is_no_table()
            {
                let error = failure.error();
                tracing::debug!(%error, "cannot delete dead waiters");
            }
        }
    }
}

/// Reads whether a batch had as many rows as it may have.
fn is_full(rows: &[TextRow]) -> Result<bool> {
    Ok(count(rows)? == u64::from(SWEPT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::mysql::tests::server::{ScriptedServer, no_table};
    use crate::store::mysql::tests::{pool_at, row};

    /// Otherwise a table with many old rows would grow, or a sweep would never end.
    #[test]
    fn a_sweep_goes_on_only_after_a_full_batch() {
        for (deleted, is_more) in [(0, false), (SWEPT - 1, false), (SWEPT, true)] {
            let answer = [row(&deleted.to_string())];
            assert_eq!(is_full(&answer).unwrap(), is_more, "{deleted}");
        }
        assert!(is_full(&[]).unwrap_err().outcome_unknown());
    }

    #[tokio::test]
    async fn a_sweep_goes_through_the_locks_in_batches_and_then_through_each_queue() {
        let server = ScriptedServer::start().await;
        let tables = MysqlTables(pool_at(&server));
        server.answers("START TRANSACTION; SET @tidelock_past", &["500", "499"]);
        assert!(tables.sweep_batch().await.unwrap());
        assert!(!tables.sweep_batch().await.unwrap());
        server.answers("DELETE", &[&no_table(queue_sql::WAITERS), "OK"]);
        tables.finish().await;
        assert_eq!(server.heard("DELETE").len(), queue_sql::TABLES.len());
    }
}
