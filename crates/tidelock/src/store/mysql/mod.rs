//! The MySQL store, `mysql://` and `mariadb://`: a table of leases on MySQL 8, MariaDB 10.6, or later.
//!
//! A lock is a row with a lease. Single statements change it ([`sql`]), and the server's clock decides. No state
//! belongs to a session: any connection can renew or release any lock, so no lock is lost with a connection that is
//! killed, pooled or timed out. Connections live on the background runtime ([`pool`]); callers and steward share
//! none. The server wakes nobody, so waiters poll.

pub(crate) mod address;
mod connection;
mod doctor;
mod errors;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod raw_connection;
mod schema;
mod sql;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Holder, Snapshot, since_epoch};
use crate::store::glob::matches_glob;
use crate::store::mysql::address::Address;
use crate::store::mysql::connection::Pool;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::errors::unanswered;
use crate::store::mysql::raw_connection::{TextRow, number, text};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BootInstant, BoxFuture, CLIENT_INFO_TTL,
    Capabilities, ClientId, Env, Extensions, Liveness, LockKind, Name, Operate, Page, Released,
    Renewal, Renewed, Store, Ticket, TokenCounter, certain, ready, tls,
};
use crate::types::FencingToken;

/// Bounds the connections of the callers. A request in flight needs one for itself.
const FRONT: usize = 8;
/// Bounds the connections of the steward.
const BACK: usize = 3;
/// How long locks are renewed one by one after a batch was held up.
const APART: Duration = Duration::from_secs(60);

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[LockKind::Mutex, LockKind::Fenced],
    wakes: false,
    queues: false,
    shared: true,
    durable: true,
    delays: false,
    sequencers: false,
    raises_tokens: true,
};

/// Connects, and creates the tables if they are missing.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let mut address = Address::parse(url)?;
    address.files = tls::named(&env.tls, address.files);
    address.check_tls()?;
    let face = |most| {
        let pool = Pool::new(address.clone(), env, most);
        Arc::new(Mysql {
            fence: sql::fence(pool.database()),
            pool,
            apart: Mutex::default(),
        })
    };
    let (front, back) = (face(FRONT), face(BACK));
    schema::ready(&front.pool, front.pool.deadline()).await?;
    Ok(Store::new(front, back))
}

/// One store handle: for the callers, or for the steward.
#[derive(Debug)]
struct Mysql {
    pool: Pool,
    /// The statement of an SQL fence.
    fence: String,
    /// Until when locks are renewed one by one.
    apart: Mutex<Option<BootInstant>>,
}

impl Mysql {
    /// Sends one request.
    async fn ask(&self, text: String) -> Result<Vec<TextRow>> {
        self.ask_for(text, Liveness::default()).await
    }

    /// Like [`ask`](Self::ask), but sends nothing if the caller has already left.
    async fn ask_for(&self, text: String, liveness: Liveness) -> Result<Vec<TextRow>> {
        let answer = self.ask_until(self.pool.deadline(), text, liveness).await;
        answer.map_err(RequestError::error)
    }

    /// Sends one request. If the tables are missing, creates them and sends the request again. The locks in the old
    /// tables are lost, and their holders hear of it at the next renewal.
    async fn ask_until(
        &self,
        deadline: BootInstant,
        text: String,
        liveness: Liveness,
    ) -> Result<Vec<TextRow>, RequestError> {
        match self.pool.ask_for(text.clone(), deadline, liveness).await {
            Err(failure) if failure.is_no_table() => {
                let ready = schema::ready(&self.pool, deadline).await;
                ready.map_err(RequestError::Classified)?;
                self.pool.ask(text, deadline).await
            }
            other => other,
        }
    }

    async fn attempt(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let text = sql::attempt(&ask.ticket, ask.lease);
        let rows = self.ask_for(text, ask.liveness.clone()).await?;
        let Some(row) = rows.first() else {
            // The counter's row is missing, so nothing was inserted.
            schema::ready(&self.pool, self.pool.deadline()).await?;
            return Err(errors::unsent("another process is creating the tables"));
        };
        if number(row, 3)? != 0 {
            return Err(
                Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
            );
        }
        if number(row, 0)? == 0 {
            let left = Duration::from_micros(number(row, 1)?);
            return Ok(Attempt::held(None, left));
        }
        Ok(Attempt::granted(FencingToken::new(number(row, 2)?)))
    }

    /// Renews the batch in one statement. If a foreign transaction blocks one row, we renew each lock by itself, and
    /// do so from the start for a while. Otherwise the other locks would wait for that row in every round.
    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let deadline = self.pool.deadline();
        if batch.len() == 1 || !self.renews_apart() {
            let failure = match self.renew_together(batch, deadline).await {
                Err(failure) if batch.len() > 1 => failure,
                answer => return answer.map_err(RequestError::error),
            };
            // After any failure: a blocked row can also show up as a timeout.
            *self.apart() = Some(self.pool.now() + APART);
            if !failure.is_kept_waiting() {
                return Err(failure.error());
            }
        }
        let each = batch.iter().map(async |one| {
            let alone = self.renew_together(std::slice::from_ref(one), deadline);
            match alone.await {
                Ok(mut renewed) => renewed.pop().unwrap_or(Renewed::Gone),
                Err(outcome) => Renewed::Failed(outcome.error()),
            }
        });
        Ok(join_all(each).await)
    }

    fn renews_apart(&self) -> bool {
        let now = self.pool.now();
        self.apart().is_some_and(|until| now < until)
    }

    fn apart(&self) -> MutexGuard<'_, Option<BootInstant>> {
        self.apart.lock()
    }

    async fn renew_together(
        &self,
        batch: &[Renewal],
        deadline: BootInstant,
    ) -> Result<Vec<Renewed>, RequestError> {
        let liveness = Liveness::default();
        let rows = self
            .ask_until(deadline, sql::renew(batch), liveness)
            .await?;
        let owners = rows.iter().map(|row| text(row, 0));
        let kept: HashSet<String> = owners
            .collect::<Result<_>>()
            .map_err(RequestError::Classified)?;
        let answer = |one: &Renewal| {
            if kept.contains(one.ticket.owner.text()) {
                Renewed::Kept
            } else {
                Renewed::Gone
            }
        };
        Ok(batch.iter().map(answer).collect())
    }

    /// The number of changed rows.
    async fn count(&self, statements: String) -> Result<u64> {
        let rows = self.ask(statements).await?;
        number(rows.first().ok_or_else(|| unanswered("no answer"))?, 0)
    }

    async fn release(&self, ticket: &Ticket) -> Result<Released> {
        Ok(released(self.count(sql::release(ticket)).await?))
    }

    async fn force_release(&self, name: &Name) -> Result<bool> {
        Ok(self.count(sql::force_release(name)).await? != 0)
    }

    async fn withdraw(&self, ticket: &Ticket) -> Result<Released> {
        let rows = self.ask(sql::withdraw(ticket)).await?;
        let row = rows.first().ok_or_else(|| unanswered("no answer"))?;
        if number(row, 1)? == 0 {
            // The tables were emptied. Without the counter's row there was no row to mark.
            schema::ready(&self.pool, self.pool.deadline()).await?;
            return Err(unanswered("another process is creating the tables"));
        }
        Ok(released(number(row, 0)?))
    }

    /// The newest token of the lock, after the counter of new tokens was raised to `newest`.
    async fn raise_tokens(&self, name: &Name, newest: u64) -> Result<u64> {
        let seen = self.newest_token(sql::newest_token(name)).await?;
        if seen >= newest {
            return Ok(seen);
        }
        self.newest_token(sql::raise_tokens(name, newest)).await
    }

    async fn newest_token(&self, text: String) -> Result<u64> {
        let rows = self.ask(text).await?;
        let Some(row) = rows.first() else {
            // The counter's row is missing, so nothing was raised.
            schema::ready(&self.pool, self.pool.deadline()).await?;
            return Err(errors::unsent("another process is creating the tables"));
        };
        number(row, 0)
    }

    async fn inspect(&self, name: &Name) -> Result<Snapshot> {
        let rows = self.ask(sql::inspect(name)).await?;
        let mut snapshot = Snapshot::free(name.as_str());
        let Some(row) = rows.first() else {
            return Ok(snapshot);
        };
        snapshot.token = Some(FencingToken::new(number(row, 2)?));
        let left = number(row, 1)?;
        if left > 0 {
            snapshot.expires_in = Some(Duration::from_micros(left));
            let mut holder = Holder::new(text(row, 0)?, 1);
            holder.client = details(row)?;
            snapshot.holders.push(holder);
        }
        Ok(snapshot)
    }

    async fn list(&self, pattern: &str, after: Option<&str>) -> Result<Page> {
        // The beginning of a key, as a number.
        let cursor = after.map_or(0, |cursor| cursor.parse().unwrap_or(u64::MAX));
        let rows = self.ask(sql::list(cursor)).await?;
        let mut page = Page::default();
        for row in &rows {
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

    async fn announce(&self, client: &ClientId, info: Option<&ClientInfo>) -> Result<()> {
        let Some(info) = info else {
            return self.ask(sql::retract(client)).await.map(drop);
        };
        self.ask(sql::announce(client, info, CLIENT_INFO_TTL))
            .await?;
        // A failed sweep does no harm to locks. The next client that announces itself repeats it.
        if let Err(error) = self.ask(sql::sweep()).await {
            tracing::debug!(%error, "cannot delete expired rows");
        }
        Ok(())
    }
}

fn released(rows: u64) -> Released {
    if rows == 0 {
        Released::NotHeld
    } else {
        Released::Freed
    }
}

fn details(row: &TextRow) -> Result<Option<ClientInfo>> {
    if row.get(3).is_none_or(Option::is_none) {
        return Ok(None);
    }
    let pid = u32::try_from(number(row, 4)?).unwrap_or(0);
    let since = since_epoch(number(row, 6)?);
    Ok(Some(ClientInfo::new(
        text(row, 3)?,
        pid,
        text(row, 5)?,
        since,
    )))
}

impl Backend for Mysql {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sql_fence: Some(&self.fence),
            token_counter: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        certain(self.attempt(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.renew(batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.release(ticket))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.withdraw(ticket))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.pool.close();
        ready(())
    }
}

impl TokenCounter for Mysql {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.raise_tokens(name, newest))
    }
}

impl Operate for Mysql {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(self.inspect(name))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.list(pattern, after))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.force_release(name))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.announce(client, info))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async {
            let settings = self.ask(doctor::READ_SETTINGS.to_owned()).await?;
            let engines = self.ask(doctor::ENGINES.to_owned()).await?;
            doctor::findings(&self.pool, &settings, &engines)
        })
    }
}
