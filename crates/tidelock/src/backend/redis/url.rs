//! Where a server is and how to get in, from a URL. No message ever contains the URL: it may hold a password.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};

/// A server's address, database and, if the URL says so, user and password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) db: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// How the server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Target {
    /// Reads `redis://[user][:password]@host[:port][/db]`, `rediss://…`, or `redis+unix:///path[?db=n&user=…&password=…]`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let url = url::Url::parse(text).map_err(|e| invalid(format!("it is no URL: {e}")))?;
        if url.fragment().is_some() {
            return Err(invalid(
                "the part after # means nothing here; TLS is always checked",
            ));
        }
        match url.scheme() {
            "redis" => Self::tcp(&url, false),
            "rediss" => Self::tcp(&url, true),
            "redis+unix" => Self::unix(&url),
            other => Err(invalid(format!("{other}:// is not a Redis scheme"))),
        }
    }

    fn tcp(url: &url::Url, tls: bool) -> Result<Self> {
        let host = match url.host() {
            // Not `to_string`: an IPv6 address would come in brackets, which no resolver takes.
            Some(url::Host::Ipv6(ip)) => ip.to_string(),
            Some(host) => decode(&host.to_string())?,
            None => return Err(invalid("the host is missing")),
        };
        if let Some((key, _)) = url.query_pairs().next() {
            return Err(invalid(format!("{key:?} is not an option of a Redis URL")));
        }
        let db = url.path().trim_matches('/');
        Ok(Self {
            place: Place::Tcp {
                host,
                port: url.port().unwrap_or(6379),
                tls,
            },
            db: if db.is_empty() { 0 } else { database(db)? },
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        })
    }

    fn unix(url: &url::Url) -> Result<Self> {
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(invalid(
                "a socket has no host: write redis+unix:///path with three slashes",
            ));
        }
        if url.path().len() < 2 {
            return Err(invalid("the path of the socket is missing"));
        }
        let mut target = Self {
            place: Place::Unix(decode(url.path())?.into()),
            db: 0,
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        };
        for (key, value) in url.query_pairs() {
            match &*key {
                "db" => target.db = database(&value)?,
                "user" => target.user = some(value.into_owned()),
                "pass" | "password" => target.password = Some(value.into_owned()),
                _ => return Err(invalid(format!("{key:?} is not an option of a Redis URL"))),
            }
        }
        Ok(target)
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.place, Place::Tcp { tls: true, .. })
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn database(text: &str) -> Result<i64> {
    match text.parse() {
        Ok(db) if (0..=i64::from(i32::MAX)).contains(&db) => Ok(db),
        _ => Err(invalid("the database is not a number; write /0 to /15")),
    }
}

/// Undoes `%41`.
fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let code = after
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let Some(code) = code else {
            return Err(invalid(
                "a % is not followed by two hexadecimal digits; write %25 for a %",
            ));
        };
        bytes.push(code);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))
}

fn invalid(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "the store's URL cannot be used: {why} \
         (redis://user:password@host:port/db, rediss://…, redis+unix:///path?db=n)"
    ))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, tls } => {
                let scheme = if *tls { "rediss" } else { "redis" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")
                } else {
                    write!(f, "{scheme}://{host}:{port}")
                }
            }
            Self::Unix(path) => write!(f, "redis+unix://{}", path.display()),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool) -> Place {
        Place::Tcp {
            host: host.to_owned(),
            port,
            tls,
        }
    }

    #[test]
    fn urls_name_the_place_the_database_and_the_user() {
        for (url, place, db, user, password) in [
            (
                "redis://localhost",
                tcp("localhost", 6379, false),
                0,
                None,
                None,
            ),
            ("redis://h:7/3", tcp("h", 7, false), 3, None, None),
            (
                "redis://:p%40ss@h/",
                tcp("h", 6379, false),
                0,
                None,
                Some("p@ss"),
            ),
            (
                "rediss://me:s%25x@h:1/2",
                tcp("h", 1, true),
                2,
                Some("me"),
                Some("s%x"),
            ),
            ("redis://[::1]:9", tcp("::1", 9, false), 0, None, None),
            (
                "redis+unix:///run/r%20s?db=4&user=u&pass=p",
                Place::Unix("/run/r s".into()),
                4,
                Some("u"),
                Some("p"),
            ),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.place, place, "{url}");
            assert_eq!(target.db, db, "{url}");
            assert_eq!(target.user.as_deref(), user, "{url}");
            assert_eq!(target.password.as_deref(), password, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_the_password() {
        for url in [
            "redis://:hunter2@h/x",
            "redis://:hunter2@h/-1",
            "redis://:hunter2@h?dbb=1",
            "redis://:hunter2@",
            "rediss://:hunter2@h#insecure",
            "redis+unix://:hunter2@host/p",
            "redis+unix://?pass=hunter2",
            "redis://:hunter2%zz@h",
            "redis://:hunter2@h:99999",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        let target = Target::parse("redis://me:hunter2@h:1/2").unwrap();
        assert_eq!(format!("{target:?}"), "redis://h:1/2");
    }
}
