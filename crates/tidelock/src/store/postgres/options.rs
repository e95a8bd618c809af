//! The options of the URL. Those of libpq are passed on to the driver; the others are tidelock's own.

use tokio_postgres::Config;

use crate::store::TlsFiles;
use crate::store::tls::Check;
use crate::store::url::{UrlDialect, UrlOption, UrlRefusal, UrlResult, UrlSyntax, file};

/// The values of the options.
#[derive(Default)]
pub(crate) struct Options {
    /// The driver's settings as `name='value'` pairs.
    pub(crate) driver: String,
    pub(crate) table: Option<String>,
    /// `true`: the server's advisory locks. `false`: rows with leases.
    pub(crate) session_locks: bool,
    /// No statement is prepared.
    pub(crate) unnamed: bool,
    /// How the server's certificate is checked. `None`: plain text.
    pub(crate) tls: Option<Check>,
    pub(crate) files: TlsFiles,
}

pub(crate) const SYNTAX: UrlSyntax<Options> = UrlSyntax {
    forms: "postgres://user:password@host:5432/database?table=tidelock_locks",
    dialect: UrlDialect::Libpq,
    options: OPTIONS,
    set: |options, name, value| {
        match name {
            "table" => options.table = Some(value.to_owned()),
            "locks" => options.session_locks = is_session(value)?,
            "statements" => options.unnamed = is_unnamed(value)?,
            "sslmode" => options.tls = check(value)?,
            "sslrootcert" => file(&mut options.files.ca, value)?,
            "sslcert" => file(&mut options.files.cert, value)?,
            "sslkey" => file(&mut options.files.key, value)?,
            _ => {
                // Parsed alone, because the driver's error for all of them may repeat a password.
                let setting = setting(name, value);
                let parsed = setting.parse::<Config>();
                parsed.map_err(|_| UrlRefusal::value())?;
                options.driver.push_str(&setting);
            }
        }
        Ok(())
    },
    unsupported: &[],
};

// One line for each option.
#[rustfmt::skip]
const OPTIONS: &[UrlOption] = &[
    UrlOption::new("table", "a name", "tidelock_locks", "the table of the locks, also `schema.name`"),
    UrlOption::new("locks", "rows or session", "rows", "rows with leases, or the server's advisory locks"),
    UrlOption::new("statements", "prepared or unnamed", "prepared", "`unnamed`: the server parses each statement again, and a session keeps nothing"),
    UrlOption::new("sslmode", MODES, "disable", "plain text or TLS"),
    UrlOption::new("sslrootcert", FILE, "the system's authorities", "the trusted authorities"),
    UrlOption::new("sslcert", FILE, "none", "the client's certificate"),
    UrlOption::new("sslkey", FILE, "none", "the client's private key"),
    UrlOption::new("sslnegotiation", "postgres or direct", "postgres", "`direct`: TLS from the first byte"),
    UrlOption::new("channel_binding", "disable or prefer", "prefer", "no effect: no login is bound to TLS, and `require` is an error"),
    UrlOption::new("host", "a host or a folder", "the URL's host", "a further host, or a socket's folder"),
    UrlOption::new("hostaddr", "an IP address", "by name", "the host's address, if it is known"),
    UrlOption::new("port", "a number", "5432", "the port of that host"),
    UrlOption::login("user", "the user, instead of the one before the `@`"),
    UrlOption::login("password", "the password, instead of the one before the `@`"),
    UrlOption::new("dbname", "a name", "the URL's path", "the database, instead of the one in the path"),
    UrlOption::new("options", "a text", "none", "the session's settings, as in `-c work_mem=4MB`"),
    UrlOption::new("application_name", "a text", "tidelock", "the name in `pg_stat_activity`"),
    UrlOption::new("target_session_attrs", ATTRIBUTES, "any", "which of several hosts to use; with `locks=session` read-write by default"),
    UrlOption::new("load_balance_hosts", "disable or random", "disable", "the order of several hosts"),
    UrlOption::new("keepalives", "0 or 1", "1", "whether TCP keep-alives are sent"),
    UrlOption::new("keepalives_idle", SECONDS, "7200", "when the first keep-alive is sent"),
    UrlOption::new("keepalives_interval", SECONDS, "the system's", "the time between keep-alives"),
    UrlOption::new("keepalives_retries", "a number", "the system's", "how many keep-alives may be lost"),
    UrlOption::new("tcp_user_timeout", SECONDS, "the system's", "how long data may be unacknowledged"),
    UrlOption::new("connect_timeout", SECONDS, "the response timeout", "no effect: the response timeout applies"),
];

const FILE: &str = "the path of a PEM file";
const MODES: &str = "disable, require, verify-ca or verify-full";
const ATTRIBUTES: &str = "any, read-write or read-only";
const SECONDS: &str = "a number of seconds";

/// A setting in the form that the driver parses.
pub(crate) fn setting(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('\'', r"\'");
    format!("{name}='{value}' ")
}

fn is_session(locks: &str) -> UrlResult<bool> {
    match locks {
        "rows" => Ok(false),
        "session" => Ok(true),
        _ => Err(UrlRefusal::value()),
    }
}

fn is_unnamed(statements: &str) -> UrlResult<bool> {
    match statements {
        "prepared" => Ok(false),
        "unnamed" => Ok(true),
        _ => Err(UrlRefusal::value()),
    }
}

/// Stricter than libpq: `require` verifies the server, and the modes that fall back to plain text are errors.
fn check(mode: &str) -> UrlResult<Option<Check>> {
    match mode {
        "disable" => Ok(None),
        "require" | "verify-full" => Ok(Some(Check::Everything)),
        "verify-ca" => Ok(Some(Check::AnyName)),
        "prefer" | "allow" => Err(
            "prefer and allow would fall back to plain text silently; write verify-full, or disable"
                .into(),
        ),
        _ => Err(UrlRefusal::value()),
    }
}
