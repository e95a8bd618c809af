//! The MySQL store, `mysql://` and `mariadb://`: a table of leases on MySQL 8, MariaDB 10.6, or later.
//!
//! A lock is a row with a lease. Single statements and short transactions change it ([`sql`]), and the server's clock
//! decides. No state belongs to a session: any connection can renew or release any lock, so no lock is lost with a
//! connection that is killed, pooled or timed out. Connections live on the background runtime ([`pool`]); callers and
//! steward share none. The server wakes nobody, so waiters poll.
//!
//! A fair or read-write lock also has a queue ([`queue_sql`]), and each change of both is one transaction.

pub(crate) mod address;
mod attempt;
mod connection;
mod doctor;
mod errors;
mod fair;
mod fair_sql;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod inspect;
mod kept_rows;
mod marks;
mod pollers;
mod queue;
mod queue_sql;
mod queued_tickets;
mod raw_connection;
mod renewals;
mod schema;
mod side_sql;
mod sides;
mod sql;
mod sweeps;

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Mode, Snapshot};
use crate::store::fair_waiters::FairWaiters;
use crate::store::mysql::address::Address;
use crate::store::mysql::connection::{Pool, Statements};
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::errors::unanswered;
use crate::store::mysql::kept_rows::KeptRows;
use crate::store::mysql::queue::MysqlQueue;
use crate::store::mysql::queued_tickets::QueuedTickets;
use crate::store::mysql::raw_connection::{TextRow, count, first, is_any, number};
use crate::store::mysql::sweeps::MysqlTables;
use crate::store::sweeper::Sweeper;
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BootInstant, BoxFuture, Capabilities, ClientId, Env,
    Extensions, Liveness, LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store, Ticket,
    TokenCounter, WakeChannels, certain, ready, tls,
};

/// Bounds the connections of the callers. A request in flight needs one for itself.
const FRONT: usize = 8;
/// Bounds the connections of the steward.
const BACK: usize = 3;
/// Bounds the connections on which the client looks at the queues of fair and read-write locks.
const LOOKS: usize = 2;

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Read,
        LockKind::Write,
        LockKind::Fair,
        LockKind::FairFenced,
        LockKind::ReadFenced,
        LockKind::WriteFenced,
        LockKind::UpgradeableRead,
        LockKind::UpgradeableReadFenced,
    ],
    wakes: false,
    queues: false,
    shared: true,
    durable: true,
    delays: false,
    sequencers: false,
    raises_tokens: true,
    marks: true,
    counts: false,
};

/// Connects, and creates the tables if they are missing.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let address = target(url, env)?;
    let front = Pool::new(address.clone(), env, FRONT);
    schema::ready(&front, front.deadline()).await?;
    let (front, back) = sides_of(front, &address, env);
    Ok(Store::new(front, back))
}

/// The side of the callers, with its connections `front`, and that of the steward. The tables are there.
fn sides_of(front: Pool, address: &Address, env: &Env) -> (Arc<Mysql>, Arc<Mysql>) {
    let pool = |most| Pool::new(address.clone(), env, most);
    let (back, looks) = (pool(BACK), pool(LOOKS));
    let table = MysqlQueue {
        pool: looks.clone(),
    };
    let signals = WakeChannels::new(env.timers.clone(), |_| {});
    let waiters = FairWaiters::new(table, signals, &env.timers, &env.background);
    let swept = MysqlTables(back.clone());
    let sweeper = Sweeper::start(swept, false, &env.timers, &env.background);
    let queued = Arc::new(QueuedTickets::new(env.timers.clone()));
    let face = |pool: Pool| {
        Arc::new(Mysql {
            fence: sql::fence(pool.database()),
            pool,
            looks: looks.clone(),
            waiters: Arc::clone(&waiters),
            sweeper: Arc::clone(&sweeper),
            queued: Arc::clone(&queued),
            lease: env.lease,
            kept_rows: KeptRows::default(),
        })
    };
    (face(front), face(back))
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    let mut address = Address::parse(url)?;
    address.files = tls::named(&env.tls, address.files);
    address.check_tls()?;
    Ok(address)
}

/// One store handle: for the callers, or for the steward.
#[derive(Debug)]
struct Mysql {
    pool: Pool,
    looks: Pool,
    waiters: Arc<FairWaiters<MysqlQueue>>,
    sweeper: Arc<Sweeper>,
    queued: Arc<QueuedTickets>,
    lease: Duration,
    /// The statement of an SQL fence.
    fence: String,
    kept_rows: KeptRows,
}

impl Mysql {
    /// Sends one request.
    async fn ask(&self, text: impl Into<Statements>) -> Result<Vec<TextRow>> {
        self.ask_for(text, Liveness::default()).await
    }

    /// Like [`ask`](Self::ask), but sends nothing if the caller has already left.
    async fn ask_for(
        &self,
        text: impl Into<Statements>,
        liveness: Liveness,
    ) -> Result<Vec<TextRow>> {
        let answer = self.ask_until(self.pool.deadline(), text, liveness).await;
        answer.map_err(RequestError::error)
    }

    /// Sends one request. If a table that all locks need is missing, creates it and sends the request again. The locks in
    /// the old table are lost, and their holders hear of it at the next renewal.
    async fn ask_until(
        &self,
        deadline: BootInstant,
        text: impl Into<Statements>,
        liveness: Liveness,
    ) -> Result<Vec<TextRow>, RequestError> {
        let text = text.into();
        match self.pool.ask_for(text.clone(), deadline, liveness).await {
            Err(failure) if failure.is_no_table() => {
                let ready = schema::ready_again(&self.pool, deadline, &failure).await;
                ready.map_err(RequestError::Classified)?;
                self.pool.ask(text, deadline).await
            }
            other => other,
        }
    }

    /// The first row of an answer. There is none if the counter's row is missing, and then nothing was changed.
    async fn first_row<'a>(&self, rows: &'a [TextRow]) -> Result<&'a TextRow> {
        if let Some(row) = rows.first() {
            return Ok(row);
        }
        schema::ready(&self.pool, self.pool.deadline()).await?;
        Err(errors::unsent("another process is creating the tables"))
    }

    /// The number of changed rows.
    async fn count(&self, statements: String) -> Result<u64> {
        let rows = self.ask(statements).await?;
        count(&rows)
    }

    async fn release(&self, ticket: &Ticket) -> Result<Released> {
        Ok(released(self.count(sql::release(ticket)).await?))
    }

    async fn force_release(&self, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
        let rows = match seen {
            Some(seen) if !seen.is_locked() => return Ok(false),
            Some(seen) if has_sides(seen) => {
                let text = side_sql::force_if(name, seen);
                self.ask_queue(text, &Liveness::default()).await?
            }
            seen => self.ask(sql::force_release(name, seen)).await?,
        };
        is_any(&rows)
    }

    async fn withdraw(&self, ticket: &Ticket) -> Result<Released> {
        let rows = self.ask(sql::withdraw(ticket)).await?;
        let row = self.need_counter(&rows, 1).await?;
        Ok(released(number(row, 0)?))
    }

    /// Reads whether a withdrawal has found the counter's row. After the tables were emptied there was no row to mark.
    async fn need_counter<'a>(&self, rows: &'a [TextRow], column: usize) -> Result<&'a TextRow> {
        let row = first(rows)?;
        if number(row, column)? == 0 {
            schema::ready(&self.pool, self.pool.deadline()).await?;
            return Err(unanswered("another process is creating the tables"));
        }
        Ok(row)
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
        number(self.first_row(&rows).await?, 0)
    }
}

/// Whether the holders in a snapshot read or write.
fn has_sides(seen: &Snapshot) -> bool {
    seen.holders.iter().any(|it| it.mode != Mode::Exclusive)
}

fn released(rows: u64) -> Released {
    if rows == 0 {
        Released::NotHeld
    } else {
        Released::Freed
    }
}

impl Backend for Mysql {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sql_fence: Some(&self.fence),
            token_counter: Some(self),
            marks: Some(self),
            pollers: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        if ask.ticket.kind.is_queued() {
            certain(self.attempt_queued(ask))
        } else {
            certain(self.attempt(ask))
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.renew_batch(batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        if ticket.kind.is_read_write() {
            Box::pin(self.release_side(ticket))
        } else if ticket.kind.is_fair() {
            Box::pin(self.release_fair(ticket))
        } else {
            Box::pin(self.release(ticket))
        }
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        if ticket.kind.is_read_write() {
            Box::pin(self.withdraw_side(ticket))
        } else if ticket.kind.is_fair() {
            Box::pin(self.withdraw_fair(ticket))
        } else {
            Box::pin(self.withdraw(ticket))
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.waiters.close();
        self.sweeper.close();
        self.looks.close();
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

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.force_release(name, seen))
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
            let mut findings = doctor::findings(&self.pool, &settings, &engines)?;
            findings.extend(doctor::queue(&self.pool).await);
            Ok(findings)
        })
    }
}

#[cfg(test)]
mod tests;
