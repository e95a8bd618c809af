//! The doctor: reports every server setting that weakens a lock.

use std::sync::Arc;

use tokio_postgres::types::Type;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::errors::ErrorReply;
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::permit_sql::PermitSql;
use crate::store::postgres::queue_sql::QueueSql;
use crate::store::postgres::schema::{HAS_ROOM, Sql};
use crate::store::postgres::wake::{ListenState, NotifyListener};

const WAKES: DoctorCheck = DoctorCheck {
    subject: "wakes",
    good: "a waiter is woken when the lock is released",
    severity: Severity::Advice,
    bad: "waiters ask twenty times a second instead of being woken",
    advice: "connect past the pooler, or let it keep sessions (pool_mode = session)",
};

/// As [`WAKES`], for another reason.
const ROOM: DoctorCheck = DoctorCheck {
    subject: WAKES.subject,
    good: WAKES.good,
    severity: Severity::Advice,
    bad: "releases send no message, so waiters ask twenty times a second instead of being woken; once the queue is full, no transaction that sends a message can be committed",
    advice: "end the session that listens and has left a transaction open; pg_stat_activity shows it as idle in transaction",
};

const QUEUES: DoctorCheck = DoctorCheck {
    subject: "fair and read-write locks",
    good: "the first of them makes the tables of their queues, if they are missing",
    severity: Severity::Advice,
    bad: "a table of their queues is missing or out of reach, and this user may not make it; other locks need none",
    advice: "let a user with that right make it, and grant SELECT, INSERT, UPDATE and DELETE on it; the error of an acquire has the statements",
};

const SEMAPHORES: DoctorCheck = DoctorCheck {
    subject: "semaphores",
    good: "the first of them makes their tables, if they are missing",
    severity: Severity::Advice,
    bad: "a table of the semaphores is missing or out of reach, and this user may not make it; locks need none",
    advice: "let a user with that right make it, and grant SELECT, INSERT, UPDATE and DELETE on it; the error of an acquire has the statements",
};

const TOKENS: DoctorCheck = DoctorCheck {
    subject: "tokens",
    good: "each grant has a larger token than those before it",
    severity: Severity::Danger,
    bad: "a lock that nobody has used for an hour may be granted a smaller token than before: the sequence was not copied with the table, or was set back",
    advice: "raise the sequence with `tidelock token NAME --at-least NUMBER`: any name, and a number that is larger than the token",
};

/// As [`TOKENS`], for a user who cannot see more.
const UNREAD_TOKENS: DoctorCheck = DoctorCheck {
    subject: TOKENS.subject,
    good: TOKENS.good,
    severity: TOKENS.severity,
    bad: "if the sequence was restarted at a smaller number, or was not copied with the table, a lock that nobody has used for an hour may be granted a smaller token than before",
    advice: "look again as a user with SELECT on the sequence, or after the next acquire",
};

/// Whether this user can use a table, or make it in the schema of the locks.
const QUEUE: &str = "SELECT CASE \
      WHEN to_regclass($1) IS NOT NULL THEN has_table_privilege(to_regclass($1), 'SELECT') \
        AND has_table_privilege(to_regclass($1), 'INSERT') AND has_table_privilege(to_regclass($1), 'UPDATE') \
        AND has_table_privilege(to_regclass($1), 'DELETE') \
      ELSE coalesce(has_schema_privilege((SELECT relnamespace FROM pg_class WHERE oid = to_regclass($2)), 'CREATE'), false) END";

const SETTINGS: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(), \
    current_setting('synchronous_commit'), current_setting('fsync'), current_setting('transaction_isolation'), \
    (SELECT count(*) FROM pg_replication_slots)::bigint";

pub(crate) async fn examine(
    connection: &Connection,
    sql: &Sql,
    (queues, permits): (&QueueSql, &PermitSql),
    listener: &Arc<NotifyListener>,
) -> Result<Vec<Finding>> {
    let mut findings = settings(connection).await?;
    findings.push(hearing(listener, connection).await?);
    for (check, both) in [
        (QUEUES, [&queues.waiters, &queues.sides]),
        (SEMAPHORES, [&permits.semaphores, &permits.permits]),
    ] {
        findings.push(usable(connection, sql, &check, both).await?);
    }
    findings.extend(tokens(connection, sql).await?);
    findings.push(Finding::new(
        Severity::Good,
        "tables",
        sql.table.clone(),
        "SELECT, INSERT, UPDATE and DELETE on it and on its clients, USAGE on its sequence are all that is needed",
    ));
    Ok(findings)
}

/// The settings of the server.
async fn settings(connection: &Connection) -> Result<Vec<Finding>> {
    let rows = connection
        .ask(SETTINGS, &[])
        .await
        .map_err(RequestError::error)?;
    let mut findings = Vec::new();
    if let Some(row) = rows.first() {
        let text = |column: usize| row.get::<_, String>(column);
        findings.push(Finding::new(
            Severity::Good,
            "server",
            format!("PostgreSQL {}", text(0)),
            "leases are counted by the server's own clock",
        ));
        if row.get(1) {
            findings.push(
                Finding::new(Severity::Danger, "role", "a standby", "it takes no locks")
                    .advise("name the primary"),
            );
        }
        for (column, setting) in [(2, "synchronous_commit"), (3, "fsync")] {
            if text(column) == "off" {
                findings.push(
                    Finding::new(
                        Severity::Advice,
                        setting,
                        "off",
                        "a crash of the server may forget a lock that was granted just before",
                    )
                    .advise(format!("set {setting} = on for the user or the server")),
                );
            }
        }
        if text(4) != "read committed" {
            findings.push(
                Finding::new(
                    Severity::Advice,
                    "isolation",
                    text(4),
                    "requests that meet fail and are repeated, instead of waiting for each other; no lock is granted twice by that",
                )
                .advise("ALTER ROLE … SET default_transaction_isolation = 'read committed'"),
            );
        }
    }
    Ok(findings)
}

/// Whether this user can use these tables.
async fn usable(
    connection: &Connection,
    sql: &Sql,
    check: &DoctorCheck,
    both: [&String; 2],
) -> Result<Finding> {
    for table in both {
        let tables = [(table as _, Type::TEXT), (&sql.table as _, Type::TEXT)];
        let rows = connection.ask(QUEUE, &tables).await;
        let rows = rows.map_err(RequestError::error)?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Ok(check.bad(table));
        }
    }
    let [one, other] = both;
    Ok(check.good(format!("{one}, {other}")))
}

/// Whether the sequence is behind the tokens of the rows. Nothing for a user who may not use the sequence.
async fn tokens(connection: &Connection, sql: &Sql) -> Result<Option<Finding>> {
    let rows = connection.ask(&sql.largest, &[]).await;
    let rows = rows.map_err(RequestError::error)?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let (largest, drawn): (i64, Option<i64>) = (row.get(0), row.get(1));
    let last = match drawn {
        // No token was drawn since the sequence was made or restarted, perhaps at a larger number.
        Some(0) if largest > 0 => last_token(connection, sql).await?,
        Some(drawn) => Some(drawn),
        None => return Ok(None),
    };
    let Some(last) = last else {
        return Ok(Some(UNREAD_TOKENS.bad(format!(
            "the largest token of a lock is {largest}; the sequence was not used since it was made or restarted, and this user may not read where it is"
        ))));
    };
    let found = format!("the largest token of a lock is {largest}, the sequence is at {last}");
    Ok(Some(TOKENS.judge(largest <= last, found)))
}

/// The last number of the sequence. Nothing for a user who may only use it, or if somebody has just dropped it.
async fn last_token(connection: &Connection, sql: &Sql) -> Result<Option<i64>> {
    match connection.ask(&sql.last, &[]).await {
        Ok(rows) => Ok(rows.first().map(|row| row.get(0))),
        Err(RequestError::Server(why)) if why.kind() == ErrorKind::Refused => Ok(None),
        Err(failure) => Err(failure.error()),
    }
}

async fn hearing(listener: &Arc<NotifyListener>, connection: &Connection) -> Result<Finding> {
    let rows = connection.ask(&format!("SELECT {HAS_ROOM}"), &[]).await;
    let rows = rows.map_err(RequestError::error)?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(ROOM.bad("the server's queue of notifications is almost full"));
    }
    Ok(match listener.hears(connection.limit() * 2).await {
        ListenState::Live => WAKES.good("NOTIFY is heard"),
        ListenState::Unknown | ListenState::Deaf => WAKES.bad("NOTIFY is not heard"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::sql;
    use crate::store::postgres::tests::wire::{
        NO_RIGHT, NOTHING, ServerAnswer, big, flag, null, row, text,
    };

    /// The answer to the question for the settings.
    fn shows(is_standby: bool, commit: &str, fsync: &str, isolation: &str) -> ServerAnswer {
        row([
            text("17.2"),
            flag(is_standby),
            text(commit),
            text(fsync),
            text(isolation),
            big(0),
        ])
    }

    /// A part of the question for room in the queue of the server. The listener asks it too.
    const ROOM: &str = "SELECT pg_notification_queue_usage()";

    /// A server at which the doctor finds nothing bad, and its store.
    async fn healthy() -> (ScriptedDatabase, Store) {
        let server = ScriptedDatabase::start().await;
        server.on("LISTEN ", [row([flag(true)])]);
        server.on(ROOM, [row([flag(true)])]);
        server.on(
            "server_version",
            [shows(false, "on", "on", "read committed")],
        );
        server.on(QUEUE, [row([flag(true)])]);
        server.on(&sql().largest, [row([big(7), big(9)])]);
        let store = server.store().await;
        (server, store)
    }

    /// The findings that are not good: how much each matters, its subject, and the observation.
    async fn bad(store: &Store) -> Vec<(Severity, String, String)> {
        let findings = store.front.diagnose().await.unwrap();
        let bad = findings
            .into_iter()
            .filter(|it| it.severity != Severity::Good);
        bad.map(|it| {
            assert!(it.advice.is_some(), "{it:?}");
            (it.severity, it.subject, it.found)
        })
        .collect()
    }

    #[tokio::test]
    async fn a_server_that_has_all_that_locks_need_is_called_good() {
        let (server, store) = healthy().await;
        let bad = bad(&store).await;
        assert!(bad.is_empty(), "{bad:?}");
        let findings = store.front.diagnose().await.unwrap();
        let found: Vec<&str> = findings.iter().map(|it| &*it.found).collect();
        for expected in [
            "PostgreSQL 17.2",
            "NOTIFY is heard",
            "tidelock_locks_waiters, tidelock_locks_sides",
            "tidelock_locks_semaphores, tidelock_locks_permits",
            "the largest token of a lock is 7, the sequence is at 9",
            "tidelock_locks",
        ] {
            assert!(found.contains(&expected), "{found:?}");
        }
        let asked = server.heard(QUEUE);
        assert_eq!(asked[1].params, ["tidelock_locks_sides", "tidelock_locks"]);
    }

    #[tokio::test]
    async fn a_setting_that_weakens_locks_is_named() {
        let (server, store) = healthy().await;
        for (answer, severity, subject) in [
            (
                shows(true, "on", "on", "read committed"),
                Severity::Danger,
                "role",
            ),
            (
                shows(false, "off", "on", "read committed"),
                Severity::Advice,
                "synchronous_commit",
            ),
            (
                shows(false, "on", "off", "read committed"),
                Severity::Advice,
                "fsync",
            ),
            (
                shows(false, "on", "on", "serializable"),
                Severity::Advice,
                "isolation",
            ),
        ] {
            server.on("server_version", [answer]);
            let bad = bad(&store).await;
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!((bad[0].0, &*bad[0].1), (severity, subject));
        }
    }

    #[tokio::test]
    async fn waiters_that_hear_no_release_are_named_with_the_reason() {
        let (server, store) = healthy().await;
        server.on("LISTEN ", [row([flag(false)])]);
        for (has_room, found) in [
            (false, "the server's queue of notifications is almost full"),
            (true, "NOTIFY is not heard"),
        ] {
            server.on(ROOM, [row([flag(has_room)])]);
            let bad = bad(&store).await;
            let expected = (Severity::Advice, "wakes".to_owned(), found.to_owned());
            assert_eq!(bad, [expected]);
        }
    }

    #[tokio::test]
    async fn a_table_that_this_user_may_not_use_is_named() {
        let (server, store) = healthy().await;
        let may = |is_allowed: bool| row([flag(is_allowed)]);
        for (answers, table) in [
            (vec![may(false), may(true)], "tidelock_locks_waiters"),
            (
                vec![may(true), may(false), may(true)],
                "tidelock_locks_sides",
            ),
            (
                vec![may(true), may(true), may(false)],
                "tidelock_locks_semaphores",
            ),
            (
                vec![may(true), may(true), may(true), may(false)],
                "tidelock_locks_permits",
            ),
        ] {
            server.on(QUEUE, answers);
            let bad = bad(&store).await;
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!((bad[0].0, &*bad[0].2), (Severity::Advice, table));
        }
    }

    /// A name without a row would be granted a smaller token than before.
    #[tokio::test]
    async fn a_sequence_behind_the_tokens_of_the_rows_is_a_danger() {
        let (server, store) = healthy().await;
        let tokens = |largest, drawn: Option<i64>| {
            let drawn = drawn.map_or(null(Type::INT8), big);
            row([big(largest), drawn])
        };
        for (answer, last, is_danger) in [
            (tokens(7, Some(7)), NOTHING, false),
            (tokens(8, Some(7)), NOTHING, true),
            // Nothing was drawn since the sequence was made or restarted.
            (tokens(8, Some(0)), row([big(8)]), false),
            (tokens(8, Some(0)), row([big(7)]), true),
            // This user may not read where it is.
            (tokens(8, Some(0)), NO_RIGHT, true),
            (tokens(8, Some(0)), NOTHING, true),
            (tokens(0, Some(0)), NO_RIGHT, false),
            // This user may not use the sequence.
            (tokens(8, None), NOTHING, false),
            (NOTHING, NOTHING, false),
        ] {
            server.on(&sql().largest, [answer.clone()]);
            server.on(&sql().last, [last.clone()]);
            let bad = bad(&store).await;
            assert_eq!(bad.len(), usize::from(is_danger), "{answer:?} {last:?}");
            for (severity, subject, _) in bad {
                assert_eq!((severity, &*subject), (Severity::Danger, "tokens"));
            }
        }
        server.on(&sql().largest, [tokens(8, Some(0))]);
        server.on(&sql().last, [ServerAnswer::HangsUp]);
        let findings = store.front.diagnose().await;
        assert!(findings.unwrap_err().outcome_unknown());
    }
}
