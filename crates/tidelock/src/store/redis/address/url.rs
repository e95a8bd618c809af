//! Parses a URL into addresses and login. No error message contains the URL, because it may contain a password.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::redis::topology::PubSubMode;
use crate::store::percent;
use crate::store::redis::address::build::{AddressError, AddressResult, UrlLogin};
use crate::store::redis::address::{Address, HostAddress, ServerAddress};

impl Address {
    /// Parses one of these forms:
    /// - `redis://[user][:password]@host[:port][/db]`, `rediss://…`
    /// - `redis+unix:///path[?db=n&user=…&password=…]`
    /// - `redis+sentinel://[user][:password]@host[:port],…/service[/db][?sentinel_user=…&sentinel_password=…]`
    /// - `redis+cluster://[user][:password]@host[:port],…[?sharded_pubsub=auto|on|off|both]`
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::read(text).map_err(|AddressError(why)| {
            Error::new(ErrorKind::InvalidOptions).because(format!(
                "the store's URL cannot be used: {why} \
                 (redis://user:password@host:port/db, rediss://…, redis+unix:///path?db=n, redis+sentinel://host:port,…/service, redis+cluster://host:port,…)"
            ))
        })
    }

    fn read(text: &str) -> AddressResult<Self> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| invalid("it is no URL: the scheme is missing"))?;
        match scheme {
            "redis" => Self::one(text, false),
            "rediss" => Self::one(text, true),
            "redis+unix" => Self::unix(&read(text)?),
            "redis+sentinel" => Self::sentinel(rest, false),
            "rediss+sentinel" => Self::sentinel(rest, true),
            "redis+cluster" => Self::cluster(rest, false),
            "rediss+cluster" => Self::cluster(rest, true),
            other => Err(invalid(format!("{other}:// is not a Redis scheme"))),
        }
    }

    fn one(text: &str, tls: bool) -> AddressResult<Self> {
        let url = read(text)?;
        if url.query_pairs().next().is_some() {
            return Err(no_option());
        }
        let db = url.path().trim_matches('/');
        Ok(Self {
            way: ServerAddress::One(tcp(&url, 6379, tls)?),
            db: if db.is_empty() { 0 } else { database(db)? },
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        })
    }

    fn sentinel(rest: &str, tls: bool) -> AddressResult<Self> {
        let (url, places) = many(rest, 26379, tls)?;
        let path = url.path().trim_matches('/');
        if path.contains('@') {
            return Err(invalid(
                "write %2F for a / in a password, and %40 for an @ in the name of a service",
            ));
        }
        let (service, db) = path.split_once('/').unwrap_or((path, ""));
        let service = decode(service)?;
        let mut login = UrlLogin::default();
        for (key, value) in url.query_pairs() {
            match &*key {
                "sentinel_user" => login.user = some(value.into_owned()),
                "sentinel_password" => login.password = Some(value.into_owned()),
                _ => return Err(no_option()),
            }
        }
        Ok(Self {
            way: ServerAddress::sentinels(places, &service, login)?,
            db: if db.is_empty() { 0 } else { database(db)? },
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        })
    }

    fn cluster(rest: &str, tls: bool) -> AddressResult<Self> {
        let (url, places) = many(rest, 6379, tls)?;
        let db = url.path().trim_matches('/');
        let mut messages = PubSubMode::Auto;
        for (key, value) in url.query_pairs() {
            messages = match (&*key, &*value) {
                ("sharded_pubsub", "auto") => PubSubMode::Auto,
                ("sharded_pubsub", "on") => PubSubMode::On,
                ("sharded_pubsub", "off") => PubSubMode::Off,
                ("sharded_pubsub", "both") => PubSubMode::Both,
                ("sharded_pubsub", _) => {
                    return Err(invalid("sharded_pubsub is auto, on, off or both"));
                }
                _ => return Err(no_option()),
            };
        }
        let db = if db.is_empty() { 0 } else { database(db)? };
        Ok(Self {
            way: ServerAddress::cluster(places, db, messages)?,
            db,
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        })
    }

    fn unix(url: &url::Url) -> AddressResult<Self> {
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(invalid(
                "a socket has no host: write redis+unix:///path with three slashes",
            ));
        }
        if url.path().len() < 2 {
            return Err(invalid("the path of the socket is missing"));
        }
        let mut target = Self {
            way: ServerAddress::One(HostAddress::Unix(decode(url.path())?.into())),
            db: 0,
            user: some(decode(url.username())?),
            password: url.password().map(decode).transpose()?,
        };
        for (key, value) in url.query_pairs() {
            match &*key {
                "db" => target.db = database(&value)?,
                "user" => target.user = some(value.into_owned()),
                "pass" | "password" => target.password = Some(value.into_owned()),
                _ => return Err(no_option()),
            }
        }
        Ok(target)
    }
}

fn read(text: &str) -> AddressResult<url::Url> {
    let url = url::Url::parse(text).map_err(|e| invalid(format!("it is no URL: {e}")))?;
    if url.fragment().is_some() {
        return Err(invalid(
            "the part after # means nothing here; TLS is always checked",
        ));
    }
    Ok(url)
}

fn tcp(url: &url::Url, port: u16, tls: bool) -> AddressResult<HostAddress> {
    let host = match url.host() {
        // Not `to_string`: it would put an IPv6 address in brackets, which no resolver accepts.
        Some(url::Host::Ipv6(ip)) => ip.to_string(),
        Some(host) => decode(&host.to_string())?,
        None => return Err(invalid("the host is missing")),
    };
    Ok(HostAddress::Tcp {
        host,
        port: url.port().unwrap_or(port),
        tls,
    })
}

/// Parses `host`, `host:port` or `[::1]:port`.
pub(crate) fn host(text: &str, port: u16, tls: bool) -> AddressResult<HostAddress> {
    let url = read(&format!("redis://{text}"))?;
    let alone = url.username().is_empty() && url.password().is_none();
    if !alone || !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err(invalid("a host is a name or an address, with a port"));
    }
    tcp(&url, port, tls)
}

/// Parses a URL with several hosts: returns the URL with the first host only, and all addresses.
fn many(rest: &str, port: u16, tls: bool) -> AddressResult<(url::Url, Vec<HostAddress>)> {
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| invalid("it is no URL: // is missing behind the scheme"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let mut places = Vec::new();
    for host in hosts.split(',') {
        places.push(self::host(host, port, tls)?);
    }
    let first = hosts.split(',').next().unwrap_or_default();
    Ok((read(&format!("redis://{login}{first}{tail}"))?, places))
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn database(text: &str) -> AddressResult<i64> {
    match text.parse() {
        Ok(db) if (0..=i64::from(i32::MAX)).contains(&db) => Ok(db),
        _ => Err(invalid("the database is not a number; write /0 to /15")),
    }
}

/// Decodes percent escapes such as `%41`.
fn decode(text: &str) -> AddressResult<String> {
    percent::decode(text).ok_or_else(|| {
        invalid("a % is followed by two hexadecimal digits, and stands for a part of a text; write %25 for a %")
    })
}

fn invalid(why: impl fmt::Display) -> AddressError {
    AddressError(why.to_string())
}

/// The error does not quote the option: with an unescaped `?` in a password, it is the rest of that password.
fn no_option() -> AddressError {
    invalid("it has an option that such a URL does not have; write %3F for a ? in a password")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool) -> HostAddress {
        HostAddress::Tcp {
            host: host.to_owned(),
            port,
            tls,
        }
    }

    #[test]
    fn urls_name_the_place_the_database_and_the_user() {
        for (url, address, db, user, password) in [
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
                HostAddress::Unix("/run/r s".into()),
                4,
                Some("u"),
                Some("p"),
            ),
        ] {
            let target = Address::parse(url).unwrap();
            assert_eq!(target.way, ServerAddress::One(address), "{url}");
            assert_eq!(target.db, db, "{url}");
            assert_eq!(target.user.as_deref(), user, "{url}");
            assert_eq!(target.password.as_deref(), password, "{url}");
        }
    }

    #[test]
    fn sentinels_are_several_hosts_and_a_service() {
        let url =
            "redis+sentinel://me:p%40s@a,b:7,[::1]/shop/2?sentinel_user=w&sentinel_password=x%26y";
        let target = Address::parse(url).unwrap();
        let ServerAddress::Sentinels(found) = &target.way else {
            panic!("{target:?}");
        };
        let places = [
            tcp("a", 26379, false),
            tcp("b", 7, false),
            tcp("::1", 26379, false),
        ];
        assert_eq!(found.places, places);
        assert_eq!((found.service.as_str(), target.db), ("shop", 2));
        assert_eq!(found.user.as_deref(), Some("w"));
        assert_eq!(found.password.as_deref(), Some("x&y"));
        assert_eq!(target.user.as_deref(), Some("me"));
        assert_eq!(target.password.as_deref(), Some("p@s"));
        assert_eq!(
            format!("{target:?}"),
            "redis+sentinel://a:26379,b:7,[::1]:26379/shop/2"
        );
        assert!(Address::parse("rediss+sentinel://a/s").unwrap().is_tls());
    }

    #[test]
    fn a_cluster_is_several_hosts() {
        for (query, sharded) in [
            ("", PubSubMode::Auto),
            ("?sharded_pubsub=both", PubSubMode::Both),
            ("/0?sharded_pubsub=off", PubSubMode::Off),
        ] {
            let url = format!("rediss+cluster://me:secret@a:1,b{query}");
            let target = Address::parse(&url).unwrap();
            let places = vec![tcp("a", 1, true), tcp("b", 6379, true)];
            assert_eq!(
                target.way,
                ServerAddress::cluster(places, 0, sharded).unwrap()
            );
            assert_eq!(target.password.as_deref(), Some("secret"));
            assert_eq!(format!("{target:?}"), "rediss+cluster://a:1,b:6379/0");
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
            "redis+sentinel://:hunter2@h",
            "redis+sentinel://:hunter2@h,/s",
            "redis+sentinel://:hunter2@h,i:x/s",
            "redis+sentinel://:hunter2@h/s?db=hunter2",
            "redis+sentinel:hunter2",
            "redis+cluster://:hunter2@h/1",
            "redis+sentinel://me:1/hunter2@h",
            "redis+sentinel://me:x@i/hunter2@h/shop",
            "redis://me:1?hunter2@h",
            "redis+sentinel://me:1/s?hunter2@h",
            "redis+cluster://me:1?hunter2=x@h",
            "redis+cluster://:hunter2@h?sharded_pubsub=hunter2",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        let target = Address::parse("redis://me:hunter2@h:1/2").unwrap();
        assert_eq!(format!("{target:?}"), "redis://h:1/2");
    }
}
