//! The looks at the queues of fair and read-write locks: the part of this store in [`fair_waiters`](crate::store::fair_waiters).

use std::time::Duration;

use crate::error::Result;
use crate::store::Name;
use crate::store::fair_waiters::{COUNTED, QueueLook, QueueTable};
use crate::store::mysql::connection::{Pool, Statements};
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql::{self, lacks_queue};
use crate::store::mysql::raw_connection::{TextRow, number, text};
use crate::store::side_order::turns_of;

/// The queue table, on connections of its own: looks at many queues keep no renewal waiting.
pub(crate) struct MysqlQueue {
    pub(crate) pool: Pool,
}

impl QueueTable for MysqlQueue {
    async fn look(&self, name: &Name, client: &str, beat: bool) -> Result<QueueLook> {
        if !beat {
            let look = self.ask(queue_sql::look(name, client).into()).await?;
            if !may_grant(&look) {
                return Ok(look);
            }
        }
        let text = queue_sql::serve_and_look(name, client, beat);
        self.ask(Statements::Transaction(text)).await
    }
}

impl MysqlQueue {
    async fn ask(&self, statements: Statements) -> Result<QueueLook> {
        let rows = match self.pool.ask(statements, self.pool.deadline()).await {
            // Nobody has a place. The next attempts make the table.
            Err(failure) if failure.is_no_table() || lacks_queue(&failure) => {
                return Ok(QueueLook::default());
            }
            rows => rows.map_err(RequestError::error)?,
        };
        read_queue(&rows)
    }
}

/// Whether the lock is free, and a waiter of this process may be next.
fn may_grant(look: &QueueLook) -> bool {
    look.left.is_zero() && !look.waiting.is_empty()
}

/// Reads the answer to a look.
fn read_queue(rows: &[TextRow]) -> Result<QueueLook> {
    let mut look = QueueLook::default();
    for row in rows {
        look.left = Duration::from_micros(number(row, 0)?);
        look.ahead = turns_of(&text(row, 1)?).min(COUNTED);
        let owner = text(row, 2)?;
        if !owner.is_empty() {
            look.waiting.insert(owner);
        }
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LockKind;
    use crate::store::mysql::queue_sql::{SIDES, WAITERS};
    use crate::store::mysql::tests::server::{
        LOOK, SERVES, ScriptedServer, denied, later, no_table,
    };
    use crate::store::mysql::tests::{pool_at, row, ticket};

    /// The looks of waiters grant the lock that a client without their queue has left free.
    #[test]
    fn only_a_free_lock_with_a_waiter_of_this_process_is_granted_by_a_look() {
        let second = Duration::from_secs(1);
        for (left, waiting, grants) in [
            (Duration::ZERO, &["c:1"][..], true),
            (Duration::ZERO, &[], false),
            (second, &["c:1"], false),
            (second, &[], false),
        ] {
            let waiting = waiting.iter().map(|owner| (*owner).to_owned()).collect();
            let look = QueueLook {
                waiting,
                left,
                ..QueueLook::default()
            };
            assert_eq!(may_grant(&look), grants, "{look:?}");
        }
    }

    #[test]
    fn a_look_shows_each_waiter_of_this_process_and_its_distance_from_the_head() {
        let rows = [row("3000 rw c:1"), row("3000 rw c:2")];
        let look = read_queue(&rows).unwrap();
        assert_eq!(look.left, Duration::from_millis(3));
        assert_eq!(look.ahead, 1);
        let mut waiting: Vec<String> = look.waiting.into_iter().collect();
        waiting.sort();
        assert_eq!(waiting, ["c:1", "c:2"]);
        let nobody = read_queue(&[row("3000  ")]).unwrap();
        assert!(nobody.waiting.is_empty() && nobody.ahead == 0);
        let crowd = format!("0 {} c:1", "w".repeat(600));
        assert_eq!(read_queue(&[row(&crowd)]).unwrap().ahead, COUNTED);
        for unreadable in ["x w c:1", "0 w NULL", "0 NULL c:1"] {
            let error = read_queue(&[row(unreadable)]).unwrap_err();
            assert!(error.outcome_unknown(), "{unreadable}");
        }
    }

    /// A transaction would keep the attempts at the lock waiting.
    #[tokio::test]
    async fn a_look_that_cannot_grant_and_shows_no_life_locks_nothing() {
        for (seen, beat, looks, transactions) in [
            ("3000 w c:1", false, 1, 0),
            ("0  ", false, 1, 0),
            ("0 w c:1", false, 1, 1),
            ("3000 w c:1", true, 0, 1),
        ] {
            let server = ScriptedServer::start().await;
            let table = MysqlQueue {
                pool: pool_at(&server),
            };
            server.answers(LOOK, &[seen]);
            server.answers(SERVES, &["7 w c:2"]);
            let name = ticket(LockKind::Fair).name;
            let look = table.look(&name, "c", beat).await.unwrap();
            let heard = [LOOK, SERVES].map(|begins| server.heard(begins).len());
            assert_eq!(heard, [looks, transactions], "{seen} {beat}");
            let is_last = look.waiting.contains("c:2");
            assert_eq!(is_last, transactions == 1, "{seen} {beat}");
        }
    }

    /// Any other error says nothing about the places of the waiters.
    #[tokio::test]
    async fn nobody_waits_in_a_queue_without_its_tables() {
        for (answer, is_empty) in [
            (no_table(WAITERS), true),
            (no_table(SIDES), true),
            (denied(WAITERS), true),
            (denied(SIDES), true),
            (denied("tidelock_locks"), false),
            ("ERR 1205 Lock wait timeout".to_owned(), false),
        ] {
            let server = ScriptedServer::start().await;
            let table = MysqlQueue {
                pool: pool_at(&server),
            };
            server.answers(LOOK, &[&answer]);
            server.answers(SERVES, &[&later(&answer)]);
            let name = ticket(LockKind::Fair).name;
            for beat in [true, false] {
                let look = table.look(&name, "c", beat).await;
                let is_seen_empty = look.is_ok_and(|look| look.waiting.is_empty());
                assert_eq!(is_seen_empty, is_empty, "{answer} {beat}");
            }
        }
    }
}
