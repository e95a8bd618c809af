//! Parses the store's URL: address and login.

use std::fmt;

use crate::error::Result;
use crate::store::url::{UrlDialect, UrlSyntax};

/// The server's address and the login.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The user, for a server that runs with `--auth-file`.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

pub(crate) const SYNTAX: UrlSyntax<()> = UrlSyntax {
    forms: "memcached://host:port, memcached://user:password@host:port",
    dialect: UrlDialect::Web,
    options: &[],
    set: |(), _, _| Ok(()),
    unsupported: &[],
};

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        SYNTAX.read(text.trim(), |url, ()| {
            if !matches!(url.path, "" | "/") {
                return Err("nothing follows the port".into());
            }
            let server = url.host()?;
            let (user, password) = url.login();
            Ok(Self {
                host: server.host.clone(),
                port: server.port.unwrap_or(11211),
                user,
                password,
            })
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            write!(f, "memcached://[{host}]:{port}")
        } else {
            write!(f, "memcached://{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn urls_name_the_place_and_the_user() {
        let address = Address::parse("memcached://me:p%40ss@h:7").unwrap();
        assert_eq!((&*address.host, address.port), ("h", 7));
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password.as_deref(), Some("p@ss"));
        assert_eq!(address.to_string(), "memcached://h:7");
        let address = Address::parse("memcached://[::1]").unwrap();
        assert_eq!((&*address.host, address.port), ("::1", 11211));
        assert_eq!(address.to_string(), "memcached://[::1]:11211");
    }

    #[test]
    fn a_url_that_cannot_be_read_shows_no_password() {
        for bad in [
            "memcached:",
            "memcached://",
            "memcached://h/1",
            "memcached://h?a=1",
            "memcached://me:hunter2%zz@h",
            "memcached://me:hunter2@h/path",
            "memcached://me:1?hunter2@h",
        ] {
            let error = Address::parse(bad).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
