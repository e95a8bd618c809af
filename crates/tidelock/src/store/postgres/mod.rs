//! `postgres://`: one table row with a lease per lock, timed by the server's clock.
//!
//! Every operation is one SQL statement ([`schema`]) and needs no state in the session. So it works behind a pooler that
//! passes a server connection to another client after each transaction. The statements of a lock are prepared
//! ([`prepared`]), and sent in full where a session does not know them. A release sends `NOTIFY`; a separate connection
//! listens and wakes waiters ([`listener`]). Where notifications do not arrive, waiters poll.
//!
//! The callers and the steward each have a connection ([`connection`]), and renewals have one, so that no other request holds
//! them up ([`renewals`]). All connections run on the steward's thread, so they survive the end of a caller's runtime.
//! The requests of callers run there too, so that a future that is not polled holds up no other ([`caller_side`]).
//!
//! `?locks=session` selects the server's advisory locks instead ([`session`]).

mod abandoned;
mod address;
mod caller_side;
mod columns;
mod connection;
mod counter;
mod doctor;
mod errors;
mod fair_sql;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod inspect;
mod literal;
mod mark_sql;
mod marks;
mod named_row;
pub(crate) mod options;
mod permit_sql;
mod permit_table;
mod permits;
mod prepared;
mod queue_sql;
mod queued;
mod renewals;
mod row_retry;
mod schema;
pub(crate) mod session;
mod side_sql;
mod sweeps;
mod tables;
mod tls;
mod wake;

use std::fmt;
use std::sync::{Arc, atomic::AtomicBool};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::errors::unexpected;
use crate::store::fair_waiters::FairWaiters;
use crate::store::kinds::is_semaphore;
use crate::store::postgres::address::Address;
use crate::store::postgres::caller_side::CallerSide;
use crate::store::postgres::columns::{fencing, micros};
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::{RequestError, withdrawn};
use crate::store::postgres::named_row::NamedRow;
use crate::store::postgres::permit_table::PermitLocks;
use crate::store::postgres::prepared::Value;
use crate::store::postgres::queue_sql::QueueSql;
use crate::store::postgres::queued::{PostgresQueue, QueuedLocks};
use crate::store::postgres::row_retry::RowRetry;
use crate::store::postgres::schema::Sql;
use crate::store::postgres::sweeps::PostgresTables;
use crate::store::postgres::wake::NotifyListener;
use crate::store::sweeper::Sweeper;
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BootInstant, BoxFuture, CLIENT_INFO_TTL,
    Capabilities, ClientId, Env, Extensions, LockKind, Name, Operate, Page, Released, Renewal,
    Renewed, Store, Ticket, certain, ready,
};

/// The polling interval of a waiter that has no wake.
const POLL: Duration = Duration::from_millis(50);

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Fair,
        LockKind::FairFenced,
        LockKind::Read,
        LockKind::Write,
        LockKind::ReadFenced,
        LockKind::WriteFenced,
        LockKind::UpgradeableRead,
        LockKind::UpgradeableReadFenced,
        LockKind::Permits(1),
    ],
    wakes: true,
    queues: false,
    shared: true,
    durable: true,
    delays: false,
    sequencers: false,
    raises_tokens: true,
    marks: true,
    counts: false,
};

/// Opens the store, and creates its tables if they are missing.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let address = Arc::new(target(url, env)?);
    if address.session_locks {
        return session::open(Connection::new(address, env), env).await;
    }
    let sql = Arc::new(Sql {
        may_make: env.create,
        ..Sql::new(&address.table)
    });
    let connection = || Connection::new(Arc::clone(&address), env);
    let front = connection();
    tables::make_all(&front, &sql).await?;
    let has_more = sweeps::batch(&front, &sql).await?;
    let listener = NotifyListener::new(connection(), front.clone(), &sql, env);
    let patience = env.response_timeout / 2;
    let queue_sql = Arc::new(QueueSql::new(&sql.table, &sql.channel, patience));
    let back = connection();
    let table = PostgresQueue {
        connection: back.clone(),
        sql: Arc::clone(&queue_sql),
        plain: Arc::clone(&sql),
        listener: Arc::clone(&listener),
    };
    let waiters = FairWaiters::new(table, listener.signals(), &env.timers, &env.background);
    let looks = Arc::downgrade(&waiters);
    listener.on_release(move |name| {
        if let Some(waiters) = looks.upgrade() {
            waiters.look_now(name);
        }
    });
    let permits = PermitLocks::new((&sql, &queue_sql), &back, &listener, env);
    let swept = PostgresTables::new(&address, env, &sql, [&queue_sql.tidy, &permits.sql.tidy]);
    let sweeper = Sweeper::start(swept, has_more, &env.timers, &env.background);
    let has_queue = Arc::new(AtomicBool::new(false));
    let (renewals, waits) = (connection(), Arc::new(Semaphore::new(1)));
    let face = |connection| Postgres {
        connection,
        renewals: renewals.clone(),
        waits: Arc::clone(&waits),
        sql: Arc::clone(&sql),
        listener: Arc::clone(&listener),
        waiters: Arc::clone(&waiters),
        queue_sql: Arc::clone(&queue_sql),
        has_queue: Arc::clone(&has_queue),
        permits: Arc::clone(&permits),
        sweeper: Arc::clone(&sweeper),
        lease: env.lease,
    };
    let (front, back) = (face(front), face(back));
    let front = CallerSide::new(Arc::new(front), &env.background);
    Ok(Store::new(Arc::new(front), Arc::new(back)))
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    Address::parse(url, env)
}

/// The store, for callers or for the steward, with a connection each.
struct Postgres {
    connection: Connection,
    /// Both have one for renewals.
    renewals: Connection,
    /// Bounds the renewals that wait for a row.
    waits: Arc<Semaphore>,
    sql: Arc<Sql>,
    listener: Arc<NotifyListener>,
    waiters: Arc<FairWaiters<PostgresQueue>>,
    queue_sql: Arc<QueueSql>,
    has_queue: Arc<AtomicBool>,
    permits: Arc<PermitLocks>,
    sweeper: Arc<Sweeper>,
    lease: Duration,
}

impl Postgres {
    async fn decide(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let deadline = self.connection.deadline();
        // We arm the wake before we send the statement. Otherwise a release between the two would be missed.
        let wake = if ask.wants_wake() {
            let within = ask.time_to_arm(self.connection.limit() / 2);
            self.listener.arm(ask.ticket.name.as_str(), within).await
        } else {
            None
        };
        let timers = self.connection.timers();
        let mut retry = RowRetry::new(ask, timers.now(), self.connection.limit());
        let row = loop {
            match self.send_attempt(ask, deadline).await {
                // Another transaction locks the row: the attempt changed nothing.
                Err(failure) if failure.is_row_taken() => {
                    if !retry.once_more(timers.now()) {
                        return Ok(self.refused(ask, wake, Some(POLL)));
                    }
                }
                row => break row.map_err(RequestError::error)?,
            }
        };
        // No row: another attempt inserted it after this statement took its snapshot, so another owner has the lock.
        let Some(row) = row else {
            return Ok(self.refused(ask, wake, Some(Duration::from_millis(5))));
        };
        let number = row.bigint(1);
        match row.integer(0) {
            Some(1) => {
                let token = number.and_then(fencing);
                Ok(Attempt::granted(token.ok_or_else(|| not_a_token(number))?))
            }
            Some(0) => {
                let left = number.unwrap_or(0);
                // One millisecond more, so that the lease has ended at the recheck.
                let left = Duration::from_micros(u64::try_from(left).unwrap_or(0) + 1000);
                Ok(self.refused(ask, wake, Some(left)))
            }
            Some(2) => Err(withdrawn()),
            Some(3) => Err(is_semaphore()),
            other => Err(unexpected(format_args!("{other:?}"))),
        }
    }

    /// Sends an attempt. If a table is missing, makes it and sends the attempt again: the first one has changed nothing.
    async fn send_attempt(
        &self,
        ask: &AttemptRequest,
        deadline: BootInstant,
    ) -> Result<Option<NamedRow>, RequestError> {
        let Ticket { name, owner, .. } = &ask.ticket;
        let (name, owner) = (name.as_str(), owner.text());
        let lease = micros(ask.lease);
        let params = [Value::Text(name), Value::Text(owner), Value::Number(lease)];
        let statement = &self.sql.attempt;
        let send = || {
            self.connection
                .ask_named(&ask.liveness, statement, &params, deadline)
        };
        match send().await {
            Err(failure) if failure.is_no_table() => {
                tables::make_again(&self.connection, &self.sql).await?;
                send().await
            }
            row => row,
        }
    }

    fn refused(
        &self,
        ask: &AttemptRequest,
        wake: Option<crate::store::Wake>,
        left: Option<Duration>,
    ) -> Attempt {
        // A notification can be lost, so every waiter rechecks at least once per lease.
        let recheck = left.unwrap_or(self.lease).min(self.lease);
        // A wake that was armed before hears nothing while the listener is deaf.
        let hears = wake.is_some() || !ask.wants_wake() && self.listener.is_live();
        let polls = !hears && !ask.patience.is_zero();
        Attempt::held(wake, if polls { recheck.min(POLL) } else { recheck })
    }

    fn queued(&self) -> QueuedLocks<'_> {
        QueuedLocks {
            connection: &self.connection,
            sql: &self.queue_sql,
            plain: &self.sql,
            listener: &self.listener,
            waiters: &self.waiters,
            has_queue: &self.has_queue,
            lease: self.lease,
        }
    }
}

/// The row was taken: the ticket has to be withdrawn.
fn not_a_token(token: Option<i64>) -> Error {
    let token = token.map_or_else(|| "nothing".to_owned(), |token| token.to_string());
    Error::new(ErrorKind::OutcomeUnknown).because(format!(
        "the sequence of the fencing tokens returned {token}, which is not a token; restart it at the largest token in use"
    ))
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sql_fence: Some(&self.sql.fence),
            token_counter: Some(self),
            marks: Some(self),
            permit_counter: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        if let LockKind::Permits(permits) = ask.ticket.kind {
            certain(self.attempt_permits(ask, permits))
        } else if ask.ticket.kind.is_queued() {
            certain(self.queued().attempt(ask))
        } else {
            certain(self.decide(ask))
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(self.renew_batch(batch))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        if ticket.kind.is_permits() {
            Box::pin(self.end_permits(ticket, false))
        } else if ticket.kind.is_queued() {
            Box::pin(self.queued().release(ticket))
        } else {
            Box::pin(self.queued().release_plain(ticket))
        }
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        if ticket.kind.is_permits() {
            Box::pin(self.end_permits(ticket, true))
        } else if ticket.kind.is_queued() {
            Box::pin(self.queued().withdraw(ticket))
        } else {
            Box::pin(self.queued().withdraw_plain(ticket))
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.waiters.close();
        self.permits.waiters.close();
        self.sweeper.close();
        self.listener.close();
        self.renewals.close();
        self.connection.close();
        ready(())
    }
}

impl Operate for Postgres {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(async move {
            let mut snapshot = inspect::at(&self.connection, &self.sql, name).await?;
            if self.show_permits(name, &mut snapshot).await? {
                return Ok(snapshot);
            }
            self.queued().show(name, &mut snapshot).await?;
            Ok(snapshot)
        })
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(pattern, after))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            match self.force_permits(name, seen).await? {
                Some(was_held) => Ok(was_held),
                None => self.queued().force_release(name, seen).await,
            }
        })
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        let Self {
            connection, sql, ..
        } = self;
        match info {
            Some(info) => {
                let announced = inspect::announce(connection, sql, client, info, CLIENT_INFO_TTL);
                let tidy = [&*self.queue_sql.tidy, &*self.permits.sql.tidy];
                Box::pin(async move {
                    announced.await?;
                    sweeps::tidy(connection, tidy).await;
                    Ok(())
                })
            }
            None => Box::pin(inspect::retract(connection, sql, client)),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(doctor::examine(
            &self.connection,
            &self.sql,
            (&self.queue_sql, &self.permits.sql),
            &self.listener,
        ))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.connection).finish()
    }
}

#[cfg(test)]
mod tests;
