//! Inspects locks and registers clients, for operators.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Holder, Mode, Snapshot, since_epoch};
use crate::store::glob::matches_glob;
use crate::store::postgres::columns::{duration, fencing, micros};
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::schema::Sql;
use crate::store::postgres::tables;
use crate::store::{ClientId, Name};

/// How many names one page of a list reads.
const PAGE_SIZE: i64 = 1000;

pub(crate) async fn at(connection: &Connection, sql: &Sql, name: &Name) -> Result<Snapshot> {
    let mut snapshot = Snapshot::free(name.as_str());
    let name = name.as_str();
    let params = [(&name as _, Type::TEXT)];
    let rows = tables::ask(connection, sql, &sql.inspect, &params).await;
    let rows = rows.map_err(RequestError::error)?;
    let Some(row) = rows.first() else {
        return Ok(snapshot);
    };
    snapshot.token = fencing(row.get(0));
    let owner: Option<String> = row.get(1);
    let left = duration(row, 2).filter(|left| !left.is_zero());
    if let (Some(owner), Some(left)) = (owner, left) {
        snapshot.expires_in = Some(left);
        snapshot.holders.push(holder(owner, Mode::Exclusive, row));
    }
    Ok(snapshot)
}

/// A holder. `row`: has the details of its client from the third column on.
pub(crate) fn holder(owner: String, mode: Mode, row: &Row) -> Holder {
    let mut holder = Holder::new(owner, 1);
    holder.mode = mode;
    holder.client = client(row);
    holder
}

fn client(row: &Row) -> Option<ClientInfo> {
    let host: Option<String> = row.try_get(3).ok()?;
    let (pid, program): (i64, String) = (row.try_get(4).ok()?, row.try_get(5).ok()?);
    let since: i64 = row.try_get(6).ok()?;
    let since = since_epoch(u64::try_from(since).unwrap_or(0));
    let user: Option<String> = row.try_get(7).ok()?;
    let pid = u32::try_from(pid).unwrap_or(0);
    Some(ClientInfo::new(host?, pid, program, since).run_by(user))
}

/// One page of a list.
#[derive(Debug, Default)]
pub(crate) struct NamePage {
    /// The names of locks that are held.
    pub(crate) locks: Vec<String>,
    /// The names of semaphores, also of those of which nobody holds a permit.
    pub(crate) semaphores: Vec<String>,
    pub(crate) next: Option<String>,
}

pub(crate) async fn page(
    connection: &Connection,
    sql: &Sql,
    pattern: &str,
    after: Option<&str>,
) -> Result<NamePage> {
    let after = after.unwrap_or_default();
    let params = [(&PAGE_SIZE as _, Type::INT8), (&after as _, Type::TEXT)];
    let rows = tables::ask(connection, sql, &sql.list, &params).await;
    let rows = rows.map_err(RequestError::error)?;
    let full = i64::try_from(rows.len()).is_ok_and(|len| len == PAGE_SIZE);
    let next = rows.last().filter(|_| full).map(|row| row.get(0));
    let mut page = NamePage {
        next,
        ..NamePage::default()
    };
    for row in &rows {
        let name: String = row.get(0);
        if !matches_glob(pattern, &name) {
            continue;
        }
        if row.get(1) {
            page.semaphores.push(name);
        } else {
            page.locks.push(name);
        }
    }
    Ok(page)
}

/// Stores the details of a client.
pub(crate) async fn announce(
    connection: &Connection,
    sql: &Sql,
    client: &ClientId,
    info: &ClientInfo,
    ttl: Duration,
) -> Result<()> {
    let (client, pid) = (client.as_str(), i64::from(info.pid));
    let (since, ttl) = (millis(info.since), micros(ttl));
    let params = [
        (&client as _, Type::TEXT),
        (&info.host as _, Type::TEXT),
        (&pid as _, Type::INT8),
        (&info.program as _, Type::TEXT),
        (&since as _, Type::INT8),
        (&ttl as _, Type::INT8),
        (&info.user as _, Type::TEXT),
    ];
    let announced = match tables::ask(connection, sql, &sql.announce, &params).await {
        Err(failure) if failure.is_no_column() => {
            let params = &params[..params.len() - 1];
            connection.ask(&sql.announce_without_user, params).await
        }
        done => done,
    };
    announced.map(drop).map_err(RequestError::error)
}

pub(crate) async fn retract(connection: &Connection, sql: &Sql, client: &ClientId) -> Result<()> {
    let params = [(&client.as_str() as _, Type::TEXT)];
    let removed = connection.ask(&sql.retract, &params).await;
    removed.map(drop).map_err(RequestError::error)
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
