//! The table of the holders and waiters of semaphores: its part of [`fair_waiters`](crate::store::fair_waiters).

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::store::fair_waiters::{COUNTED, FairWaiters, QueueLook, QueueTable};
use crate::store::permit_order::permit_turns_ahead;
use crate::store::postgres::connection::{Connection, TextAnswer};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::permit_sql::PermitSql;
use crate::store::postgres::queue_sql::{QueueSql, SEPARATOR};
use crate::store::postgres::schema::Sql;
use crate::store::postgres::tables;
use crate::store::postgres::wake::NotifyListener;
use crate::store::{Env, Liveness, Name};

/// What both sides of the store share for semaphores.
pub(crate) struct PermitLocks {
    pub(crate) sql: Arc<PermitSql>,
    pub(crate) waiters: Arc<FairWaiters<PermitTable>>,
}

impl PermitLocks {
    /// `back`: the connection of the steward's thread, on which the looks run.
    pub(crate) fn new(
        (plain, queue): (&Arc<Sql>, &Arc<QueueSql>),
        back: &Connection,
        listener: &Arc<NotifyListener>,
        env: &Env,
    ) -> Arc<Self> {
        let sql = Arc::new(PermitSql::new(Arc::clone(queue)));
        let table = PermitTable {
            connection: back.clone(),
            sql: Arc::clone(&sql),
            plain: Arc::clone(plain),
            listener: Arc::clone(listener),
        };
        let waiters = FairWaiters::new(table, listener.signals(), &env.timers, &env.background);
        Arc::new(Self { sql, waiters })
    }
}

/// The table of the permits, on a connection.
pub(crate) struct PermitTable {
    connection: Connection,
    sql: Arc<PermitSql>,
    /// The statements of a lock without a queue.
    plain: Arc<Sql>,
    listener: Arc<NotifyListener>,
}

impl QueueTable for PermitTable {
    async fn look(&self, name: &Name, client: &str, beat: bool) -> Result<QueueLook> {
        let text = self.sql.look_at_permits(name, client, beat);
        let (plain, somebody) = (&self.plain, Liveness::default());
        let answer = ask(&self.connection, plain, &self.sql, &somebody, &text).await;
        let columns = answer.map_err(RequestError::error)?;
        let number = |column| {
            let number = columns.number(column)?;
            Ok(i64::try_from(number).unwrap_or(i64::MAX))
        };
        Ok(QueueLook {
            waiting: parts(&columns)?.map(str::to_owned).collect(),
            ahead: permit_turns_ahead(number(2)?, number(1)?).min(COUNTED),
            left: Duration::from_micros(columns.number(3)?),
        })
    }

    fn is_told(&self) -> bool {
        self.listener.is_live()
    }
}

/// What the first column of an answer enumerates.
pub(crate) fn parts(columns: &TextAnswer) -> Result<impl Iterator<Item = &str>> {
    let parts = columns.text(0)?.split(SEPARATOR);
    Ok(parts.filter(|part| !part.is_empty()))
}

/// Sends one request. Makes the tables if they are missing.
pub(crate) async fn ask(
    connection: &Connection,
    plain: &Sql,
    sql: &PermitSql,
    liveness: &Liveness,
    text: &str,
) -> Result<TextAnswer, RequestError> {
    let made_by = ("a table of the semaphores", &*sql.make);
    tables::ask_and_make(connection, plain, made_by, liveness, text).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{ROW_TAKEN, big, row, text};
    use crate::store::postgres::tests::{env, queue_texts, sql, stock};

    #[tokio::test]
    async fn a_look_shows_the_waiters_of_this_process_and_the_turns_ahead() {
        let server = ScriptedDatabase::start().await;
        let (plain, queue, connection) = (
            Arc::new(sql()),
            Arc::new(queue_texts()),
            server.connection(),
        );
        let listener = NotifyListener::new(server.connection(), connection.clone(), &plain, &env());
        let table = PermitTable {
            connection,
            sql: Arc::new(PermitSql::new(queue)),
            plain,
            listener,
        };
        for (owners, wanted, total, left, turns) in [
            ("c:1 c:2", 4, 2, 5, 2),
            ("c:1", 0, 2, 0, 0),
            ("", 5000, 1, 7, COUNTED),
        ] {
            server.answers([row([text(owners), big(wanted), big(total), big(left)])]);
            let look = table.look(&stock(), "c", false).await.unwrap();
            let mut waiting: Vec<String> = look.waiting.into_iter().collect();
            waiting.sort_unstable();
            assert_eq!(waiting.join(" "), owners);
            assert_eq!(look.ahead, turns, "{wanted} of {total}");
            let left = Duration::from_micros(left.unsigned_abs());
            assert_eq!(look.left, left);
        }
        server.answers([ROW_TAKEN]);
        let failed = table.look(&stock(), "c", false).await;
        assert!(failed.is_err());
        assert!(!table.is_told(), "nobody listens");
    }
}
