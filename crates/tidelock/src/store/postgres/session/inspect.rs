//! Inspects the server's advisory locks. The server shows keys and sessions, but no names.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::error::Result;
use crate::snapshot::{Finding, Holder, Severity, Snapshot};
use crate::store::glob::matches_glob;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::session::shared::Shared;
use crate::store::postgres::session::slots::ServerLockState;
use crate::store::{Name, Page};

/// Selects the other sessions of this database that hold a key, in the form in which `pg_locks` shows keys.
macro_rules! holders {
    ($what:literal) => {
        concat!(
            "SELECT o.ours, ",
            $what,
            " FROM (SELECT coalesce(pg_backend_pid() = $1 AND current_setting('tidelock.session', true) = $2, false) AS ours) AS o \
             LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid() \
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
               AND l.classid::bigint = (($3::bigint >> 32) & 4294967295) AND l.objid::bigint = ($3::bigint & 4294967295)"
        )
    };
}

/// What the owner begins with that a session of somebody else is shown as.
const SESSION: &str = "session ";

/// Selects the process ids of the sessions that hold the key, except our own.
pub(crate) const HOLDER: &str = holders!("l.pid");

/// Tells the sessions that hold the key, except our own, to end. Selects their process ids.
pub(crate) const END: &str = concat!(
    holders!("array_agg(l.pid) FILTER (WHERE pg_terminate_backend(l.pid))"),
    " GROUP BY o.ours"
);

/// As [`END`], for the sessions in an earlier look. The system may give the process id of an ended session to a new one, but
/// only after all others.
pub(crate) fn end_seen(seen: &Snapshot) -> String {
    let sessions = seen.owners().filter_map(session);
    // `NULL` equals nothing, so without a session the list is valid and fits nobody.
    let list = sessions.fold("NULL".to_owned(), |list, pid| format!("{list}, {pid}"));
    // `CASE` has an order of evaluation; `AND` has none.
    END.replace(
        "pg_terminate_backend(l.pid)",
        &format!("CASE WHEN l.pid IN ({list}) THEN pg_terminate_backend(l.pid) END"),
    )
}

/// The owner that a session of somebody else is shown as.
fn shown(pid: i32) -> String {
    format!("{SESSION}{pid}")
}

/// The process id in such an owner.
fn session(owner: &str) -> Option<i32> {
    owner.strip_prefix(SESSION)?.parse().ok()
}

const SETTINGS: &str = "SELECT o.ours, current_setting('server_version'), \
    coalesce(current_setting('idle_session_timeout', true), '') \
    FROM (SELECT coalesce(pg_backend_pid() = $1 AND current_setting('tidelock.session', true) = $2, false) AS ours) AS o";

pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Snapshot> {
    let deadline = shared.deadline();
    let session = shared.session(deadline).await?;
    let key = session.key(name.as_str(), deadline).await;
    let key = key.map_err(RequestError::error)?;
    let mut snapshot = Snapshot::free(name.as_str());
    // Our own holds come from the slots: the server knows neither their owner nor their lease.
    let own = session.slots.find(key).map(|slot| slot.get());
    if let Some(ServerLockState::Held { ticket, ends }) = own {
        let left = ends.since(shared.timers.now());
        if !left.is_zero() {
            snapshot.expires_in = Some(left);
            snapshot.holders.push(Holder::new(ticket.owner.text(), 1));
        }
        return Ok(snapshot);
    }
    let asked = session.ask(HOLDER, Some((&key, Type::INT8)), deadline);
    let rows = asked.await.map_err(RequestError::error)?;
    let pid: Option<i32> = rows.first().and_then(|row| row.get(1));
    if let Some(pid) = pid {
        snapshot.holders.push(Holder::new(shown(pid), 1));
    }
    Ok(snapshot)
}

/// Lists the locks of this client only: the server knows keys, but no names.
pub(crate) fn list(shared: &Shared, pattern: &str) -> Page {
    let session = shared.current();
    let names = session.map_or_else(Vec::new, |session| session.slots.names());
    let names = names.iter().map(|name| name.as_str().to_owned());
    Page {
        names: names.filter(|name| matches_glob(pattern, name)).collect(),
        next: None,
    }
}

pub(crate) async fn examine(shared: &Shared) -> Result<Vec<Finding>> {
    let deadline = shared.deadline();
    let session = shared.session(deadline).await?;
    let rows = session.ask(SETTINGS, None, deadline).await;
    let rows = rows.map_err(RequestError::error)?;
    let mut findings = vec![Finding::new(
        Severity::Good,
        "locks",
        "advisory locks of a session",
        "the server keeps them as long as the connection stands; there are no tokens, and names are seen by their holder only",
    )];
    let Some(row) = rows.first() else {
        return Ok(findings);
    };
    findings.push(Finding::new(
        Severity::Good,
        "server",
        format!("PostgreSQL {}", row.get::<_, String>(1)),
        "it has what locks need",
    ));
    let silence: String = row.get(2);
    findings.push(if silence.is_empty() || silence == "0" {
        Finding::new(
            Severity::Advice,
            "silence",
            "the server bears any",
            "a holder that is frozen keeps its locks until its machine is gone or it goes on",
        )
        .advise("use PostgreSQL 14 or later")
    } else {
        Finding::new(
            Severity::Good,
            "silence",
            format!("the server ends a session after {silence} of it"),
            format!(
                "a holder that is frozen is followed within {:?}",
                shared.span.max(Duration::ZERO)
            ),
        )
    });
    Ok(findings)
}
