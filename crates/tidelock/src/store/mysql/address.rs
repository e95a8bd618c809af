//! Parses the store's URL. No error message contains the URL: it may hold a password.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{TlsFiles, percent, tls};

/// The address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostAddress {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

/// A server, its database, and our login.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) server: HostAddress,
    pub(crate) database: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Whether the connection is encrypted and the server's certificate is fully verified.
    pub(crate) tls: bool,
    pub(crate) files: TlsFiles,
}

impl Address {
    /// Parses `mysql://[user[:password]@]host[:port]/database[?socket=/path&ssl-mode=…]`; `mariadb://` is the same.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let url = url::Url::parse(text).map_err(|e| invalid(format!("it is no URL: {e}")))?;
        if url.fragment().is_some() {
            return Err(invalid("the part after # means nothing here"));
        }
        // An `@` here belongs to a password, which we would show as the name of a database or a socket.
        let rest = &url[url::Position::BeforePath..];
        if rest.contains('@') {
            return Err(invalid(
                "write %2F for a / and %3F for a ? in a password, and %40 for an @ behind the host",
            ));
        }
        let mut server = HostAddress::Tcp {
            host: host(&url)?,
            port: url.port().unwrap_or(3306),
        };
        let (mut tls, mut files) = (false, TlsFiles::default());
        for (key, value) in url.query_pairs() {
            let file = || Some(PathBuf::from(&*value));
            match &*key {
                "ssl-mode" => tls = is_secure(&value)?,
                "socket" if !value.is_empty() => {
                    server = HostAddress::Socket(PathBuf::from(&*value));
                }
                "ssl-ca" if !value.is_empty() => files.ca = file(),
                "ssl-cert" if !value.is_empty() => files.cert = file(),
                "ssl-key" if !value.is_empty() => files.key = file(),
                _ => return Err(no_option(&key)),
            }
        }
        let database = decode(url.path().trim_start_matches('/'))?;
        if database.is_empty() || database.contains('/') {
            return Err(invalid(
                "the database is missing: mysql://user:password@host:3306/database",
            ));
        }
        Ok(Self {
            server,
            database,
            user: Some(decode(url.username())?).filter(|user| !user.is_empty()),
            password: url.password().map(decode).transpose()?,
            tls,
            files,
        })
    }

    /// Refuses certificates without TLS, because everything would go in plain text, and TLS on a socket file.
    pub(crate) fn check_tls(&self) -> Result<()> {
        if !self.tls && tls::is_wanted(&self.files) {
            return Err(invalid(
                "certificates are given, but it asks for no TLS; write ssl-mode=VERIFY_IDENTITY",
            ));
        }
        if self.tls && matches!(self.server, HostAddress::Socket(_)) {
            return Err(invalid(
                "a socket file leads to no other machine, and has no TLS; write ssl-mode=DISABLED",
            ));
        }
        Ok(())
    }
}

/// Stricter than MySQL's own clients, which would accept any server for `REQUIRED`, and plain text for `PREFERRED`.
fn is_secure(mode: &str) -> Result<bool> {
    match mode.to_ascii_uppercase().as_str() {
        "DISABLED" => Ok(false),
        "REQUIRED" | "VERIFY_IDENTITY" => Ok(true),
        "PREFERRED" => Err(invalid(
            "ssl-mode=PREFERRED would send in plain text what was to be encrypted, without a word; write VERIFY_IDENTITY, or DISABLED",
        )),
        "VERIFY_CA" => Err(Error::new(ErrorKind::Unsupported).because(
            "ssl-mode=VERIFY_CA: a certificate is checked with its host's name or not at all; write VERIFY_IDENTITY",
        )),
        _ => Err(invalid(
            "ssl-mode is DISABLED, REQUIRED or VERIFY_IDENTITY",
        )),
    }
}

/// We accept only known options. Above all, an option that requests TLS in other words must not be ignored. The
/// message does not repeat the key, which may be the rest of a password with an unescaped `?`.
fn no_option(key: &str) -> Error {
    if key.contains("ssl") || key.contains("tls") {
        return Error::new(ErrorKind::Unsupported).because(
            "TLS was asked for in words this store does not know; nothing was sent. Write ssl-mode=VERIFY_IDENTITY, with ssl-ca=/path where the \
             machine does not know the authority",
        );
    }
    invalid(
        "the options are socket, ssl-mode, ssl-ca, ssl-cert and ssl-key; write %3F for a ? in a password",
    )
}

fn host(url: &url::Url) -> Result<String> {
    match url.host() {
        // Not `to_string`: it adds brackets to an IPv6 address, and no resolver accepts them.
        Some(url::Host::Ipv6(ip)) => Ok(ip.to_string()),
        Some(host) => decode(&host.to_string()),
        None => Err(invalid("the host is missing")),
    }
}

fn decode(text: &str) -> Result<String> {
    percent::decode(text).ok_or_else(|| {
        invalid("a % is followed by two hexadecimal digits, and stands for a part of a text; write %25 for a %")
    })
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("the store's URL: {}", why.into()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            HostAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            HostAddress::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let address = Address::parse("mysql://me:s%40cret@db.example/locks").unwrap();
        let host = "db.example".to_owned();
        assert_eq!(address.server, HostAddress::Tcp { host, port: 3306 });
        assert_eq!(address.password.as_deref(), Some("s@cret"));
        assert_eq!(address.user.as_deref(), Some("me"));
        let shown = format!("{address} {address:?}");
        assert_eq!(shown, "db.example:3306 db.example:3306/locks");
        let address = Address::parse("mariadb://localhost/a?socket=/run/my.sock").unwrap();
        assert_eq!(address.server, HostAddress::Socket("/run/my.sock".into()));
    }

    #[test]
    fn what_asks_for_tls_never_gets_plain_text() {
        for mode in ["REQUIRED", "VERIFY_IDENTITY", "required"] {
            let address = Address::parse(&format!("mysql://h/d?ssl-mode={mode}")).unwrap();
            assert!(address.tls, "{mode}");
        }
        let given = Address::parse("mysql://h/d?ssl-ca=/ca.pem&ssl-mode=DISABLED").unwrap();
        assert!(!given.tls && given.check_tls().is_err());
        let socket = "mysql://h/d?socket=/s&ssl-mode=REQUIRED";
        assert!(Address::parse(socket).unwrap().check_tls().is_err());
        for option in [
            "ssl-mode=VERIFY_CA",
            "require_ssl=true",
            "tls=1",
            "sslmode=disable",
        ] {
            let error = Address::parse(&format!("mysql://h/d?{option}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{option}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_without_the_password() {
        for text in [
            "mysql://u:hunter2@h",
            "mysql://u:hunter2@h/d?x=1",
            "mysql://h/d?ssl-mode=hunter2",
            "mysql://u:hunter2@h/d?ssl-mode=PREFERRED",
            "mysql://u:hunter2@h/a/b",
            "mysql:hunter2",
            "mysql://u:1?hunter2@h/d",
            "mysql://u:1/hunter2@h",
            "mysql://u:x@i/hunter2@h",
            "mysql://u:x@i/d?socket=/hunter2@h",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{text}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
