//! One session: a connection, and the locks that the server keeps for as long as that stands.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::probe;
use super::slots::Slots;
use crate::backend::postgres::link::{Link, Param};
use crate::backend::postgres::trouble::Trouble;
use crate::backend::{Bond, Moment, Timers};

/// Whether the statement is run in our session: by the process of the server that began it, and under our mark. Behind a
/// pooler that gives connections away it may be another's, and a lock that is taken there would not be ours.
macro_rules! ours {
    ($then:literal) => {
        concat!(
            "SELECT o.ours, ",
            $then,
            " FROM (SELECT coalesce(pg_backend_pid() = $1 AND current_setting('tidelock.session', true) = $2, false) AS ours) AS o"
        )
    };
}

pub(super) const TAKE: &str =
    ours!("CASE WHEN o.ours THEN pg_try_advisory_lock($3) ELSE false END");
pub(super) const GIVE: &str = ours!("CASE WHEN o.ours THEN pg_advisory_unlock($3) ELSE false END");
pub(super) const SIGN: &str = ours!("true");
const KEY: &str = ours!("hashtextextended($3, 0)");

/// So many names have their keys remembered.
const KEYS: usize = 10_000;

/// A connection that is ours alone.
pub(super) struct Session {
    client: Client,
    timers: Timers,
    limit: Duration,
    pid: i32,
    mark: String,
    heard: Arc<AtomicU64>,
    over: Arc<Over>,
    pub(super) span: Duration,
    /// What every lock of it depends on.
    pub(super) bond: Bond,
    pub(super) slots: Slots,
    keys: Mutex<HashMap<String, i64>>,
}

/// How it has ended.
#[derive(Default)]
struct Over {
    ended: AtomicBool,
    /// We left: nobody is to be told.
    left: AtomicBool,
}

impl Session {
    /// Connects, and makes sure that the session is ours and stays it. The caller bounds the time.
    pub(super) async fn open(link: &Link, span: Duration) -> Result<Arc<Self>, Trouble> {
        let heard = Arc::new(AtomicU64::new(link.timers().now().0));
        let seen = Arc::clone(&heard);
        let bond = Bond::new(span, move || Moment(seen.load(Ordering::SeqCst)));
        let over = Arc::<Over>::default();
        let (told, severed) = (Arc::clone(&over), bond.clone());
        let client = link
            .connect(Some(Box::new(move |said| {
                if said.is_none() {
                    told.ended.store(true, Ordering::SeqCst);
                    if !told.left.load(Ordering::SeqCst) {
                        // The server frees the locks of a connection as soon as it sees its end.
                        severed.sever();
                    }
                }
            })))
            .await?;
        let mark = Uuid::new_v4().simple().to_string();
        let pid = probe::begin(&client, &mark).await?;
        let session = Arc::new(Self {
            client,
            timers: link.timers().clone(),
            limit: link.limit(),
            pid,
            mark,
            heard,
            over,
            span,
            bond,
            slots: Slots::default(),
            keys: Mutex::default(),
        });
        probe::check(link, &session).await?;
        let bear = probe::bear(span);
        session.ask(&bear, None, link.deadline()).await?;
        Ok(session)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.ended.load(Ordering::SeqCst) || self.client.is_closed()
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// When the last statement was sent that is known to have been run.
    pub(super) fn heard(&self) -> Moment {
        Moment(self.heard.load(Ordering::SeqCst))
    }

    /// It is of no use any more: whoever holds a lock of it is told.
    pub(super) fn give_up(&self) {
        self.over.ended.store(true, Ordering::SeqCst);
        self.bond.sever();
    }

    /// The client is closing, and has told everybody what there is to tell.
    pub(super) fn leave(&self) {
        self.over.left.store(true, Ordering::SeqCst);
        self.over.ended.store(true, Ordering::SeqCst);
    }

    /// One statement, answered before the deadline, in this session or not at all.
    pub(super) async fn ask(
        &self,
        statement: &str,
        third: Option<Param<'_>>,
        deadline: Moment,
    ) -> Result<Vec<Row>, Trouble> {
        if self.is_over() {
            return Err(Trouble::Unsent("the session has ended".to_owned()));
        }
        let mut params = vec![(&self.pid as _, Type::INT4), (&self.mark as _, Type::TEXT)];
        params.extend(third);
        let sent = self.timers.now();
        let asked = std::pin::pin!(self.client.query_typed(statement, &params));
        let answer = self.timers.until(deadline, asked).await;
        let Some(answer) = answer else {
            return Err(Trouble::Broken(format!(
                "no answer within {:?}",
                self.limit
            )));
        };
        let rows = answer.map_err(|error| Trouble::of(&error))?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            self.give_up();
            return Err(probe::pooled());
        }
        self.heard.fetch_max(sent.0, Ordering::SeqCst);
        Ok(rows)
    }

    /// One whose answer is yes or no.
    pub(super) async fn ask_for(
        &self,
        statement: &str,
        key: i64,
        deadline: Moment,
    ) -> Result<bool, Trouble> {
        let rows = self.ask(statement, Some((&key, Type::INT8)), deadline);
        Ok(rows.await?.first().is_some_and(|row| row.get(1)))
    }

    /// What the server locks for a name: a number, which another name may have too. It is the server's own function, so that
    /// others can write `pg_advisory_lock(hashtextextended('name', 0))`.
    pub(super) async fn key(&self, name: &str, deadline: Moment) -> Result<i64, Trouble> {
        if let Some(key) = self.known_key(name) {
            return Ok(key);
        }
        let rows = self.ask(KEY, Some((&name, Type::TEXT)), deadline).await?;
        let key = rows.first().map_or(0, |row| row.get(1));
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS {
            keys.retain(|_, key| self.slots.is_in_use(*key));
        }
        keys.insert(name.to_owned(), key);
        Ok(key)
    }

    /// The key of a name that was asked for in this session. What is held has one.
    pub(super) fn known_key(&self, name: &str) -> Option<i64> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(name).copied()
    }
}
