//! Statements that the server parses and plans once for each connection.
//!
//! `PREPARE` gives a statement a name, and `EXECUTE` runs it. Behind a pooler that passes a server connection on after
//! each transaction, the next `EXECUTE` may reach a session that does not know the name, or in which another client gave
//! it. So the name is a hash of the text: whoever gave it, it stands for this text. A driver's own prepared statements are
//! numbered, and one client would run the statement of another.
//!
//! Where the server does not know the name, or refuses the old plan, it has changed nothing, and the same statement is
//! sent without a name.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use futures_util::future::join;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage, SimpleQueryRow};

use crate::engine::runtime::sync::Mutex;
use crate::store::connect_once::MayEnd;

/// A statement with at most one row, whose parameters are texts and numbers.
#[derive(Debug)]
pub(crate) struct NamedStatement {
    pub(crate) text: String,
    name: String,
    /// The statement that gives the name.
    prepare: String,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// A row of a [`NamedStatement`].
#[derive(Debug)]
pub(crate) enum NamedRow {
    /// From `EXECUTE`, as texts.
    Texts(SimpleQueryRow),
    /// From the statement without a name.
    Typed(Row),
}

/// A connection that is open, and what its session knows.
pub(crate) struct LiveClient {
    pub(crate) client: Client,
    names: KnownNames,
}

/// The names that this connection has given. Behind a pooler the session may have forgotten them.
#[derive(Debug, Default)]
struct KnownNames(Mutex<HashMap<String, NameState>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// `PREPARE` is on its way.
    Begun,
    Done,
}

/// The outcome of a statement.
#[derive(Debug)]
pub(crate) struct NamedAnswer {
    pub(crate) row: Option<NamedRow>,
    /// The server has refused the name, although it was given.
    pub(crate) was_refused: bool,
}

impl NamedStatement {
    /// `types`: of the parameters, as in `PREPARE`.
    pub(crate) fn new(types: &str, text: String) -> Self {
        let mut hash = DefaultHasher::new();
        (types, &text).hash(&mut hash);
        let name = format!("tidelock_{:016x}", hash.finish());
        Self {
            prepare: format!("PREPARE {name} ({types}) AS {text}"),
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
                Value::Text(word) => write!(text, "{}", quoted(word)),
            };
        }
        text.push(')');
        text
    }

    /// Runs it by its name. The first time on a connection, the name is given in the same round trip.
    pub(crate) async fn run(
        &self,
        live: &LiveClient,
        params: &[Value<'_>],
    ) -> Result<NamedAnswer, Error> {
        let LiveClient { client, names } = live;
        let before = names.of(&self.name);
        let text = self.execute(params);
        let execute = client.simple_query(&text);
        let (is_known, answer) = if before.is_some() {
            (before == Some(NameState::Done), execute.await)
        } else {
            names.set(&self.name, Some(NameState::Begun));
            // Sent in this order, and the server runs them in this order.
            let (given, answer) = join(client.simple_query(&self.prepare), execute).await;
            let is_known = given.map_or_else(
                |error| has(&error, &SqlState::DUPLICATE_PSTATEMENT),
                |_| true,
            );
            names.set(&self.name, is_known.then_some(NameState::Done));
            (is_known, answer)
        };
        let error = match answer {
            Ok(messages) => {
                if before == Some(NameState::Begun) {
                    // The caller that sent `PREPARE` may have left.
                    names.set(&self.name, Some(NameState::Done));
                }
                return Ok(NamedAnswer::of(messages));
            }
            Err(error) => error,
        };
        if !is_refused(&error) {
            return Err(error);
        }
        names.set(&self.name, None);
        let mut answer = self.run_unnamed(live, params).await?;
        answer.was_refused = is_known;
        Ok(answer)
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
        })
    }
}

/// A text as SQL. Without the `E`, what a backslash means would depend on a setting of the session.
fn quoted(word: &str) -> String {
    format!("E'{}'", word.replace('\\', r"\\").replace('\'', "''"))
}

/// The session has forgotten the name, because a pooler is between, or a table has changed so much that the server does
/// not use the old plan. The server has changed nothing.
fn is_refused(error: &Error) -> bool {
    has(error, &SqlState::INVALID_SQL_STATEMENT_NAME)
        || has(error, &SqlState::FEATURE_NOT_SUPPORTED)
}

fn has(error: &Error, code: &SqlState) -> bool {
    error.code() == Some(code)
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
        }
    }
}

impl NamedRow {
    /// A column of type `integer`.
    pub(crate) fn integer(&self, column: usize) -> Option<i32> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok(),
        }
    }

    /// A column of type `bigint`. `None`: it is null.
    pub(crate) fn bigint(&self, column: usize) -> Option<i64> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok()?,
        }
    }

    /// A column of type `boolean`.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        match self {
            Self::Texts(row) => matches!(row.try_get(column), Ok(Some("t"))),
            Self::Typed(row) => row.try_get(column).unwrap_or(false),
        }
    }
}

impl LiveClient {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
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

    fn set(&self, name: &str, preparation: Option<NameState>) {
        let mut names = self.0.lock();
        match preparation {
            Some(preparation) => names.insert(name.to_owned(), preparation),
            None => names.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_text() {
        let one = NamedStatement::new("text", "SELECT $1".to_owned());
        let same = NamedStatement::new("text", "SELECT $1".to_owned());
        let others = [
            NamedStatement::new("bigint", "SELECT $1".to_owned()),
            NamedStatement::new("text", "SELECT $1, 1".to_owned()),
        ];
        assert_eq!(one.name, same.name);
        assert!(others.iter().all(|other| other.name != one.name));
        // The server cuts longer names.
        assert!(one.name.len() < 64);
    }

    #[test]
    fn texts_are_quoted_whatever_the_session_takes_for_an_escape() {
        let statement = NamedStatement::new("text, text, bigint", "SELECT $1, $2, $3".to_owned());
        let values = [Value::Text("it's"), Value::Text(r"a\'b"), Value::Number(-7)];
        let text = statement.execute(&values);
        let rest = text.strip_prefix(&format!("EXECUTE {}", statement.name));
        assert_eq!(rest, Some(r"(E'it''s',E'a\\''b',-7)"));
    }
}
