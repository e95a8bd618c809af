//! PostgreSQL's error codes, as an [`ErrorKind`], and the failures of a connect.

use std::fmt;

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{Error, ErrorKind};
use crate::store::errors::ErrorReply;
use crate::store::{errors, tls};

const NO_TLS: &str = "write sslmode=disable";
const NO_TLS_HERE: &str =
    "; let the server speak it (ssl = on), or write sslmode=disable if everybody may read along";

const STANDBY: &str = "; this server is a standby: name the primary, or all of them and target_session_attrs=read-write";
const NO_WRITES: &str = "; no server that the URL names takes writes at the moment; if the primary is not among them, add it";

/// Why a statement has no result.
pub(crate) type RequestError = errors::RequestError<PostgresError>;

/// The server rejected the statement, or rolled it back.
#[derive(Debug)]
pub(crate) struct PostgresError(Box<DbError>);

impl RequestError {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(why) if is_certain(why) => Self::Server(PostgresError(Box::new(why.clone()))),
            Some(why) => Self::Broken(why.message().to_owned()),
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
                let advice = if no_tls {
                    NO_TLS_HERE
                } else if why.contains("does not allow writes") {
                    NO_WRITES
                } else {
                    ""
                };
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

    /// The error for a session on a standby. A retry may reach the primary.
    pub(crate) fn on_a_standby(address: &impl fmt::Display) -> Self {
        let why = format!("its session locks exclude nobody on the primary{STANDBY}");
        let error = Error::new(ErrorKind::Unavailable).because(why);
        Self::Classified(error.prefix(address))
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

/// Whether the statement that this error answers has certainly not run, or was rolled back.
///
/// A session may end during a commit. A server that panics while it writes a commit may find it in its log when it starts
/// again. A pooler whose connection to the server broke ends our session too, or says it with a code of class 58.
fn is_certain(why: &DbError) -> bool {
    let code = why.code();
    // A pooler may log in for the first statement only. A login that fails has run none.
    let logs_in = code.code().starts_with("28")
        || [
            SqlState::INVALID_CATALOG_NAME,
            SqlState::TOO_MANY_CONNECTIONS,
        ]
        .contains(code);
    // A pooler may leave out the severity that is not translated.
    let ends = match why.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => ["FATAL", "PANIC"].contains(&why.severity()),
    };
    let is_unclear = ends
        || ends_session(code)
        || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        || code.code().starts_with("58");
    logs_in || !is_unclear
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
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => (Unavailable, STANDBY),
        code if *code == SqlState::UNDEFINED_TABLE => (Refused,
            "; one of tidelock's tables is missing: an acquire makes it, or says what has to be run"),
        code if *code == SqlState::UNDEFINED_COLUMN => (Refused,
            "; the table has other columns than tidelock's: write the name of another one as table=… in the URL"),
        code if *code == SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED => (WrongType,
            "; the sequence of the fencing tokens has no next one; nothing was acquired; set it back with setval to the largest token that was given out"),
        code if *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => (WrongType,
            "; the sequence of the fencing tokens ends before that number, or the lock has the largest token; nothing was changed; raise the MAXVALUE of the sequence, or use another name"),
        // Rolled back for a reason that passes: a deadlock, a timeout, a full disk, too many connections.
        _ => (Unavailable, ""),
    }
}

/// The error of an attempt whose ticket was withdrawn.
pub(crate) fn withdrawn() -> Error {
    Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio_postgres::config::SslMode;
    use tokio_postgres::{Config, NoTls};

    use super::*;
    use crate::store::postgres::connect;
    use crate::store::postgres::tests::env;
    use crate::store::postgres::tests::fake_server::{ScriptedDatabase, refusing};
    use crate::store::postgres::tests::wire::{message, row, text};

    /// What a request fails with that the server answers with this severity and this code.
    async fn failure(severity: &str, code: &str) -> RequestError {
        failure_with(severity, code, "refused").await
    }

    /// As [`failure`], with a text of the server.
    async fn failure_with(severity: &str, code: &str, said: &str) -> RequestError {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let error = format!("{severity}\0C{code}\0M{said}\0\0");
        tokio::spawn(async move { refusing(theirs, &error).await });
        let mut config = Config::new();
        config.user("app");
        let (client, connection) = config.connect_raw(ours, NoTls).await.unwrap();
        tokio::spawn(connection);
        let asked = client.simple_query("EXECUTE it").await;
        RequestError::of(&asked.unwrap_err())
    }

    #[tokio::test]
    async fn only_an_error_after_which_the_session_goes_on_is_certain() {
        for (severity, code, is_certain) in [
            // A write of the log that fails, before the server goes down.
            ("SPANIC\0VPANIC", "58030", false),
            ("SPANIC\0VPANIC", "53100", false),
            ("SPANIK\0VPANIC", "53100", false),
            // The connection from a pooler to the server broke.
            ("SFATAL\0VFATAL", "58000", false),
            ("SFATAL", "XX000", false),
            ("SERROR", "58000", false),
            ("SERROR\0VERROR", "08006", false),
            ("SERROR\0VERROR", "40003", false),
            ("SFATAL\0VFATAL", "57P05", false),
            // A full disk, a deadlock, a cancelled statement.
            ("SERROR\0VERROR", "53100", true),
            ("SERROR\0VERROR", "40P01", true),
            ("SERROR", "57014", true),
            // A pooler that could not log in.
            ("SFATAL\0VFATAL", "28P01", true),
            ("SFATAL\0VFATAL", "3D000", true),
            ("SFATAL", "53300", true),
        ] {
            let failure = failure(severity, code).await;
            assert_eq!(failure.is_certain(), is_certain, "{code} {failure:?}");
            assert_eq!(failure.ends_connection(), !is_certain, "{code} {failure:?}");
        }
    }
    #[tokio::test]
    async fn an_error_of_the_server_says_what_the_user_can_do() {
        use ErrorKind::{InvalidOptions, Refused, Unavailable, WrongType};

        for (code, said, kind, advice) in [
            (
                "42501",
                "denied",
                Refused,
                "the rights that `tidelock doctor` lists",
            ),
            ("28P01", "no", Refused, "check user and password"),
            (
                "28000",
                "no pg_hba.conf entry, no encryption",
                Refused,
                "sslmode=verify-full",
            ),
            (
                "28000",
                "no pg_hba.conf entry, SSL off",
                Refused,
                "sslmode=verify-full",
            ),
            ("3D000", "no", InvalidOptions, "name a database that exists"),
            ("25006", "no", Unavailable, "name the primary"),
            ("42P01", "no", Refused, "an acquire makes it"),
            (
                "42703",
                "no",
                Refused,
                "write the name of another one as table=",
            ),
            ("2200H", "no", WrongType, "set it back with setval"),
            ("22003", "no", WrongType, "raise the MAXVALUE"),
        ] {
            let failure = failure_with("SERROR", code, said).await;
            let error = failure.error();
            assert_eq!(error.kind(), kind, "{code}");
            let detail = error.detail().unwrap();
            assert!(detail.starts_with(&format!("{said}; ")), "{detail}");
            assert!(detail.contains(advice), "{detail}");
        }
        // A reason that passes, also one that speaks of TLS.
        for said in ["no", "SSL off"] {
            let error = failure_with("SERROR", "53100", said).await.error();
            assert_eq!((error.kind(), error.detail()), (Unavailable, Some(said)));
        }
    }

    #[tokio::test]
    async fn what_is_tried_again_is_told_from_other_errors() {
        for (code, row, table, column) in [
            ("55P03", true, false, false),
            ("42P01", false, true, false),
            ("42703", false, false, true),
            ("42501", false, false, false),
        ] {
            let failure = failure("SERROR", code).await;
            assert_eq!(failure.is_row_taken(), row, "{code}");
            assert_eq!(failure.is_no_table(), table, "{code}");
            assert_eq!(failure.is_no_column(), column, "{code}");
            assert!(!failure.ends_connection(), "{code}");
        }
        // The next request may reach the primary.
        let standby = failure("SERROR", "25006").await;
        assert!(standby.ends_connection() && standby.is_certain());
    }

    /// The error of a connect to a server that says this and then nothing more.
    async fn refused_connect(said: &[u8], config: &mut Config) -> Error {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(said).await.unwrap();
        theirs.shutdown().await.unwrap();
        let failed = config.user("app").connect_raw(ours, NoTls).await.err();
        RequestError::connecting(&"here", &failed.unwrap()).error()
    }

    #[tokio::test]
    async fn a_connect_is_refused_for_good_only_for_a_reason_that_does_not_pass() {
        let refusal = |code: &str| {
            let fields = format!("SFATAL\0C{code}\0Mno\0\0");
            message(b'E', fields.as_bytes())
        };
        for (said, kind, text) in [
            (refusal("28P01"), ErrorKind::Refused, "here: no; check user"),
            (
                refusal("3D000"),
                ErrorKind::InvalidOptions,
                "here: no; name",
            ),
            (refusal("57P03"), ErrorKind::Unavailable, "here: no"),
            (refusal("53300"), ErrorKind::Unavailable, "here: no"),
            (refusal("08006"), ErrorKind::Unavailable, "here: no"),
            // It asks for a password, and for a login that the driver does not know.
            (
                message(b'R', &[0, 0, 0, 3]),
                ErrorKind::Refused,
                "here: password missing",
            ),
            (
                message(b'R', &[0, 0, 0, 9]),
                ErrorKind::Refused,
                "here: unsupported authentication method",
            ),
            (Vec::new(), ErrorKind::Unavailable, "here: "),
        ] {
            let error = refused_connect(&said, &mut Config::new()).await;
            assert_eq!(error.kind(), kind, "{error}");
            let detail = error.detail().unwrap();
            assert!(detail.starts_with(text), "{detail}");
        }
        let mut config = Config::new();
        config.ssl_mode(SslMode::Require);
        let error = refused_connect(b"N", &mut config).await;
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.detail().unwrap().ends_with(NO_TLS_HERE), "{error}");
    }

    #[tokio::test]
    async fn servers_that_take_no_writes_may_do_so_later() {
        let server = ScriptedDatabase::start().await;
        let url = server.url("&target_session_attrs=read-write");
        server.on("SHOW transaction_read_only", [row([text("on")])]);
        let opened = connect(&url, &env()).await;
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.detail().unwrap().ends_with(NO_WRITES), "{error}");
    }
}
