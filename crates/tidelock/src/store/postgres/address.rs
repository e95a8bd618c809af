//! Parses the URL into the server's address, the table and the TLS settings, and connects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::Credentials;
use crate::error::{Error, ErrorKind, Result};
use crate::store::credentials::given_by;
use crate::store::keepalive;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::options::{Options, SYNTAX, setting};
use crate::store::postgres::tls::{Secure, Secured};
use crate::store::tls;
use crate::store::tls::Check;
use crate::store::url::{UrlParts, UrlResult, decode};
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
    /// No statement is prepared.
    pub(crate) unnamed: bool,
}

impl Address {
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
        SYNTAX.read(url, |url, options| {
            if options.session_locks && options.table.is_some() {
                return Err("locks=session needs no table".into());
            }
            let config = config(&url, &options)?;
            if config.get_hosts().is_empty() {
                return Err("the host is missing".into());
            }
            let table = options.table.unwrap_or_else(|| TABLE.to_owned());
            check(&table)?;
            Ok(Self {
                config,
                table,
                credentials: None,
                tls: options.tls,
                files: options.files,
                session_locks: options.session_locks,
                unnamed: options.unnamed,
            })
        })
    }

    /// The driver's settings with the user and password to log in with.
    async fn config(&self) -> Result<Config, RequestError> {
        let mut config = self.config.clone();
        if let Some(source) = &self.credentials {
            let given = given_by(source, self.config.get_user()).await;
            let given = given.map_err(RequestError::Classified)?;
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

    /// What encrypts a new connection.
    pub(crate) async fn secure(&self) -> Result<Secure, RequestError> {
        let Some(check) = self.tls else {
            return Ok(Secure(None));
        };
        let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
        let alpn: &[&[u8]] = if direct { &[b"postgresql"] } else { &[] };
        let made = tls::connector(&self.files, check, alpn).await;
        Ok(Secure(Some(made.map_err(RequestError::Classified)?)))
    }

    /// Connects and logs in. The caller applies the timeout.
    pub(crate) async fn dial(&self) -> Result<(Client, ConnectionTask), RequestError> {
        let secure = self.secure().await?;
        let connected = self.config().await?.connect(secure).await;
        connected.map_err(|error| RequestError::connecting(self, &error))
    }
}

/// The driver's connection future, which does the I/O.
pub(crate) type ConnectionTask = Connection<Socket, Secured<Socket>>;

/// The driver's settings. Those in the query come last, because they override the others.
fn config(url: &UrlParts<'_>, options: &Options) -> UrlResult<Config> {
    let mut settings = String::new();
    let database = decode(url.path.strip_prefix('/').unwrap_or(url.path))?;
    let database = Some(&database).filter(|database| !database.is_empty());
    for (name, value) in [
        ("user", url.user.as_ref()),
        ("password", url.password.as_ref()),
        ("dbname", database),
    ] {
        settings.extend(value.map(|value| setting(name, value)));
    }
    for host in url.all_hosts() {
        settings.push_str(&setting("host", &host.host));
        settings.push_str(&setting("port", &host.port.unwrap_or(5432).to_string()));
    }
    for (name, value) in [
        ("keepalives_idle", keepalive::IDLE.as_secs()),
        ("keepalives_interval", keepalive::INTERVAL.as_secs()),
        ("keepalives_retries", keepalive::PROBES.into()),
    ] {
        settings.push_str(&setting(name, &value.to_string()));
    }
    settings.push_str(&options.driver);
    let config = parse(&settings)?;
    if !options.session_locks || config.get_hosts().len() < 2 {
        return Ok(config);
    }
    // A standby grants no session lock, so we want the primary, unless the user chooses.
    parse(&(setting("target_session_attrs", "read-write") + &settings))
}

/// Parses the driver's settings. We replace its error: it may repeat parts of the URL.
fn parse(settings: &str) -> UrlResult<Config> {
    settings
        .parse()
        .map_err(|_| "PostgreSQL takes no such URL".into())
}

/// Accepts plain table names only: the name is written into SQL statements unquoted.
fn check(table: &str) -> UrlResult<()> {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let parts: Vec<&str> = table.split('.').collect();
    if table.len() > MAX_TABLE_BYTES || parts.len() > 2 || !parts.into_iter().all(part) {
        return Err(format!(
            "a table is called by at most {MAX_TABLE_BYTES} of a-z, 0-9 and _, perhaps with a schema before a dot"
        )
        .into());
    }
    Ok(())
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("the store's URL: {why}"))
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
mod tests;
