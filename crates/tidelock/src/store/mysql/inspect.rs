//! What an operator sees: one lock, all held locks, and the processes behind them.

use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Holder, Snapshot, since_epoch};
use crate::store::fair_waiters::show_queue;
use crate::store::glob::matches_glob;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql::WAITERS;
use crate::store::mysql::raw_connection::{TextRow, first, number, text};
use crate::store::mysql::{Mysql, sql};
use crate::store::{CLIENT_INFO_TTL, ClientId, Liveness, Name, Page};
use crate::types::FencingToken;

impl Mysql {
    pub(super) async fn inspect(&self, name: &Name) -> Result<Snapshot> {
        let rows = self
            .pool
            .ask(sql::inspect(name, true), self.pool.deadline());
        let rows = match rows.await {
            // A database of an earlier tidelock has no table of the waiters, and a user without rights to it may still look
            // at locks without a queue.
            Err(failure) if failure.lacks_table(WAITERS) => {
                self.ask(sql::inspect(name, false)).await?
            }
            // Makes the table again that somebody has dropped.
            Err(failure) if failure.is_no_table() => self.ask(sql::inspect(name, true)).await?,
            rows => rows.map_err(RequestError::error)?,
        };
        if rows.is_empty() {
            return Ok(Snapshot::free(name.as_str()));
        }
        let mut snapshot = read_snapshot(name, &rows)?;
        self.show_sides(name, &mut snapshot).await?;
        Ok(snapshot)
    }

    pub(super) async fn list(&self, pattern: &str, after: Option<&str>) -> Result<Page> {
        // The beginning of a key, as a number.
        let cursor = after.map_or(0, |cursor| cursor.parse().unwrap_or(u64::MAX));
        read_page(&self.ask(sql::list(cursor)).await?, pattern)
    }

    pub(super) async fn announce(
        &self,
        client: &ClientId,
        info: Option<&ClientInfo>,
    ) -> Result<()> {
        let Some(info) = info else {
            return self.ask(sql::retract(client)).await.map(drop);
        };
        let deadline = self.pool.deadline();
        let announce = |has_user| sql::announce(client, info, CLIENT_INFO_TTL, has_user);
        let announced = self.ask_until(deadline, announce(true), Liveness::default());
        let announced = match announced.await {
            Err(failure) if failure.is_no_column() => {
                self.pool.ask(announce(false), deadline).await
            }
            done => done,
        };
        announced.map_err(RequestError::error)?;
        self.sweeper.begin();
        Ok(())
    }
}

/// Reads the rows of a lock, without its sides.
fn read_snapshot(name: &Name, rows: &[TextRow]) -> Result<Snapshot> {
    let (mut snapshot, row) = (Snapshot::free(name.as_str()), first(rows)?);
    snapshot.token = Some(FencingToken::new(number(row, 2)?));
    let left = number(row, 1)?;
    if left > 0 {
        snapshot.expires_in = Some(Duration::from_micros(left));
        let mut holder = Holder::new(text(row, 0)?, 1);
        holder.client = details(row, 4)?;
        snapshot.holders.push(holder);
    }
    let waiters = rows.iter().filter(|row| is_there(row, 3));
    let queue = waiters.map(|row| text(row, 3)).collect::<Result<_>>()?;
    show_queue(&mut snapshot, queue);
    Ok(snapshot)
}

/// Reads a page of names, of which those that match the pattern are shown.
fn read_page(rows: &[TextRow], pattern: &str) -> Result<Page> {
    let mut page = Page::default();
    for row in rows {
        let name = text(row, 1)?;
        if !name.is_empty() && matches_glob(pattern, &name) {
            page.names.push(name);
        }
    }
    if let Some(last) = rows.last().filter(|_| rows.len() == sql::PAGE_SIZE) {
        let next = number(last, 0)?.checked_add(1);
        page.next = next.map(|next| next.to_string());
    }
    Ok(page)
}

fn is_there(row: &TextRow, column: usize) -> bool {
    row.get(column).is_some_and(Option::is_some)
}

/// The details of a holder's process. The columns of `tidelock_clients` begin at this one.
pub(super) fn details(row: &TextRow, at: usize) -> Result<Option<ClientInfo>> {
    if !is_there(row, at) {
        return Ok(None);
    }
    let pid = u32::try_from(number(row, at + 2)?).unwrap_or(0);
    let since = since_epoch(number(row, at + 4)?);
    // The table of an earlier tidelock has no seventh column.
    let user = if is_there(row, at + 6) {
        Some(text(row, at + 6)?)
    } else {
        None
    };
    let info = ClientInfo::new(text(row, at + 1)?, pid, text(row, at + 3)?, since);
    Ok(Some(info.run_by(user)))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::store::LockKind;
    use crate::store::mysql::tests::server::{ScriptedServer, denied, no_table};
    use crate::store::mysql::tests::{mysql_at, row, ticket};

    /// What these rows show of a lock.
    fn seen(rows: &[&str]) -> Snapshot {
        let rows: Vec<TextRow> = rows.iter().map(|words| row(words)).collect();
        read_snapshot(&ticket(LockKind::Mutex).name, &rows).unwrap()
    }

    #[test]
    fn a_lock_is_held_until_its_lease_ends_and_keeps_its_token() {
        let held = seen(&["c:1 3000 7 NULL NULL"]);
        assert_eq!(held.holders, [Holder::new("c:1", 1)]);
        assert_eq!(held.expires_in, Some(Duration::from_millis(3)));
        assert_eq!(held.token, Some(FencingToken::new(7)));
        let free = seen(&["c:1 0 7 NULL NULL"]);
        assert!(!free.is_locked() && free.expires_in.is_none());
        assert_eq!(free.token, Some(FencingToken::new(7)));
        assert_eq!((free.waiters, free.queue.len()), (None, 0));
    }

    #[test]
    fn each_row_of_a_lock_is_a_waiter_unless_nobody_waits() {
        let queued = seen(&["c:1 3000 7 c:2 NULL", "c:1 3000 7 c:3 NULL"]);
        assert_eq!(queued.queue, ["c:2", "c:3"]);
        assert_eq!(queued.waiters, Some(2));
        assert_eq!(queued.holders.len(), 1);
    }

    #[test]
    fn a_holder_is_shown_with_its_process_if_that_has_published_its_details() {
        let named = seen(&["c:1 3000 7 NULL c web-1 42 shop 1000 99 deploy"]);
        let process = named.holders[0].client.as_ref().unwrap();
        assert_eq!((&*process.host, process.pid), ("web-1", 42));
        assert_eq!(process.program, "shop");
        assert_eq!(process.since, UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(process.user.as_deref(), Some("deploy"));
        for earlier in ["", " NULL"] {
            let words = format!("c:1 3000 7 NULL c web-1 99999999999 shop 1000 99{earlier}");
            let process = seen(&[words.as_str()]).holders.remove(0).client.unwrap();
            assert_eq!((process.user, process.pid), (None, 0), "{words}");
        }
    }

    #[test]
    fn a_page_shows_held_locks_that_match_and_says_where_the_next_one_begins() {
        let rows = ["5 stock", "6 ", "7 till", "8 store"].map(row);
        let page = read_page(&rows, "st*").unwrap();
        assert_eq!(page.names, ["stock", "store"]);
        assert_eq!(page.next, None, "it was not full");
        let full = |last: u64| {
            let mut rows = vec![row("5 stock"); sql::PAGE_SIZE];
            rows[sql::PAGE_SIZE - 1] = row(&format!("{last} "));
            read_page(&rows, "*").unwrap()
        };
        assert_eq!(full(41).next.as_deref(), Some("42"));
        assert_eq!(full(41).names.len(), sql::PAGE_SIZE - 1);
        assert_eq!(full(u64::MAX).next, None, "no key is larger");
    }

    /// How a look at a lock begins.
    const LOCK: &str = "SELECT l.owner, ";
    /// How a count of the waiters begins.
    const WAITING: &str = "SELECT (SELECT COUNT(*)";
    /// The row of a lock that one owner holds.
    const HELD: &str = "c:1 3000 7 NULL NULL";

    #[tokio::test]
    async fn a_lock_is_shown_without_a_queue_that_is_missing_or_out_of_reach() {
        for (refusal, again) in [
            (no_table(WAITERS), Some(false)),
            (denied(WAITERS), Some(false)),
            (no_table("tidelock_clients"), Some(true)),
            (denied("tidelock_clients"), None),
            ("ERR 1317 Query execution was interrupted".to_owned(), None),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers(LOCK, &[&refusal, HELD]);
            server.answers(WAITING, &["0"]);
            let seen = mysql.inspect(&ticket(LockKind::Mutex).name).await;
            let looks = server.heard(LOCK);
            let with_queue = looks.iter().map(|text| text.contains(WAITERS));
            let with_queue: Vec<bool> = with_queue.collect();
            let expected: Vec<bool> = [true].into_iter().chain(again).collect();
            assert_eq!(with_queue, expected, "{refusal}");
            assert_eq!(
                seen.is_ok_and(|it| it.is_locked()),
                again.is_some(),
                "{refusal}"
            );
        }
    }

    #[tokio::test]
    async fn a_lock_that_nobody_has_used_is_free_after_one_look() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers(LOCK, &["EMPTY"]);
        let name = ticket(LockKind::Mutex).name;
        let seen = mysql.inspect(&name).await.unwrap();
        assert_eq!(seen, Snapshot::free(name.as_str()));
        assert_eq!(server.statements().len(), 1);
    }

    /// The owners and the waiters that a look shows. `None`: it fails.
    async fn shown(lock: &str, waiting: &str) -> Option<(Vec<String>, Option<u64>)> {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers(LOCK, &[lock]);
        server.answers(WAITING, &[waiting]);
        server.answers("SELECT s.owner", &["c:2 1 NULL\nc:3 1 NULL"]);
        let seen = mysql.inspect(&ticket(LockKind::Read).name).await.ok()?;
        let owners = seen.owners().map(str::to_owned).collect();
        Some((owners, seen.waiters))
    }

    #[tokio::test]
    async fn the_holders_of_sides_are_shown_unless_their_tables_are_missing_or_out_of_reach() {
        let sides = "c:1:sides 3000 7 NULL NULL";
        for (lock, waiting, owners, waiters) in [
            (HELD, "0", &["c:1"][..], None),
            (HELD, "2", &["c:1"], Some(2)),
            (sides, "0", &["c:2", "c:3"], Some(0)),
            (sides, &no_table("tidelock_sides"), &["c:1:sides"], None),
            (sides, &denied("tidelock_sides"), &["c:1:sides"], None),
            (sides, &denied(WAITERS), &["c:1:sides"], None),
        ] {
            let (seen, waits) = shown(lock, waiting).await.unwrap();
            assert_eq!(seen, owners, "{lock} {waiting}");
            assert_eq!(waits, waiters, "{lock} {waiting}");
        }
        for waiting in ["ERR 1317 Query execution was interrupted", "OK"] {
            assert_eq!(shown(sides, waiting).await, None, "{waiting}");
        }
    }

    #[tokio::test]
    async fn the_table_of_an_earlier_tidelock_takes_the_details_of_a_process_without_its_user() {
        let info = ClientInfo::new("web-1", 7, "shop", UNIX_EPOCH).run_by(Some("deploy"));
        let client = ClientId::random();
        for (answer, users, is_done) in [
            ("OK", &[true][..], true),
            ("ERR 1054 Unknown column 'os_user'", &[true, false], true),
            (&no_table("tidelock_clients"), &[true, true], true),
            (&denied("tidelock_clients"), &[true], false),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers("REPLACE INTO tidelock_clients", &[answer, "OK"]);
            let announced = mysql.announce(&client, Some(&info)).await;
            assert_eq!(announced.is_ok(), is_done, "{answer}");
            let texts = server.heard("REPLACE INTO tidelock_clients");
            let with_user = texts.iter().map(|text| text.contains("os_user"));
            let with_user: Vec<bool> = with_user.collect();
            assert_eq!(with_user, users, "{answer}");
            if is_done {
                // A process that says who it is sweeps at once.
                server
                    .hears("START TRANSACTION; SET @tidelock_past", 1)
                    .await;
            }
        }
    }
}
