//! The doctor: reports every server setting that weakens a lock.

use std::sync::Arc;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::schema::Sql;
use crate::store::postgres::wake::{ListenState, NotifyListener};

const WAKES: DoctorCheck = DoctorCheck {
    subject: "wakes",
    good: "a waiter is woken when the lock is released",
    severity: Severity::Advice,
    bad: "waiters ask twenty times a second instead of being woken",
    advice: "connect past the pooler, or let it keep sessions (pool_mode = session)",
};

const SETTINGS: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(), \
    current_setting('synchronous_commit'), current_setting('fsync'), current_setting('transaction_isolation'), \
    (SELECT count(*) FROM pg_replication_slots)::bigint";

pub(crate) async fn examine(
    connection: &Connection,
    sql: &Sql,
    listener: &Arc<NotifyListener>,
) -> Result<Vec<Finding>> {
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
                    "attempts that meet fail and are repeated, instead of waiting for each other",
                )
                .advise("ALTER ROLE … SET default_transaction_isolation = 'read committed'"),
            );
        }
    }
    findings.push(hearing(listener, connection).await);
    findings.push(Finding::new(
        Severity::Good,
        "tables",
        sql.table.clone(),
        "SELECT, INSERT, UPDATE and DELETE on it and on its clients, USAGE on its sequence are all that is needed",
    ));
    Ok(findings)
}

async fn hearing(listener: &Arc<NotifyListener>, connection: &Connection) -> Finding {
    match listener.hears(connection.limit() * 2).await {
        ListenState::Live => WAKES.good("NOTIFY is heard"),
        ListenState::Unknown | ListenState::Deaf => WAKES.bad("NOTIFY is not heard"),
    }
}
