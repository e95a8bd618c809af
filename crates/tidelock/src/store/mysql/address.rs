//! Parses the store's URL.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::store::url::{UrlDialect, UrlOption, UrlRefusal, UrlResult, UrlSyntax, decode, file};
use crate::store::{TlsFiles, tls};

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

/// The values of the options.
#[derive(Default)]
pub(crate) struct MysqlOptions {
    socket: Option<PathBuf>,
    tls: bool,
    files: TlsFiles,
}

pub(crate) const SYNTAX: UrlSyntax<MysqlOptions> = UrlSyntax {
    forms: "mysql://user:password@host:3306/database, mariadb://…",
    dialect: UrlDialect::Web,
    options: &[
        UrlOption::new(
            "socket",
            FILE,
            "none",
            "connect through this socket file instead of the host",
        ),
        UrlOption::new("ssl-mode", MODES, "DISABLED", "plain text or TLS"),
        UrlOption::new(
            "ssl-ca",
            FILE,
            "the system's authorities",
            "the trusted authorities",
        ),
        UrlOption::new("ssl-cert", FILE, "none", "the client's certificate"),
        UrlOption::new("ssl-key", FILE, "none", "the client's private key"),
    ],
    set: |options, name, value| match name {
        "socket" => file(&mut options.socket, value),
        "ssl-ca" => file(&mut options.files.ca, value),
        "ssl-cert" => file(&mut options.files.cert, value),
        "ssl-key" => file(&mut options.files.key, value),
        _ => is_secure(value).map(|tls| options.tls = tls),
    },
    // An option that requests TLS in other words must not be ignored.
    unsupported: &["ssl", "tls"],
};

const FILE: &str = "the path of a file";
const MODES: &str = "DISABLED, REQUIRED or VERIFY_IDENTITY";

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        SYNTAX.read(text.trim(), |url, options| {
            let server = url.host()?;
            let database = decode(url.path.trim_start_matches('/'))?;
            if database.is_empty() || database.contains('/') {
                return Err("the database is missing".into());
            }
            Ok(Self {
                server: match options.socket {
                    Some(file) => HostAddress::Socket(file),
                    None => HostAddress::Tcp {
                        host: server.host.clone(),
                        port: server.port.unwrap_or(3306),
                    },
                },
                database,
                user: url.user,
                password: url.password.filter(|password| !password.is_empty()),
                tls: options.tls,
                files: options.files,
            })
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
fn is_secure(mode: &str) -> UrlResult<bool> {
    match mode.to_ascii_uppercase().as_str() {
        "DISABLED" => Ok(false),
        "REQUIRED" | "VERIFY_IDENTITY" => Ok(true),
        "PREFERRED" => Err(
            "PREFERRED would fall back to plain text silently; write VERIFY_IDENTITY, or DISABLED"
                .into(),
        ),
        "VERIFY_CA" => Err(UrlRefusal::unsupported(
            "the driver checks a certificate together with its host name or not at all; write VERIFY_IDENTITY",
        )),
        _ => Err(UrlRefusal::value()),
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("the store's URL: {why}"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            HostAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "mysql://[{host}]:{port}")
            }
            HostAddress::Tcp { host, port } => write!(f, "mysql://{host}:{port}"),
            HostAddress::Socket(path) => write!(f, "mysql socket {}", path.display()),
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
        assert_eq!(
            shown,
            "mysql://db.example:3306 mysql://db.example:3306/locks"
        );
        let address = Address::parse("mariadb://localhost/a?socket=/run/my.sock").unwrap();
        assert_eq!(address.server, HostAddress::Socket("/run/my.sock".into()));
    }

    #[test]
    fn a_url_with_tls_never_gets_plain_text() {
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
    fn an_invalid_url_is_refused_without_the_password() {
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

    #[test]
    fn a_host_with_colons_is_shown_in_brackets() {
        for (url, shown) in [
            ("mysql://[::1]:3307/d", "mysql://[::1]:3307"),
            ("mysql://h:3307/d", "mysql://h:3307"),
            (
                "mysql://h/d?socket=/run/my.sock",
                "mysql socket /run/my.sock",
            ),
        ] {
            assert_eq!(Address::parse(url).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn an_empty_password_is_none() {
        let address = Address::parse("mysql://me:@h/d").unwrap();
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password, None);
    }

    #[test]
    fn each_file_for_tls_is_read_and_fits_tls_only() {
        let files = "ssl-ca=/ca.pem&ssl-cert=/cert.pem&ssl-key=/key.pem";
        let url = format!("mysql://h/d?ssl-mode=VERIFY_IDENTITY&{files}");
        let address = Address::parse(&url).unwrap();
        let path = |name: &str| Some(PathBuf::from(name));
        let files = [address.files.ca.clone(), address.files.cert.clone()];
        assert_eq!(files, [path("/ca.pem"), path("/cert.pem")]);
        assert_eq!(address.files.key, path("/key.pem"));
        for fits in [
            url.as_str(),
            "mysql://h/d",
            "mysql://h/d?socket=/s",
            "mysql://h/d?ssl-mode=REQUIRED",
        ] {
            assert!(Address::parse(fits).unwrap().check_tls().is_ok(), "{fits}");
        }
    }

    #[test]
    fn a_mode_that_may_end_in_plain_text_is_refused_with_the_one_to_write() {
        let error = Address::parse("mysql://h/d?ssl-mode=PREFERRED").unwrap_err();
        assert!(error.to_string().contains("VERIFY_IDENTITY"), "{error}");
        assert!(error.to_string().contains("plain text"), "{error}");
    }
}
