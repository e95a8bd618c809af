//! Statements that the server parses and plans once for each connection.
//!
//! `PREPARE` gives a statement a name, and `EXECUTE` runs it. Behind a pooler that passes a server connection on after
//! each transaction, the next `EXECUTE` may reach a session that does not know the name, or in which another client gave
//! it. So the name is a hash of the text: whoever gave it, it stands for this text. A driver's own prepared statements are
//! numbered, and one client would run the statement of another.
//!
//! Where the server does not know the name, it has changed nothing, and the same statement is sent without a name. Where
//! it refuses the old plan, the statement is prepared again.
//!
//! The server keeps a plan until somebody analyses or changes the table. A plan for a table of one page reads all of it,
//! also when it has a hundred thousand rows, so each connection prepares a statement again after some seconds.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::engine::runtime::event::Flag;
use crate::engine::runtime::sync::Mutex;
use crate::store::connect_once::MayEnd;
use crate::store::postgres::literal::short_literal;
use crate::store::postgres::named_row::NamedRow;
use crate::store::{BootInstant, Liveness};

/// How long a connection uses a statement before it prepares it again. It bounds how long a plan is used that does not
/// fit the table any more.
const PLAN_KEPT: Duration = Duration::from_secs(10);

/// Bounds the statements in flight on one connection. Enough that the server never waits for the next one.
const AT_ONCE: usize = 16;

/// A statement with at most one row, whose parameters are texts and numbers.
#[derive(Debug)]
pub(crate) struct NamedStatement {
    pub(crate) text: String,
    name: String,
    /// The statement that gives the name.
    prepare: String,
    /// The statements that give the name once more, before another in the same text.
    prepare_again: String,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// The answer of the server to a text.
type TextOutcome = Result<Vec<SimpleQueryMessage>, Error>;

/// A connection that is open, and what its session knows.
pub(crate) struct LiveClient {
    pub(crate) client: Client,
    /// Bounds the statements in flight. The server runs them one after another. A request that still waits here is
    /// never sent if its caller leaves. Closed once the connection is given up.
    pub(crate) in_flight: Arc<Semaphore>,
    /// Set when nothing ends the statements in flight. The connection is dropped then.
    pub(crate) given_up: Arc<Flag>,
    names: KnownNames,
}

/// The names that this connection has given. Behind a pooler the session may have forgotten them.
#[derive(Debug, Default)]
struct KnownNames(Mutex<HashMap<String, NameState>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NameState {
    /// `false`: `PREPARE` is on its way.
    is_done: bool,
    since: BootInstant,
}

/// What the caller of a statement knows about its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedRequest<'a> {
    pub(crate) liveness: &'a Liveness,
    pub(crate) now: BootInstant,
}

/// The outcome of a statement.
#[derive(Debug)]
pub(crate) struct NamedAnswer {
    pub(crate) row: Option<NamedRow>,
    /// The server has refused the name, although it was given.
    pub(crate) was_refused: bool,
    /// The caller has left before the statement was sent once more, so it did not run.
    pub(crate) has_left: bool,
}

impl NamedStatement {
    /// `types`: of the parameters, as in `PREPARE`.
    pub(crate) fn new(types: &str, text: String) -> Self {
        let name = format!("tidelock_{:016x}", fnv1a(&[types, &text]));
        Self {
            prepare: format!("PREPARE {name} ({types}) AS {text}"),
            prepare_again: format!("DEALLOCATE {name}; PREPARE {name} ({types}) AS {text}; "),
            name,
            text,
        }
    }

    fn execute(&self, params: &[Value<'_>]) -> String {
        let mut text = format!("EXECUTE {}", self.name);
        for (n, param) in params.iter().enumerate() {
            text.push(if n == 0 { '(' } else { ',' });
            // Writing to a string does not fail.
            let _ = match param {
                Value::Number(number) => write!(text, "{number}"),
                Value::Text(word) => write!(text, "{}", short_literal(word)),
            };
        }
        text.push(')');
        text
    }

    /// Runs it by its name. The first time on a connection, the name is given in the same round trip, and after a while
    /// once more.
    pub(crate) async fn run(
        &self,
        live: &LiveClient,
        params: &[Value<'_>],
        asked: NamedRequest<'_>,
    ) -> Result<NamedAnswer, Error> {
        let execute = self.execute(params);
        let (mut was_given, mut sent) = self.send(live, &execute, asked.now).await;
        // The table has changed so much that the server does not use the old plan.
        if is(&sent, &SqlState::FEATURE_NOT_SUPPORTED) {
            if asked.liveness.has_left() {
                return Ok(NamedAnswer::unsent());
            }
            (was_given, sent) = self.prepare_again_and_run(live, &execute, asked.now).await;
        }
        let was_refused = is(&sent, &SqlState::INVALID_SQL_STATEMENT_NAME);
        if !was_refused {
            return sent.map(NamedAnswer::of);
        }
        live.names.remove(&self.name);
        // An attempt whose caller has left would be granted, and has to be withdrawn then. This one has changed nothing.
        if asked.liveness.has_left() {
            return Ok(NamedAnswer::unsent());
        }
        let mut answer = self.run_unnamed(live, params).await?;
        answer.was_refused = was_given;
        Ok(answer)
    }

    /// Runs it by its name once. Also returns whether the session was given that name.
    async fn send(
        &self,
        live: &LiveClient,
        execute: &str,
        now: BootInstant,
    ) -> (bool, TextOutcome) {
        let before = match live.names.of(&self.name) {
            None => return self.prepare_and_run(live, execute, now).await,
            Some(state) if now >= state.since + PLAN_KEPT => {
                return self.prepare_again_and_run(live, execute, now).await;
            }
            Some(state) => state,
        };
        let sent = live.client.simple_query(execute).await;
        // Otherwise another caller has taken the name away in between, or gives it again.
        let is_as_before = live.names.of(&self.name) == Some(before);
        if sent.is_ok() && is_as_before && !before.is_done {
            // The caller that sent `PREPARE` may have left.
            live.names.set(&self.name, true, before.since);
        }
        (before.is_done && is_as_before, sent)
    }

    /// Gives the name, and runs the statement, in one round trip. Also returns whether the name was given.
    async fn prepare_and_run(
        &self,
        live: &LiveClient,
        execute: &str,
        now: BootInstant,
    ) -> (bool, TextOutcome) {
        let LiveClient { client, names, .. } = live;
        names.set(&self.name, false, now);
        // Sent in this order, and the server runs them in this order.
        let prepare = client.simple_query(&self.prepare);
        let (given, sent) = join(prepare, client.simple_query(execute)).await;
        // Behind a pooler another client may have given it: it stands for the same text.
        let is_given = given.is_ok() || is(&given, &SqlState::DUPLICATE_PSTATEMENT);
        if is_given {
            names.set(&self.name, true, now);
        } else {
            names.remove(&self.name);
        }
        (is_given, sent)
    }

    /// Takes the name away, gives it again, and runs the statement. It is one text, so another request of this connection
    /// comes before it or after it. Also returns whether the name was given before.
    async fn prepare_again_and_run(
        &self,
        live: &LiveClient,
        execute: &str,
        now: BootInstant,
    ) -> (bool, TextOutcome) {
        let LiveClient { client, names, .. } = live;
        let was_given = names.of(&self.name).is_some_and(|state| state.is_done);
        names.set(&self.name, false, now);
        let text = format!("{}{execute}", self.prepare_again);
        let sent = client.simple_query(&text).await;
        if sent.is_ok() {
            names.set(&self.name, true, now);
        } else {
            // The error may be that of each of the three.
            names.remove(&self.name);
        }
        (was_given, sent)
    }

    /// Runs it without a name.
    pub(crate) async fn run_unnamed(
        &self,
        live: &LiveClient,
        params: &[Value<'_>],
    ) -> Result<NamedAnswer, Error> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> = params
            .iter()
            .map(|param| match param {
                Value::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
                Value::Number(number) => (number as _, Type::INT8),
            })
            .collect();
        let rows = live.client.query_typed(&self.text, &typed).await?;
        Ok(NamedAnswer {
            row: rows.into_iter().next().map(NamedRow::Typed),
            was_refused: false,
            has_left: false,
        })
    }
}

/// Whether the server has refused it with this code.
fn is<T>(sent: &Result<T, Error>, code: &SqlState) -> bool {
    sent.as_ref().is_err_and(|error| error.code() == Some(code))
}

/// The hash FNV-1a of texts. The name must be the same for each build of tidelock.
fn fnv1a(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl NamedAnswer {
    fn of(messages: Vec<SimpleQueryMessage>) -> Self {
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(NamedRow::Texts(row)),
            _ => None,
        });
        Self {
            row: rows.last(),
            was_refused: false,
            has_left: false,
        }
    }

    fn unsent() -> Self {
        Self {
            row: None,
            was_refused: false,
            has_left: true,
        }
    }
}

impl LiveClient {
    pub(crate) fn new(client: Client, given_up: Arc<Flag>) -> Self {
        Self {
            client,
            in_flight: Arc::new(Semaphore::new(AT_ONCE)),
            given_up,
            names: KnownNames::default(),
        }
    }
}

impl MayEnd for LiveClient {
    fn has_ended(&self) -> bool {
        self.client.is_closed()
    }
}

impl KnownNames {
    /// `None`: the name was not given yet.
    fn of(&self, name: &str) -> Option<NameState> {
        self.0.lock().get(name).copied()
    }

    fn set(&self, name: &str, is_done: bool, since: BootInstant) {
        let state = NameState { is_done, since };
        self.0.lock().insert(name.to_owned(), state);
    }

    fn remove(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

#[cfg(test)]
mod tests;
