//! Parses the store's URL: servers, base path, login.

use std::fmt;
use std::time::Duration;

use crate::error::Result;
use crate::store::url::{UrlDialect, UrlHost, UrlOption, UrlRefusal, UrlResult, UrlSyntax, decode};

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
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// The session timeout to request, instead of one derived from the client's lease.
    pub(crate) session_timeout: Option<Duration>,
}

/// `T`: the session timeout.
pub(crate) const SYNTAX: UrlSyntax<Option<Duration>> = UrlSyntax {
    forms: "zookeeper://user:password@host:2181,host:2181/base/path",
    dialect: UrlDialect::Plain,
    options: &[UrlOption::new(
        "session_timeout",
        "a time such as 20s or 800ms",
        "from the client's lease",
        "the session timeout to request",
    )],
    set: |timeout, _, text| {
        *timeout = Some(read_time(text).ok_or_else(UrlRefusal::value)?);
        Ok(())
    },
    unsupported: &[],
};

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        SYNTAX.read(url, |url, session_timeout| {
            let server = |host: &UrlHost| {
                let port = Some(host.port.unwrap_or(PORT));
                UrlHost {
                    port,
                    ..host.clone()
                }
                .to_string()
            };
            let servers: Vec<String> = url.hosts()?.iter().map(server).collect();
            let (user, password) = url.login();
            Ok(Self {
                servers: servers.join(","),
                base: read_base(url.path)?,
                user,
                password,
                session_timeout,
            })
        })
    }

    /// The path of the node with this escaped name.
    pub(crate) fn path(&self, segment: &str) -> String {
        format!("{}/{segment}", self.base)
    }
}

fn read_base(path: &str) -> UrlResult<String> {
    let path = decode(path.trim_matches('/'))?;
    if path.is_empty() {
        return Ok(DEFAULT_BASE.to_owned());
    }
    let bad = |segment: &str| {
        segment.is_empty()
            || matches!(segment, "." | "..")
            || crate::store::zookeeper::keys::escape(segment) != segment
    };
    if path.split('/').any(bad) {
        return Err(
            "ZooKeeper takes no such path: no empty segments, dots, controls or percent signs"
                .into(),
        );
    }
    Ok(format!("/{path}"))
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

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("servers", &self.servers)
            .field("base", &self.base)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn urls_are_read() {
        let address = Address::parse("zookeeper://a,b:2182,[::1]:7,[::1]/shop/locks/").unwrap();
        assert_eq!(address.servers, "a:2181,b:2182,[::1]:7,[::1]:2181");
        assert_eq!(address.base, "/shop/locks");
        assert_eq!(address.path("x"), "/shop/locks/x");
        let address = Address::parse("zookeeper://me:s%40cret@a?session_timeout=1500ms").unwrap();
        assert_eq!(address.base, DEFAULT_BASE);
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password.as_deref(), Some("s@cret"));
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
