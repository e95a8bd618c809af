//! Server addresses. No `Display` or `Debug` in this file shows a password.

use std::fmt;
use std::path::PathBuf;

use crate::servers::Messages;

/// The servers, the database and, if the URL has them, user and password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) way: Way,
    pub(super) db: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// How the client finds the server that has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// A server with a fixed address.
    One(Place),
    /// Sentinels name the primary.
    Sentinels(Sentinels),
    /// The nodes of a cluster; each of them has the slot map of the whole cluster.
    Cluster(Nodes),
}

/// The nodes of a cluster at which the client starts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) places: Vec<Place>,
    pub(super) sharded: Messages,
}

/// The sentinels that name the primary.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Sentinels {
    pub(super) places: Vec<Place>,
    /// The name of the primary's group in the sentinels' configuration.
    pub(super) service: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Target {
    pub(super) fn is_tls(&self) -> bool {
        match &self.way {
            Way::One(place) => place.is_tls(),
            Way::Sentinels(sentinels) => sentinels.places.iter().any(Place::is_tls),
            Way::Cluster(nodes) => nodes.places.iter().any(Place::is_tls),
        }
    }
}

impl Place {
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }
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

/// `host:port` of each address, joined by commas.
pub(super) fn short(places: &[Place]) -> String {
    let each = places.iter().map(|place| {
        let text = place.to_string();
        text.split_once("://")
            .map_or(text.clone(), |(_, host)| host.to_owned())
    });
    each.collect::<Vec<_>>().join(",")
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.places.iter().any(Place::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        let (hosts, service) = (short(&self.places), &self.service);
        write!(f, "{scheme}+sentinel://{hosts}/{service}")
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.places.iter().any(Place::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        write!(f, "{scheme}+cluster://{}", short(&self.places))
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(place) => place.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
            Self::Cluster(nodes) => nodes.fmt(f),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.way, self.db)
    }
}
