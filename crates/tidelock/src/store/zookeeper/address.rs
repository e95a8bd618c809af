//! Parses the store's URL: servers, base path, login. No error message contains the URL: it may hold a password.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::percent;

/// The base path unless the URL names another one.
const DEFAULT_BASE: &str = "/tidelock";
const PORT: u16 = 2181;

/// The parts of a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// `host:port,host:port`, the format that the driver expects.
    pub(crate) servers: String,
    /// The parent path of all locks, without a trailing slash.
    pub(crate) base: String,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// The session timeout to request, instead of one derived from the client's lease.
    pub(crate) session_timeout: Option<Duration>,
}

impl Address {
    /// Parses `zookeeper://[user:password@]host[:port],…[/base/path][?session_timeout=20s]`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let rest = url
            .split_once("://")
            .ok_or_else(|| invalid("write zookeeper://host:2181,host:2181/base/path"))?
            .1;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(invalid(
                "write %2F for a / in a password, and %40 for an @ in the path",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(read_login(login)?), hosts),
            None => (None, authority),
        };
        Ok(Self {
            servers: read_hosts(hosts)?,
            base: read_base(path)?,
            login,
            session_timeout: read_query(query)?,
        })
    }

    /// The path of the node with this escaped name.
    pub(crate) fn path(&self, segment: &str) -> String {
        format!("{}/{segment}", self.base)
    }
}

fn read_login(login: &str) -> Result<(String, String)> {
    let (user, password) = login
        .split_once(':')
        .ok_or_else(|| invalid("a user needs a password: user:password@host"))?;
    let read =
        |text| percent::decode(text).ok_or_else(|| invalid("a percent sign without two digits"));
    Ok((read(user)?, read(password)?))
}

fn read_hosts(hosts: &str) -> Result<String> {
    let mut servers = Vec::new();
    for host in hosts.split(',') {
        if host.is_empty() {
            return Err(invalid("the host is missing: zookeeper://host:2181"));
        }
        // The brackets of an IPv6 address end the host. The port follows them.
        let port = host.rsplit_once(']').map_or(host, |(_, port)| port);
        servers.push(match port.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => host.to_owned(),
            Some(_) => return Err(invalid("a port is a number from 1 to 65535")),
            None => format!("{host}:{PORT}"),
        });
    }
    Ok(servers.join(","))
}

fn read_base(path: &str) -> Result<String> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Ok(DEFAULT_BASE.to_owned());
    }
    let path = percent::decode(path).ok_or_else(|| invalid("a percent sign without two digits"))?;
    let bad = |segment: &str| {
        segment.is_empty()
            || matches!(segment, "." | "..")
            || crate::store::zookeeper::keys::escape(segment) != segment
    };
    if path.split('/').any(bad) {
        return Err(invalid(
            "ZooKeeper takes no such path: no empty segments, dots, controls or percent signs",
        ));
    }
    Ok(format!("/{path}"))
}

fn read_query(query: &str) -> Result<Option<Duration>> {
    let mut timeout = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != "session_timeout" {
            // The message does not repeat the key, which may be the rest of a password with an unescaped `?`.
            return Err(invalid(
                "the only option is session_timeout; write %3F for a ? in a password",
            ));
        }
        timeout = Some(read_time(value).ok_or_else(|| {
            invalid("session_timeout is a time such as 20s or 800ms, of at least a millisecond")
        })?);
    }
    Ok(timeout)
}

fn read_time(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit)?;
    // The protocol encodes the timeout as a signed 32-bit number.
    (1..=u64::from(i32::MAX.unsigned_abs()))
        .contains(&millis)
        .then(|| Duration::from_millis(millis))
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("ZooKeeper URL: {}", why.into()))
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("servers", &self.servers)
            .field("base", &self.base)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let address = Address::parse("zookeeper://a,b:2182,[::1]:7,[::1]/shop/locks/").unwrap();
        assert_eq!(address.servers, "a:2181,b:2182,[::1]:7,[::1]:2181");
        assert_eq!(address.base, "/shop/locks");
        assert_eq!(address.path("x"), "/shop/locks/x");
        let address = Address::parse("zookeeper://me:s%40cret@a?session_timeout=1500ms").unwrap();
        assert_eq!(address.base, DEFAULT_BASE);
        assert_eq!(address.login, Some(("me".into(), "s@cret".into())));
        assert_eq!(address.session_timeout, Some(Duration::from_millis(1500)));
        assert!(!format!("{address:?}").contains("s@cret"));
    }

    #[test]
    fn bad_urls_are_refused_and_show_no_password() {
        for bad in [
            "zookeeper:",
            "zookeeper://",
            "zookeeper://a,",
            "zookeeper://a:0",
            "zookeeper://a:x",
            "zookeeper://hunter2@a",
            "zookeeper://me:hunter2%zz@a",
            "zookeeper://me:1?hunter2@a",
            "zookeeper://me:1/hunter2@a",
            "zookeeper://me:x@b/hunter2@a/base",
            "zookeeper://a/b//c",
            "zookeeper://a/../c",
            "zookeeper://a/%00",
            "zookeeper://a?x=1",
            "zookeeper://a?session_timeout=0s",
            "zookeeper://a?session_timeout=5",
            "zookeeper://a?session_timeout=99999999999s",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
