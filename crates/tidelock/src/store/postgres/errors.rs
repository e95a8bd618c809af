//! PostgreSQL's error codes, as an [`ErrorKind`], and the failures of a connect.

use std::fmt;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::{Error, ErrorKind};
use crate::store::errors::ErrorReply;
use crate::store::{errors, tls};

const NO_TLS: &str = "write sslmode=disable";
const NO_TLS_HERE: &str =
    "; let the server speak it (ssl = on), or write sslmode=disable if everybody may read along";

/// Why a statement has no result.
pub(crate) type RequestError = errors::RequestError<PostgresError>;

/// The server rejected the statement and rolled it back.
#[derive(Debug)]
pub(crate) struct PostgresError(Box<DbError>);

impl RequestError {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            // The server ends the connection, possibly during a commit.
            Some(why) if ends_session(why.code()) => Self::Broken(why.message().to_owned()),
            Some(why) => Self::Server(PostgresError(Box::new(why.clone()))),
            None => Self::Broken(error.to_string()),
        }
    }

    /// The error of a failed connect.
    pub(crate) fn connecting(
        address: &impl std::fmt::Display,
        error: &tokio_postgres::Error,
    ) -> Self {
        match error.as_db_error() {
            Some(why)
                if !ends_session(why.code()) && *why.code() != SqlState::TOO_MANY_CONNECTIONS =>
            {
                let refused = Self::Server(PostgresError(Box::new(why.clone())));
                Self::Classified(refused.error().prefix(address))
            }
            Some(why) => Self::Unsent(format!("{address}: {}", why.message())),
            None => {
                let source = std::error::Error::source(error);
                let why = source.map_or_else(|| error.to_string(), ToString::to_string);
                let why = tls::explain(&why, NO_TLS);
                let no_tls = why.contains("does not support TLS");
                let advice = if no_tls { NO_TLS_HERE } else { "" };
                let text = format!("{address}: {why}{advice}");
                // Our own settings do not fit the server, so a retry would fail in the same way.
                let own = ["password missing", "unsupported authentication method"];
                let is_own = no_tls || own.iter().any(|words| why.contains(words));
                if is_own || tls::kind(&why) == ErrorKind::Refused {
                    return Self::Classified(Error::new(ErrorKind::Refused).because(text));
                }
                Self::Unsent(text)
            }
        }
    }

    /// Another transaction locks the row.
    pub(crate) fn is_row_taken(&self) -> bool {
        matches!(self, Self::Server(error) if *error.0.code() == SqlState::LOCK_NOT_AVAILABLE)
    }

    /// A table of an earlier tidelock lacks a column.
    pub(crate) fn is_no_column(&self) -> bool {
        matches!(self, Self::Server(error) if *error.0.code() == SqlState::UNDEFINED_COLUMN)
    }

    /// A table is missing, so nothing has happened.
    pub(crate) fn is_no_table(&self) -> bool {
        matches!(self, Self::Server(error) if *error.0.code() == SqlState::UNDEFINED_TABLE)
    }

    /// The next request must reconnect: the connection is broken, or leads to a standby.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            Self::Server(error) => *error.0.code() == SqlState::READ_ONLY_SQL_TRANSACTION,
            Self::Classified(_) | Self::Unsent(_) => false,
        }
    }
}

impl ErrorReply for PostgresError {
    fn kind(&self) -> ErrorKind {
        meaning(self.0.code()).0
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.message();
        let advice = match meaning(self.0.code()) {
            (ErrorKind::Refused, _) if wants_tls(text) => {
                "; the server requires TLS: write sslmode=verify-full"
            }
            (_, advice) => advice,
        };
        write!(f, "{text}{advice}")
    }
}

/// The messages of a server whose `pg_hba.conf` admits us with TLS only. The second is from versions up to 13.
fn wants_tls(text: &str) -> bool {
    text.contains("no encryption") || text.contains("SSL off")
}

fn ends_session(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(code)
        || code.code().starts_with("08")
}

#[rustfmt::skip] // a table, with one row a line
fn meaning(code: &SqlState) -> (ErrorKind, &'static str) {
    use ErrorKind::{InvalidOptions, Refused, Unavailable, WrongType};

    match code {
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => (Refused, "; give the user the rights that `tidelock doctor` lists"),
        code if code.code().starts_with("28") => (Refused, "; check user and password"),
        code if *code == SqlState::INVALID_CATALOG_NAME => (InvalidOptions, "; name a database that exists in the URL"),
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => (Unavailable,
            "; this server is a standby: name the primary, or all of them and target_session_attrs=read-write"),
        code if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN].contains(code) => (Refused,
            "; the table of the locks is missing or another one: a new connection makes it, `tidelock doctor` shows how"),
        code if *code == SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED => (WrongType,
            "; the sequence of the fencing tokens has no next one; nothing was acquired; set it back with setval to the largest token that was given out"),
        code if *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => (WrongType,
            "; the sequence of the fencing tokens ends before that number; nothing was changed; raise its MAXVALUE"),
        // Rolled back for a reason that passes: a deadlock, a timeout, a full disk, too many connections.
        _ => (Unavailable, ""),
    }
}

/// The error of an attempt whose ticket was withdrawn.
pub(crate) fn withdrawn() -> Error {
    Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
}
