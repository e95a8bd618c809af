//! One connection: the only file that names the driver.
//!
//! The driver only frames requests and answers. A connection is used for one text of statements at a time, and one whose
//! answer was not read to its end is never used again.

use std::time::Duration;

use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, DriverError, OptsBuilder, Row, SslOpts, Value};

use super::place::{Place, Target};
use super::trouble::{Trouble, unsent};
use crate::Credentials;
use crate::backend::{TlsFiles, tls};
use crate::error::{Error, ErrorKind, Result};

/// The largest packet we send or take; the server may allow less.
const PACKET: usize = 16 * 1024 * 1024;
/// Longer than a connection is kept idle, whatever the server's own setting is.
const WAIT: usize = 600;

/// What every session begins with: nothing of it may depend on how the server was set up.
///
/// A statement waits for a row as shortly as the server allows: it is better asked again than left behind, to take effect late.
fn beginning(wait: Duration) -> String {
    let wait = wait.as_secs().max(1);
    format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, \
         innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait}, wait_timeout = {WAIT}, interactive_timeout = {WAIT}; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )
}

/// A row of text; `None` is NULL.
pub(super) type Words = Vec<Option<Vec<u8>>>;

/// One connection. Dropped, it hangs up at once, whatever was under way.
#[derive(Debug)]
pub(super) struct Line(Option<Conn>);

impl Line {
    /// Connects, on the runtime this is called on. The caller bounds the time.
    pub(super) async fn open(
        target: &Target,
        login: Option<Credentials>,
        wait: Duration,
    ) -> Result<Self> {
        let ssl = if target.tls {
            Some(ssl(&target.files).await?)
        } else {
            None
        };
        let options = options(target, login).ssl_opts(ssl);
        let conn = Conn::new(options).await;
        let conn = conn.map_err(|error| closed(target, error))?;
        let mut line = Self(Some(conn));
        line.ask(&beginning(wait))
            .await
            .map_err(|trouble| match trouble {
                Trouble::Broken(why) => unsent(format_args!("{target}: {why}")),
                refused @ Trouble::Refused { .. } => refused.error().prefix(target),
            })?;
        Ok(line)
    }

    /// Sends statements; answers with the rows of the last of them that has rows. The caller bounds the time, and lets
    /// the line go if that is over, or the trouble does not spare it.
    pub(super) async fn ask(&mut self, text: &str) -> Result<Vec<Words>, Trouble> {
        let Some(conn) = &mut self.0 else {
            return Err(Trouble::Broken("the connection is closed".to_owned()));
        };
        let mut result = conn.query_iter(text).await.map_err(|e| trouble(e, true))?;
        let mut last = Vec::new();
        while !result.is_empty() {
            last = result
                .collect::<Row>()
                .await
                .map_err(|e| trouble(e, false))?;
        }
        Ok(last.into_iter().map(words).collect())
    }

    /// Whether the server still listens.
    pub(super) async fn lives(&mut self) -> bool {
        match &mut self.0 {
            Some(conn) => conn.ping().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Left to itself the driver would read what is still to come, from a server that may be frozen. Polled once
        // this says goodbye, or not, and closes the socket.
        if let Some(conn) = self.0.take() {
            let _ = conn.disconnect().now_or_never();
        }
    }
}

/// All of a certificate is checked, its host's name too. A server without TLS is refused by the driver.
async fn ssl(files: &TlsFiles) -> Result<SslOpts> {
    let roots = tls::authorities(files).await?;
    let identity = files.cert.clone().zip(files.key.clone());
    Ok(SslOpts::default()
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        // The driver has a list of its own; what this machine trusts is for its administrator to say.
        .with_disable_built_in_roots(true)
        .with_client_identity(
            identity.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into())),
        ))
}

fn options(target: &Target, login: Option<Credentials>) -> OptsBuilder {
    let (user, password) = match login {
        Some(login) => (login.user.or(target.user.clone()), login.password),
        None => (target.user.clone(), target.password.clone()),
    };
    let options = OptsBuilder::default()
        .user(user)
        .pass(password)
        .db_name(Some(target.database.clone()))
        // What a test or a tunnel stands between is not to be walked around.
        .prefer_socket(false)
        .max_allowed_packet(Some(PACKET))
        .wait_timeout(Some(WAIT))
        .stmt_cache_size(0)
        // A row that was found counts, also if it was as it should be: that is what the conditions are about.
        .client_found_rows(true)
        .tcp_nodelay(true);
    match &target.place {
        Place::Tcp { host, port } => options.ip_or_hostname(host.clone()).tcp_port(*port),
        Place::Socket(path) => options.socket(Some(path.display().to_string())),
    }
}

fn words(row: Row) -> Words {
    let word = |value| match value {
        Value::Bytes(bytes) => Some(bytes),
        Value::NULL => None,
        other => Some(other.as_sql(true).into_bytes()),
    };
    row.unwrap().into_iter().map(word).collect()
}

fn trouble(error: mysql_async::Error, first: bool) -> Trouble {
    match error {
        mysql_async::Error::Server(error) => Trouble::Refused {
            code: error.code,
            text: error.message,
            first,
        },
        other => Trouble::Broken(format!(
            "the connection broke before the answer came: {other}"
        )),
    }
}

/// While it connects nothing of ours can have happened.
fn closed(target: &Target, error: mysql_async::Error) -> Error {
    if let mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) = error {
        return Error::new(ErrorKind::Refused).because(format!(
            "{target}: the server speaks no TLS; let it, or write ssl-mode=DISABLED if everybody may read along"
        ));
    }
    match trouble(error, true) {
        Trouble::Broken(why) => {
            let why = tls::explain(&why, "write ssl-mode=DISABLED");
            Error::new(tls::kind(&why)).because(format!("{target}: {why}"))
        }
        refused @ Trouble::Refused { .. } => {
            let error = refused.error().prefix(target);
            if error.outcome_unknown() {
                return unsent(error);
            }
            error
        }
    }
}
