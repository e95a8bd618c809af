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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Holder;
    use crate::store::CLIENT_INFO_TTL;
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{
        Cell, NO_RIGHT, NOTHING, ServerAnswer, big, flag, null, row, text,
    };
    use crate::store::postgres::tests::{sql, stock};

    /// A look at a lock, by a user who may not see its queue. `answer`: the row of the lock.
    async fn seen(server: &ScriptedDatabase, answer: ServerAnswer) -> Snapshot {
        let store = server.store().await;
        server.answers([answer, row([flag(false)])]);
        store.front.inspect(&stock()).await.unwrap()
    }

    #[tokio::test]
    async fn a_lock_is_held_only_while_the_lease_of_its_owner_lasts() {
        let server = ScriptedDatabase::start().await;
        let no_text = || null(Type::TEXT);
        for (columns, token, left) in [
            (
                Some([big(7), text("c:1"), big(5_000_000)]),
                Some(7),
                Some(5),
            ),
            (Some([big(7), text("c:1"), big(0)]), Some(7), None),
            (Some([big(7), text("c:1"), big(-5)]), Some(7), None),
            (Some([big(7), no_text(), big(5_000_000)]), Some(7), None),
            (Some([big(0), no_text(), null(Type::INT8)]), None, None),
            (None, None, None),
        ] {
            let answer = columns.map_or(NOTHING, row);
            let snapshot = seen(&server, answer.clone()).await;
            let shown = snapshot.token.map(crate::types::FencingToken::get);
            assert_eq!(shown, token, "{answer:?}");
            let left = left.map(Duration::from_secs);
            assert_eq!(snapshot.expires_in, left, "{answer:?}");
            assert_eq!(snapshot.is_locked(), left.is_some(), "{answer:?}");
        }
    }

    /// A look at a lock that is held, with the details of its client.
    fn held_by(host: Cell, pid: i64, since: i64, user: Cell) -> ServerAnswer {
        let details = [host, big(pid), text("shop"), big(since), user];
        let lock = [big(7), text("c:1"), big(5_000_000)];
        row(lock.into_iter().chain(details).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn a_holder_shows_what_its_client_has_published() {
        let server = ScriptedDatabase::start().await;
        let info = |pid, millis| ClientInfo::new("web-1", pid, "shop", since_epoch(millis));
        for (answer, client) in [
            (
                held_by(text("web-1"), 42, 1500, text("deploy")),
                Some(info(42, 1500).run_by(Some("deploy"))),
            ),
            // Anybody may have written the row.
            (
                held_by(text("web-1"), -1, -1, null(Type::TEXT)),
                Some(info(0, 0)),
            ),
            (held_by(null(Type::TEXT), 42, 1500, text("deploy")), None),
        ] {
            let snapshot = seen(&server, answer).await;
            let mut holder = Holder::new("c:1", 1);
            holder.client = client;
            assert_eq!(snapshot.holders, [holder]);
        }
    }

    #[tokio::test]
    async fn only_a_page_that_is_full_has_a_next_one() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        for (count, next) in [(999, None), (1000, Some("lock-999"))] {
            let names = (0..count).map(|n| format!("lock-{n}"));
            let rows = names.map(|name| vec![text(name), flag(false)]);
            server.answers([ServerAnswer::Rows(rows.collect())]);
            let page = store.front.list("lock-99*", Some("k")).await.unwrap();
            assert_eq!(page.next.as_deref(), next);
            assert!(page.names.iter().all(|name| name.starts_with("lock-99")));
            assert!(page.names.len() >= 10);
            assert_eq!(server.asked()[0].params, ["1000", "k"]);
        }
        server.answers([NOTHING]);
        store.front.list("*", None).await.unwrap();
        assert_eq!(server.asked()[0].params, ["1000", ""]);
    }

    #[tokio::test]
    async fn a_client_publishes_itself_also_in_a_table_without_a_column_for_the_user() {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let info = ClientInfo::new("web-1", 42, "shop", since_epoch(1500)).run_by(Some("me"));
        let client = ClientId::random();
        let ttl = micros(CLIENT_INFO_TTL).to_string();
        let params = [client.as_str(), "web-1", "42", "shop", "1500", &ttl, "me"];
        let no_column = || ServerAnswer::Fails("42703");
        for answers in [vec![NOTHING], vec![no_column(), NOTHING]] {
            server.answers(answers.clone());
            server.on("interval '1 hour'", [NOTHING]);
            let announced = store.front.announce(&client, Some(&info)).await;
            announced.unwrap();
            let asked = server.asked();
            assert_eq!(asked[0].text, sql().announce);
            assert_eq!(asked[0].params, params);
            if answers.len() == 2 {
                assert_eq!(asked[1].text, sql().announce_without_user);
                assert_eq!(asked[1].params, params[..6]);
            }
            // The last two delete the rows that waiters for locks and for permits have left.
            assert_eq!(asked.len(), answers.len() + 2);
        }
        server.answers([NO_RIGHT]);
        let announced = store.front.announce(&client, Some(&info)).await;
        announced.unwrap_err();
        assert_eq!(server.asked().len(), 1);
        server.answers([NOTHING]);
        store.front.announce(&client, None).await.unwrap();
        let asked = server.asked();
        assert_eq!(asked[0].text, sql().retract);
        assert_eq!(asked[0].params, [client.as_str()]);
    }

    #[test]
    fn a_time_before_1970_is_that_of_1970() {
        assert_eq!(millis(UNIX_EPOCH + Duration::from_millis(1500)), 1500);
        assert_eq!(millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
