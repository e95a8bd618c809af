//! A connection pool for one server, on the background runtime. Callers hand requests to it from any runtime.
//!
//! Each request has a connection for itself. If its caller leaves, the request still finishes, and only a connection
//! whose answer was read to its end returns to the pool.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::Credentials;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::credentials::given_by;
use crate::store::mysql::address::Address;
use crate::store::mysql::errors::{RequestError, unanswered, unsent};
use crate::store::mysql::raw_connection::{RawConnection, TextRow};
use crate::store::{Background, BootInstant, Env, Liveness, Timers};

/// How long an idle connection is used without a ping. The server may have closed an older one, and the outcome of
/// the next request would then be unknown.
const IDLE_TRUSTED: Duration = Duration::from_secs(5);
/// A connection that has been idle for longer is dropped.
pub(super) const STALE: Duration = Duration::from_secs(120);
/// Bounds how often a text is sent if a deadlock rolls it back.
const MAX_DEADLOCK_TRIES: u32 = 4;

/// What one request sends.
#[derive(Debug, Clone)]
pub(crate) enum Statements {
    /// The server commits each statement by itself.
    Each(String),
    /// All of them take effect, or none.
    Transaction(String),
}

impl From<String> for Statements {
    fn from(text: String) -> Self {
        Self::Each(text)
    }
}

type CredentialsSource = Arc<dyn Fn() -> Credentials + Send + Sync>;

/// A bounded pool. Connections are opened on demand.
#[derive(Clone)]
pub(crate) struct Pool(Arc<PoolInner>);

struct PoolInner {
    address: Address,
    login: Option<CredentialsSource>,
    timers: Timers,
    background: Background,
    limit: Duration,
    create: bool,
    idle: Mutex<Vec<(RawConnection, BootInstant)>>,
    permits: Semaphore,
    closed: AtomicBool,
}

impl Pool {
    /// A pool of at most `most` connections. None is opened yet.
    pub(crate) fn new(address: Address, env: &Env, most: usize) -> Self {
        Self(Arc::new(PoolInner {
            address,
            login: env.credentials.clone(),
            timers: env.timers.clone(),
            background: env.background.clone(),
            limit: env.response_timeout,
            create: env.create,
            idle: Mutex::default(),
            permits: Semaphore::new(most),
            closed: AtomicBool::new(false),
        }))
    }

    /// The database that contains the tables.
    pub(crate) fn database(&self) -> &str {
        &self.0.address.database
    }

    /// Missing tables may be made.
    pub(crate) fn may_create(&self) -> bool {
        self.0.create
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.0.timers.now()
    }

    /// The deadline of a request that starts now.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.0.timers.now() + self.0.limit
    }

    pub(crate) async fn pause(&self, time: Duration) {
        self.0.timers.after(time).await;
    }

    /// Sends statements, and returns the rows of the last one.
    pub(crate) async fn ask(
        &self,
        text: impl Into<Statements>,
        deadline: BootInstant,
    ) -> Result<Vec<TextRow>, RequestError> {
        self.ask_for(text.into(), deadline, Liveness::default())
            .await
    }

    /// Like [`ask`](Self::ask), but sends nothing if the caller leaves before a connection is available.
    pub(crate) async fn ask_for(
        &self,
        text: Statements,
        deadline: BootInstant,
        liveness: Liveness,
    ) -> Result<Vec<TextRow>, RequestError> {
        let inner = Arc::clone(&self.0);
        let work = async move { inner.serve(&text, deadline, &liveness).await };
        // The work ends by its own deadline. Its task ends early only with the background runtime.
        let answer = self.0.background.run(work).await;
        answer.unwrap_or_else(|| {
            Err(RequestError::Classified(unanswered(
                "the client is closing",
            )))
        })
    }

    /// Sends statements in the background. Nobody hears of their outcome.
    pub(crate) fn send(&self, text: impl Into<Statements>) {
        let (inner, text, deadline) = (Arc::clone(&self.0), text.into(), self.deadline());
        self.0.background.spawn(async move {
            if let Err(failure) = inner.serve(&text, deadline, &Liveness::default()).await {
                let error = failure.error();
                tracing::debug!(%error, "a request in the background was not answered");
            }
        });
    }

    /// The next request is sent on a connection that breaks before its reply.
    #[cfg(test)]
    pub(crate) fn break_next(&self) {
        self.0.keep_idle(RawConnection::broken());
    }

    /// Closes all idle connections. Those in use close when their requests end.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        let idle = std::mem::take(&mut *self.0.idle());
        // We drop them on the runtime that owns their sockets.
        self.0.background.spawn(async move { drop(idle) });
    }
}

impl PoolInner {
    fn idle(&self) -> MutexGuard<'_, Vec<(RawConnection, BootInstant)>> {
        self.idle.lock()
    }

    async fn serve(
        &self,
        text: &Statements,
        deadline: BootInstant,
        liveness: &Liveness,
    ) -> Result<Vec<TextRow>, RequestError> {
        let permit = self.timers.until(deadline, self.permits.acquire()).await;
        let Some(Ok(_permit)) = permit else {
            return Err(RequestError::Classified(unsent(
                "all connections to the server are busy",
            )));
        };
        if liveness.has_left() {
            return Err(RequestError::Classified(unsent(
                "the caller no longer waits for the reply",
            )));
        }
        let Some(raw_connection) = self.timers.until(deadline, self.raw_connection()).await else {
            let late = unsent(format_args!("{}: no connection in time", self.address));
            return Err(RequestError::Classified(late));
        };
        let mut raw_connection = raw_connection.map_err(RequestError::Classified)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let asked = async {
                match text {
                    Statements::Each(text) => raw_connection.ask(text).await,
                    Statements::Transaction(text) => raw_connection.transact(text).await,
                }
            };
            let Some(answer) = self.timers.until(deadline, asked).await else {
                let mute = unanswered(format_args!("no answer within {:?}", self.limit));
                return Err(RequestError::Classified(mute));
            };
            match answer {
                Err(failure) if failure.is_contended() && tries < MAX_DEADLOCK_TRIES => {}
                Err(failure) => {
                    if failure.spares_connection() {
                        self.keep_idle(raw_connection);
                    }
                    if failure.is_read_only() {
                        self.drop_idle();
                    }
                    return Err(failure);
                }
                Ok(rows) => {
                    self.keep_idle(raw_connection);
                    return Ok(rows);
                }
            }
        }
    }

    /// A live connection: an idle one, or a new one.
    async fn raw_connection(&self) -> Result<RawConnection> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed));
        }
        loop {
            let found = self.idle().pop();
            let Some((mut raw_connection, since)) = found else {
                let login = self.login().await?;
                return RawConnection::open(&self.address, login, self.limit / 3).await;
            };
            let idle = self.timers.now().since(since);
            if idle < IDLE_TRUSTED || (idle < STALE && raw_connection.lives().await) {
                return Ok(raw_connection);
            }
        }
    }

    async fn login(&self) -> Result<Option<Credentials>> {
        match &self.login {
            Some(source) => {
                let given = given_by(source, self.address.user.as_deref()).await;
                given.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Drops the idle connections. They lead to the server of a connection that is given up.
    fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle); // not under the lock: it closes the sockets
    }

    fn keep_idle(&self, raw_connection: RawConnection) {
        if !self.closed.load(Ordering::SeqCst) {
            self.idle().push((raw_connection, self.timers.now()));
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.address.fmt(f)
    }
}

#[cfg(test)]
mod tests;
