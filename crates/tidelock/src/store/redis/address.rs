//! Server addresses. No `Display` or `Debug` in this file shows a password.

pub(crate) mod build;
pub(crate) mod url;

use std::fmt;
use std::path::PathBuf;

use crate::redis::topology::PubSubMode;
use crate::store::url::UrlHost;

/// The servers, the database and, if the URL has them, user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) way: ServerAddress,
    pub(crate) db: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Every lock is a plain key.
    pub(crate) plain_locks: bool,
}

/// How the client finds the server that has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// A server with a fixed address.
    One(HostAddress),
    /// Sentinels name the primary.
    Sentinels(Sentinels),
    /// The nodes of a cluster; each of them has the slot map of the whole cluster.
    Cluster(ClusterNodes),
}

/// The nodes of a cluster at which the client starts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClusterNodes {
    pub(crate) addresses: Vec<HostAddress>,
    pub(crate) sharded: PubSubMode,
}

/// The sentinels that name the primary.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sentinels {
    pub(crate) addresses: Vec<HostAddress>,
    /// The name of the primary's group in the sentinels' configuration.
    pub(crate) service: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostAddress {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn is_tls(&self) -> bool {
        match &self.way {
            ServerAddress::One(address) => address.is_tls(),
            ServerAddress::Sentinels(sentinels) => {
                sentinels.addresses.iter().any(HostAddress::is_tls)
            }
            ServerAddress::Cluster(nodes) => nodes.addresses.iter().any(HostAddress::is_tls),
        }
    }
}

impl HostAddress {
    /// The address of a host in a URL. `port`: the one to use if the URL has none.
    pub(crate) fn tcp(host: &UrlHost, port: u16, tls: bool) -> Self {
        Self::Tcp {
            host: host.host.clone(),
            port: host.port.unwrap_or(port),
            tls,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }
}

impl fmt::Display for HostAddress {
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

/// `host:port` of each address, joined by commas.
pub(crate) fn short(addresses: &[HostAddress]) -> String {
    let each = addresses.iter().map(|address| {
        let text = address.to_string();
        text.split_once("://")
            .map_or(text.clone(), |(_, host)| host.to_owned())
    });
    each.collect::<Vec<_>>().join(",")
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.addresses.iter().any(HostAddress::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        let (hosts, service) = (short(&self.addresses), &self.service);
        write!(f, "{scheme}+sentinel://{hosts}/{service}")
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ClusterNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.addresses.iter().any(HostAddress::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        write!(f, "{scheme}+cluster://{}", short(&self.addresses))
    }
}

impl fmt::Debug for ClusterNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
            Self::Cluster(nodes) => nodes.fmt(f),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.way, self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As errors, the log and the doctor name a server.
    #[test]
    fn an_address_is_shown_as_its_url_without_the_login() {
        for (url, shown, is_tls) in [
            ("redis://me:secret@h", "redis://h:6379", false),
            ("rediss://:secret@h:1/2", "rediss://h:1", true),
            ("redis://[::1]:9", "redis://[::1]:9", false),
            ("redis+unix:///run/r?db=1", "redis+unix:///run/r", false),
            (
                "redis+sentinel://me:secret@a,[::1]:7/shop",
                "redis+sentinel://a:26379,[::1]:7/shop",
                false,
            ),
            (
                "rediss+sentinel://a/shop?sentinel_password=secret",
                "rediss+sentinel://a:26379/shop",
                true,
            ),
            ("redis+cluster://a,b:7", "redis+cluster://a:6379,b:7", false),
            (
                "rediss+cluster://:secret@a",
                "rediss+cluster://a:6379",
                true,
            ),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.way.to_string(), shown, "{url}");
            assert_eq!(address.is_tls(), is_tls, "{url}");
            let detailed = format!("{address:?} {:?}", address.way);
            assert!(!detailed.contains("secret"), "{detailed}");
        }
    }
}
