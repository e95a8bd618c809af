//! Parses the URL into the server's address, the table and the TLS settings, and connects. No error message contains
//! the URL: it may contain a password.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::Credentials;
use crate::engine::runtime::background;
use crate::error::{Error, ErrorKind, Result};
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::options::Options;
use crate::store::postgres::tls::{Secure, Secured};
use crate::store::tls;
use crate::store::tls::Check;
use crate::store::{Env, TlsFiles};

/// The table's default name.
const TABLE: &str = "tidelock_locks";

/// Bounds the table's name. The names that we derive from it must fit into the server's limit of 63 bytes.
const MAX_TABLE_BYTES: usize = 50;

/// A parsed URL.
pub(crate) struct Address {
    config: Config,
    pub(crate) table: String,
    credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    /// How the server's certificate is checked. `None`: plain text.
    tls: Option<Check>,
    files: TlsFiles,
    /// `true`: the server's advisory locks. `false`: rows with leases.
    pub(crate) session_locks: bool,
}

impl Address {
    /// Reads `postgres://[user[:password]@]host[:port][/database][?table=schema.name&sslmode=verify-full&…]`.
    pub(crate) fn parse(url: &str, env: &Env) -> Result<Self> {
        let mut address = Self::read(url)?;
        address.files = tls::named(&env.tls, address.files);
        address.check_tls()?;
        let config = &mut address.config;
        config.ssl_mode(match address.tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
        config.connect_timeout(env.response_timeout.max(Duration::from_millis(1)));
        if config.get_application_name().is_none() {
            config.application_name("tidelock");
        }
        address.credentials.clone_from(&env.credentials);
        Ok(address)
    }

    /// Rejects contradictory TLS settings. Otherwise a client with certificates could send plain text unnoticed.
    fn check_tls(&self) -> Result<()> {
        let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
        if self.tls.is_none() && (direct || tls::is_wanted(&self.files)) {
            return Err(invalid(
                "certificates or sslnegotiation are given, but it asks for no TLS; write sslmode=verify-full",
            ));
        }
        let file = |host: &Host| !matches!(host, Host::Tcp(_));
        if self.tls.is_some() && self.config.get_hosts().iter().any(file) {
            return Err(invalid(
                "a socket file leads to no other machine, and has no TLS; write sslmode=disable",
            ));
        }
        Ok(())
    }

    /// Parses the URL alone, without the client's settings.
    fn read(url: &str) -> Result<Self> {
        let (url, own) = Options::take(url)?;
        if own.session_locks && own.table.is_some() {
            return Err(invalid("locks=session needs no table"));
        }
        let table = own.table.unwrap_or_else(|| TABLE.to_owned());
        check(&table)?;
        if bare_at(&url) {
            return Err(invalid("write %40 for an @ in a password"));
        }
        // We replace the driver's error: it may repeat parts of the URL.
        let config: Config = url.parse().map_err(|_| {
            invalid("write postgres://user:password@host:5432/database?table=tidelock_locks")
        })?;
        if config.get_hosts().is_empty() {
            return Err(invalid("the host is missing: postgres://host/database"));
        }
        Ok(Self {
            config,
            table,
            credentials: None,
            tls: own.tls,
            files: own.files,
            session_locks: own.session_locks,
        })
    }

    /// The driver's settings with the user and password to log in with. We call the credentials source on every
    /// connect, because passwords are rotated while clients run, and on another thread, because the source may block
    /// and this is the steward's thread.
    async fn config(&self) -> Result<Config, RequestError> {
        let mut config = self.config.clone();
        if let Some(ask) = self.credentials.clone() {
            let given = background::blocking(move || ask()).await;
            let given = given.ok_or_else(|| {
                RequestError::Unsent("the source of the credentials panicked".to_owned())
            })?;
            if let Some(user) = given.user {
                config.user(user);
            }
            if let Some(password) = given.password {
                config.password(password);
            }
        }
        Ok(config)
    }

    /// The user, the password, and the text that is shown to users.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn login(url: &str) -> Result<(Option<String>, Option<String>, String)> {
        let address = Self::read(url)?;
        let config = &address.config;
        let password = config.get_password();
        Ok((
            config.get_user().map(str::to_owned),
            password.map(|it| String::from_utf8_lossy(it).into_owned()),
            format!("{address} {}", address.table),
        ))
    }

    /// Connects and logs in. The caller applies the timeout.
    pub(crate) async fn dial(&self) -> Result<(Client, ConnectionTask), RequestError> {
        let connector = match self.tls {
            Some(check) => {
                let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
                let alpn: &[&[u8]] = if direct { &[b"postgresql"] } else { &[] };
                let made = tls::connector(&self.files, check, alpn).await;
                Some(made.map_err(RequestError::Classified)?)
            }
            None => None,
        };
        let connected = self.config().await?.connect(Secure(connector)).await;
        connected.map_err(|error| RequestError::connecting(self, &error))
    }
}

/// The driver's connection future, which does the I/O.
pub(crate) type ConnectionTask = Connection<Socket, Secured<Socket>>;

/// Returns whether the URL contains an `@` that is not escaped. The driver ends a password at the first `@` and would
/// read the rest as a host or a database, which messages show.
fn bare_at(url: &str) -> bool {
    let (login, address) = url.split_once('@').unwrap_or(("", url));
    if login.matches(':').count() > 1 {
        return address.contains('@'); // one colon follows the scheme, the other precedes a password
    }
    let (address, options) = address.split_once('?').unwrap_or((address, ""));
    let may_have_one =
        |option: &str| option.starts_with("user=") || option.starts_with("password=");
    let bare = |option: &str| option.contains('@') && !may_have_one(option);
    !login.is_empty() && (address.contains('@') || options.split('&').any(bare))
}

/// Accepts plain table names only: the name is written into SQL statements unquoted.
fn check(table: &str) -> Result<()> {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let parts: Vec<&str> = table.split('.').collect();
    if table.len() > MAX_TABLE_BYTES || parts.len() > 2 || !parts.into_iter().all(part) {
        return Err(invalid(&format!(
            "a table is called by at most {MAX_TABLE_BYTES} of a-z, 0-9 and _, perhaps with a schema before a dot"
        )));
    }
    Ok(())
}

pub(crate) fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("the URL of PostgreSQL: {why}"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        for (n, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
            if let Some(port) = self.config.get_ports().get(n) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_nothing_but_a_name() {
        for good in ["locks", "shop.locks", "_l1"] {
            assert!(check(good).is_ok(), "{good}");
        }
        let long = "a".repeat(51);
        for bad in [
            "", "a.b.c", "Locks", "a;drop", "a b", "1a", "a\"", ".a", &long,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_at_in_a_password_is_escaped() {
        for bad in [
            "u:a@hunter2@h/d",
            "u:a@x/hunter2@h",
            "u:a?b@hunter2@h",
            "u:a@h/d?dbname=hunter2@i",
            "u@=?host=?:hunter2@",
        ] {
            assert!(bare_at(&format!("postgres://{bad}")), "{bad}");
        }
        for good in ["h/d", "u:a%40b@h/d", "u@h/d?user=a@b", "h/d?user=a@b"] {
            assert!(!bare_at(&format!("postgres://{good}")), "{good}");
        }
    }
}
