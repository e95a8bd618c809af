//! Parses the store's URL: address and login. No message contains the URL, because it may hold a password.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::store::percent;

/// The server's address and the login.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password, for a server that runs with `--auth-file`.
    pub(crate) login: Option<(String, String)>,
}

impl Address {
    /// Reads `memcached://[user:password@]host[:port]`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let url = url::Url::parse(text).map_err(|e| invalid(format!("it is no URL: {e}")))?;
        // Do not repeat the query in the message: it may be the rest of a password with a bare `?`.
        if url.query_pairs().next().is_some() {
            return Err(invalid(
                "it has no options; write %3F for a ? in a password",
            ));
        }
        if url.fragment().is_some() || !matches!(url.path(), "" | "/") {
            return Err(invalid("nothing follows the port"));
        }
        let host = match url.host() {
            // `Host::to_string` would put the IPv6 address in brackets, which the resolver rejects.
            Some(url::Host::Ipv6(ip)) => ip.to_string(),
            Some(host) => host.to_string(),
            None => return Err(invalid("the host is missing")),
        };
        let login = match (decoded(url.username())?, url.password()) {
            (user, None) if user.is_empty() => None,
            (user, Some(password)) => Some((user, decoded(password)?)),
            (_, None) => return Err(invalid("the password is missing behind the user")),
        };
        Ok(Self {
            host,
            port: url.port().unwrap_or(11211),
            login,
        })
    }
}

fn decoded(text: &str) -> Result<String> {
    percent::decode(text).ok_or_else(|| invalid("a % is followed by two hexadecimal digits"))
}

fn invalid(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "the store's URL cannot be used: {why} (memcached://host:port, memcached://user:password@host:port)"
    ))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_place_and_the_user() {
        let address = Address::parse("memcached://me:p%40ss@h:7").unwrap();
        assert_eq!((&*address.host, address.port), ("h", 7));
        assert_eq!(address.login, Some(("me".to_owned(), "p@ss".to_owned())));
        let address = Address::parse("memcached://[::1]").unwrap();
        assert_eq!((&*address.host, address.port), ("::1", 11211));
        assert_eq!(address.to_string(), "::1:11211");
    }

    #[test]
    fn a_url_that_cannot_be_read_shows_no_password() {
        for bad in [
            "memcached:",
            "memcached://",
            "memcached://h/1",
            "memcached://h?a=1",
            "memcached://me@h",
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
