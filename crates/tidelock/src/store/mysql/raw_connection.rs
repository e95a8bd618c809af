//! One connection. This is the only file that uses the driver.
//!
//! The driver only encodes requests and decodes answers. A connection serves one text of statements at a time. A
//! connection whose answer was not read to its end is never used again.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, DriverError, OptsBuilder, Row, SslOpts, Value};

use crate::Credentials;
use crate::error::{Error, ErrorKind, Result};
use crate::store::mysql::address::{Address, HostAddress};
use crate::store::mysql::errors::{MysqlError, RequestError, unanswered};
use crate::store::{TlsFiles, keepalive, tls};

/// Bounds the packets that we send and accept, in bytes; the server may allow less.
const PACKET: usize = 16 * 1024 * 1024;
/// The idle timeout of a session, in seconds. It exceeds the time that the pool keeps an idle connection, whatever
/// the server's own setting is. It is not much longer: if a machine dies between a statement that failed and its rollback, the server keeps
/// the transaction, and with it the rows of the lock, for this long.
const WAIT: usize = 150;
/// No limit for the rows of an answer.
const ROWS: u64 = u64::MAX;

/// The settings of every session. None of them may depend on the server's defaults.
///
/// A statement waits for a row as briefly as the server allows: we prefer a retry to a statement that is left behind
/// and takes effect late.
///
/// With another `completion_type` a `COMMIT` would begin the next transaction, and the server would answer a grant that
/// it has not committed. With a `sql_select_limit` the answer to a renewal would be cut, and the holds behind the cut
/// would count as lost. `sql_safe_updates` refuses the renewals of read-write locks. The last statement is for a server
/// that ignores the character set of the handshake: names would come in another one.
fn beginning(wait: Duration) -> String {
    let wait = wait.as_secs().max(1);
    format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, completion_type = 0, \
         sql_select_limit = {ROWS}, sql_safe_updates = 0, \
         innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait}, wait_timeout = {WAIT}, interactive_timeout = {WAIT}; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET NAMES utf8mb4"
    )
}

/// A row of text values. `None` is NULL.
pub(crate) type TextRow = Vec<Option<Vec<u8>>>;

/// The text in a column.
pub(crate) fn text(row: &TextRow, column: usize) -> Result<String> {
    let word = row.get(column).and_then(Option::as_ref);
    let word = word.and_then(|word| String::from_utf8(word.clone()).ok());
    word.ok_or_else(|| unanswered("unexpected reply from the server"))
}

/// The number in a column.
pub(crate) fn number(row: &TextRow, column: usize) -> Result<u64> {
    let number = text(row, column)?.parse();
    number.map_err(|_| unanswered("unexpected reply from the server"))
}

/// The first row of an answer that always has one.
pub(crate) fn first(rows: &[TextRow]) -> Result<&TextRow> {
    rows.first().ok_or_else(|| unanswered("no answer"))
}

/// The number in the first row.
pub(crate) fn count(rows: &[TextRow]) -> Result<u64> {
    number(first(rows)?, 0)
}

/// Whether the number in the first row is larger than 0.
pub(crate) fn is_any(rows: &[TextRow]) -> Result<bool> {
    Ok(count(rows)? > 0)
}

/// One connection. Dropping it closes the socket at once, even while a request is in flight.
#[derive(Debug)]
pub(crate) struct RawConnection(Option<Conn>);

impl RawConnection {
    /// Connects on the calling runtime. The caller bounds the time.
    pub(crate) async fn open(
        address: &Address,
        login: Option<Credentials>,
        wait: Duration,
    ) -> Result<Self> {
        let ssl = if address.tls {
            Some(ssl(&address.files).await?)
        } else {
            None
        };
        let options = options(address, login).ssl_opts(ssl);
        // The driver panics at a login by `parsec` without a password.
        let conn = AssertUnwindSafe(Conn::new(options)).catch_unwind().await;
        let conn = conn.map_err(|_| login_failed(address))?;
        let conn = conn.map_err(|error| closed(address, error))?;
        let mut raw_connection = Self(Some(conn));
        let begun = raw_connection.ask(&beginning(wait)).await;
        begun.map_err(|failure| refused(address, failure))?;
        Ok(raw_connection)
    }

    /// A connection that breaks with its first request.
    #[cfg(test)]
    pub(crate) fn broken() -> Self {
        Self(None)
    }

    /// Sends statements; returns the rows of the last statement, or of the one before it if the last one has none. The
    /// caller bounds the time. After a timeout, or an error that makes the connection unusable, the caller must drop it.
    pub(crate) async fn ask(&mut self, text: &str) -> Result<Vec<TextRow>, RequestError> {
        let Some(conn) = &mut self.0 else {
            return Err(RequestError::Broken("the connection is closed".to_owned()));
        };
        let mut result = conn
            .query_iter(text)
            .await
            .map_err(|e| request_error(e, true))?;
        let mut last = Vec::new();
        while !result.is_empty() {
            last = result
                .collect::<Row>()
                .await
                .map_err(|e| request_error(e, false))?;
        }
        // The driver keeps back an error of a later statement until we read on. Without this the text would seem to have
        // succeeded, and its transaction would stay open.
        let rest = result.drop_result().await;
        rest.map_err(|e| request_error(e, false))?;
        Ok(last.into_iter().map(text_row).collect())
    }

    /// As [`ask`](Self::ask), in one transaction.
    pub(crate) async fn transact(&mut self, text: &str) -> Result<Vec<TextRow>, RequestError> {
        let answer = self
            .ask(&format!("START TRANSACTION; {text}; COMMIT"))
            .await;
        let error = match answer {
            // Not even the transaction has begun.
            Err(RequestError::Server(error)) if !error.undone => error,
            answer => return answer,
        };
        // Otherwise the rows would stay locked, and the next transaction on this connection would commit a part of this
        // one.
        match self.ask("ROLLBACK").await {
            Ok(_) => Err(RequestError::Server(MysqlError {
                undone: true,
                ..error
            })),
            Err(_) => Err(RequestError::Broken(format!(
                "the connection broke before a transaction was rolled back: {error}"
            ))),
        }
    }

    /// Whether the server still answers.
    pub(crate) async fn lives(&mut self) -> bool {
        match &mut self.0 {
            Some(conn) => conn.ping().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // Left to itself, the driver would read the rest of the answer from a server that may be frozen. One poll
        // sends the goodbye, if it can, and closes the socket.
        if let Some(conn) = self.0.take() {
            let _ = conn.disconnect().now_or_never();
        }
    }
}

/// Verifies the whole certificate, including the host name. The driver refuses a server without TLS.
async fn ssl(files: &TlsFiles) -> Result<SslOpts> {
    let roots = tls::authorities(files).await?;
    let identity = files.cert.clone().zip(files.key.clone());
    Ok(SslOpts::default()
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        // We disable the driver's own list: the administrator of this machine decides which authorities are trusted.
        .with_disable_built_in_roots(true)
        .with_client_identity(
            identity.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into())),
        ))
}

fn options(address: &Address, login: Option<Credentials>) -> OptsBuilder {
    let (user, password) = match login {
        Some(login) => (login.user.or(address.user.clone()), login.password),
        None => (address.user.clone(), address.password.clone()),
    };
    let options = OptsBuilder::default()
        .user(user)
        .pass(password)
        .db_name(Some(address.database.clone()))
        // A local socket would bypass a test proxy or a tunnel.
        .prefer_socket(false)
        .max_allowed_packet(Some(PACKET))
        .wait_timeout(Some(WAIT))
        .stmt_cache_size(0)
        // A matched row counts even if its values did not change, because our conditions rely on the match.
        .client_found_rows(true)
        .tcp_keepalive(Some(keepalive::IDLE))
        .tcp_nodelay(true);
    match &address.server {
        HostAddress::Tcp { host, port } => options.ip_or_hostname(host.clone()).tcp_port(*port),
        HostAddress::Socket(path) => options.socket(Some(path.display().to_string())),
    }
}

fn text_row(row: Row) -> TextRow {
    let word = |value| match value {
        Value::Bytes(bytes) => Some(bytes),
        Value::NULL => None,
        other => Some(other.as_sql(true).into_bytes()),
    };
    row.unwrap().into_iter().map(word).collect()
}

fn request_error(error: mysql_async::Error, first: bool) -> RequestError {
    match error {
        mysql_async::Error::Server(error) => RequestError::Server(MysqlError {
            code: error.code,
            text: error.message,
            undone: first,
        }),
        other => RequestError::Broken(format!(
            "the connection broke before the answer came: {other}"
        )),
    }
}

/// The text of the deepest source. The driver puts the texts of all others before it.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}

/// Maps an error during connect. No request was sent yet, so the outcome is never unknown.
fn closed(address: &Address, error: mysql_async::Error) -> Error {
    if let mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) = error {
        return Error::new(ErrorKind::Refused).because(format!(
            "{address}: the server has no TLS; enable it there, or write ssl-mode=DISABLED to send everything unencrypted"
        ));
    }
    if let Some(plugin) = foreign_login(&error) {
        return Error::new(ErrorKind::Refused).because(format!(
            "{address}: the server asks for a login by {plugin}, which this client does not support; give the user another authentication plugin, such as caching_sha2_password, parsec, ed25519 or mysql_native_password"
        ));
    }
    let error = match error {
        mysql_async::Error::Io(error) => RequestError::Broken(innermost(&error)),
        other => request_error(other, true),
    };
    match error {
        RequestError::Broken(why) => {
            let why = tls::explain(&why, "write ssl-mode=DISABLED");
            Error::new(tls::kind(&why)).because(format!("{address}: {why}"))
        }
        failure => refused(address, failure),
    }
}

fn login_failed(address: &Address) -> Error {
    Error::new(ErrorKind::Refused).because(format!(
        "{address}: the driver could not answer what the server asked for at the login; is the password missing?"
    ))
}

/// The authentication plugin of the user, if the driver does not support it.
fn foreign_login(error: &mysql_async::Error) -> Option<&str> {
    match error {
        mysql_async::Error::Driver(DriverError::UnknownAuthPlugin { name }) => Some(name),
        mysql_async::Error::Driver(DriverError::CleartextPluginDisabled) => {
            Some("mysql_clear_password")
        }
        mysql_async::Error::Driver(DriverError::MysqlOldPasswordDisabled) => {
            Some("mysql_old_password")
        }
        _ => None,
    }
}

/// Maps an error of a connection that serves no request. So nothing was sent whose outcome could be unknown.
fn refused(address: &Address, failure: RequestError) -> Error {
    failure.error().prefix(address).without_effect()
}

#[cfg(test)]
mod tests;
