//! One session: a connection, and the locks that the server keeps until that connection ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::engine::runtime::sync::Mutex;
use crate::store::postgres::connection::{Connection, Param};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::session::probe;
use crate::store::postgres::session::slots::ServerLocks;
use crate::store::{Bond, BootInstant, Timers};

/// Wraps an expression in a check that it runs in our session: same server process, and our mark is set. Behind a
/// pooler the statement may run in another client's session, and a lock taken there would not be ours.
macro_rules! ours {
    ($then:literal) => {
        concat!(
            "SELECT o.ours, ",
            $then,
            " FROM (SELECT coalesce(pg_backend_pid() = $1 AND current_setting('tidelock.session', true) = $2, false) AS ours) AS o"
        )
    };
}

pub(crate) const TAKE: &str =
    ours!("CASE WHEN o.ours THEN pg_try_advisory_lock($3) ELSE false END");
pub(crate) const GIVE: &str = ours!("CASE WHEN o.ours THEN pg_advisory_unlock($3) ELSE false END");
/// The keepalive.
pub(crate) const SIGN: &str = ours!("true");
/// The advisory lock's key for a name.
const KEY: &str = ours!("hashtextextended($3, 0)");

/// Bounds the names whose keys are cached. Keys of locks in use stay beyond the bound.
const KEYS: usize = 10_000;

/// A session that no other client shares.
pub(crate) struct Session {
    client: Client,
    timers: Timers,
    limit: Duration,
    pid: i32,
    /// A random id, stored in the session's `tidelock.session` setting.
    mark: String,
    /// When the last statement that got an answer was sent. Never goes back.
    last_confirmed: Arc<AtomicU64>,
    over: Arc<SessionEnd>,
    /// How long the server keeps the session without a statement.
    pub(crate) span: Duration,
    /// Part of every grant. Severed when the session ends, which tells all holders.
    pub(crate) bond: Bond,
    pub(crate) slots: ServerLocks,
    /// Cached keys, by name.
    keys: Mutex<HashMap<String, i64>>,
}

/// How the session ended.
#[derive(Default)]
struct SessionEnd {
    ended: AtomicBool,
    /// This client closed it: there are no holders to tell.
    left: AtomicBool,
}

impl Session {
    /// Connects, and checks that the server is no standby and that no other client shares the session. The caller applies
    /// the timeout.
    pub(crate) async fn open(
        connection: &Connection,
        span: Duration,
    ) -> Result<Arc<Self>, RequestError> {
        let last_confirmed = Arc::new(AtomicU64::new(connection.timers().now().0));
        let seen = Arc::clone(&last_confirmed);
        let bond = Bond::new(span, move || BootInstant(seen.load(Ordering::SeqCst)));
        let over = Arc::<SessionEnd>::default();
        let (told, severed) = (Arc::clone(&over), bond.clone());
        let client = connection
            .connect(Some(Box::new(move |said| {
                if said.is_none() {
                    told.ended.store(true, Ordering::SeqCst);
                    if !told.left.load(Ordering::SeqCst) {
                        // The server releases a session's locks as soon as it notices the end of the connection.
                        severed.sever();
                    }
                }
            })))
            .await?;
        let mark = Uuid::new_v4().simple().to_string();
        let pid = probe::begin(&client, &mark, connection).await?;
        let session = Arc::new(Self {
            client,
            timers: connection.timers().clone(),
            limit: connection.limit(),
            pid,
            mark,
            last_confirmed,
            over,
            span,
            bond,
            slots: ServerLocks::default(),
            keys: Mutex::default(),
        });
        let other = connection.connect(None).await?;
        for _ in 0..probe::MAX_PROBE_ROUNDS {
            probe::refuse_if_shared(&other, &session.mark).await?;
            session.ask(SIGN, None, connection.deadline()).await?;
        }
        let bear = probe::bear(span);
        session.ask(&bear, None, connection.deadline()).await?;
        Ok(session)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.ended.load(Ordering::SeqCst) || self.client.is_closed()
    }

    /// When the last statement that got an answer was sent. The server counts the silence from then or later.
    pub(crate) fn last_confirmed(&self) -> BootInstant {
        BootInstant(self.last_confirmed.load(Ordering::SeqCst))
    }

    /// Ends the session and tells every holder that its lock is lost.
    pub(crate) fn give_up(&self) {
        self.over.ended.store(true, Ordering::SeqCst);
        self.bond.sever();
    }

    /// Ends the session when the client closes. The holders have been told already.
    pub(crate) fn leave(&self) {
        self.over.left.store(true, Ordering::SeqCst);
        self.over.ended.store(true, Ordering::SeqCst);
    }

    /// Runs one statement before the deadline. Ends the session with an error if the statement ran in another session, and
    /// if it has no answer while no lock is held.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        third: Option<Param<'_>>,
        deadline: BootInstant,
    ) -> Result<Vec<Row>, RequestError> {
        if self.is_over() {
            return Err(RequestError::Unsent("the session has ended".to_owned()));
        }
        let mut params = vec![(&self.pid as _, Type::INT4), (&self.mark as _, Type::TEXT)];
        params.extend(third);
        // Taken before we send: the server's clock for the silence starts no earlier.
        let sent = self.timers.now();
        let asked = std::pin::pin!(self.client.query_typed(statement, &params));
        let answer = self.timers.until(deadline, asked).await;
        let Some(answer) = answer else {
            // A statement that was sent shortly before its deadline says nothing of the session.
            let is_silent = self.last_confirmed() + self.limit / 2 <= self.timers.now();
            if is_silent && !self.slots.has_holder() {
                // Nobody loses a lock with it. Otherwise a session on a half-open connection would fail every request until its
                // span has passed.
                self.give_up();
            }
            return Err(RequestError::Broken(format!(
                "no answer within {:?}",
                self.limit
            )));
        };
        let rows = answer.map_err(|error| RequestError::of(&error))?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            self.give_up();
            return Err(probe::pooled());
        }
        self.last_confirmed.fetch_max(sent.0, Ordering::SeqCst);
        Ok(rows)
    }

    /// Runs a statement about one key. Returns the boolean in its second column.
    pub(crate) async fn ask_for(
        &self,
        statement: &str,
        key: i64,
        deadline: BootInstant,
    ) -> Result<bool, RequestError> {
        let rows = self.ask(statement, Some((&key, Type::INT8)), deadline);
        Ok(rows.await?.first().is_some_and(|row| row.get(1)))
    }

    /// The advisory lock's key for a name. Two names may have the same key. We use the server's own hash function, so
    /// that other programs can write `pg_advisory_lock(hashtextextended('name', 0))`.
    pub(crate) async fn key(&self, name: &str, deadline: BootInstant) -> Result<i64, RequestError> {
        if let Some(key) = self.known_key(name) {
            return Ok(key);
        }
        let rows = self.ask(KEY, Some((&name, Type::TEXT)), deadline).await?;
        let key = rows.first().map_or(0, |row| row.get(1));
        let mut keys = self.keys.lock();
        if keys.len() >= KEYS {
            keys.retain(|_, key| self.slots.is_in_use(*key));
        }
        keys.insert(name.to_owned(), key);
        Ok(key)
    }

    /// The cached key of a name. Every held lock has one.
    pub(crate) fn known_key(&self, name: &str) -> Option<i64> {
        let keys = self.keys.lock();
        keys.get(name).copied()
    }
}
