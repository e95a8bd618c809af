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
