//! Validates the server addresses, for both a URL and a [`Servers`].

use std::fmt;

use super::place::{Nodes, Place, Sentinels, Target, Way};
use super::url;
use crate::error::{Error, ErrorKind, Result};
use crate::servers::{self, Messages, Servers};

/// Why the addresses are invalid.
#[derive(Debug)]
pub(super) struct Why(pub(super) String);

pub(super) type Read<T> = std::result::Result<T, Why>;

/// User and password.
#[derive(Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Way {
    pub(super) fn sentinels(places: Vec<Place>, service: &str, login: Login) -> Read<Self> {
        if service.is_empty() {
            return Err(why(
                "the name of the service is missing: redis+sentinel://host:26379,…/service",
            ));
        }
        Ok(Self::Sentinels(Sentinels {
            places: some_of(places)?,
            service: service.to_owned(),
            user: login.user,
            password: login.password,
        }))
    }

    pub(super) fn cluster(places: Vec<Place>, db: i64, sharded: Messages) -> Read<Self> {
        if db != 0 {
            return Err(why("a cluster has only the database 0"));
        }
        let places = some_of(places)?;
        Ok(Self::Cluster(Nodes { places, sharded }))
    }
}

impl Target {
    /// Like a parsed URL. The user and the password come from the client's options.
    pub(super) fn of(servers: &Servers) -> Result<Self> {
        Self::from_parts(servers).map_err(|Why(why)| {
            Error::new(ErrorKind::InvalidOptions)
                .because(format!("the servers cannot be connected to: {why}"))
        })
    }

    fn from_parts(servers: &Servers) -> Read<Self> {
        let tls = servers.tls;
        let places = |hosts: &[String], port| -> Read<Vec<Place>> {
            hosts.iter().map(|host| place(host, port, tls)).collect()
        };
        if servers.messages.is_some() && !matches!(servers.way, servers::Way::Cluster(_)) {
            return Err(why("how messages are told is chosen for a cluster only"));
        }
        let login = servers.sentinel_credentials.clone();
        if login.is_some() && !matches!(servers.way, servers::Way::Sentinels { .. }) {
            return Err(why("sentinel_credentials are for sentinels only"));
        }
        let way = match &servers.way {
            servers::Way::One(host) => Way::One(place(host, 6379, tls)?),
            servers::Way::Socket(_) if tls => return Err(why("a socket speaks no TLS")),
            servers::Way::Socket(path) if path.as_os_str().is_empty() => {
                return Err(why("the path of the socket is missing"));
            }
            servers::Way::Socket(path) => Way::One(Place::Unix(path.clone())),
            servers::Way::Sentinels { service, hosts } => {
                let login = login.map(|login| Login {
                    user: login.user,
                    password: login.password,
                });
                Way::sentinels(places(hosts, 26379)?, service, login.unwrap_or_default())?
            }
            servers::Way::Cluster(hosts) => {
                let messages = servers.messages.unwrap_or(Messages::Auto);
                Way::cluster(places(hosts, 6379)?, servers.database, messages)?
            }
        };
        Ok(Self {
            way,
            db: servers.database,
            user: None,
            password: None,
        })
    }
}

/// Adds the host to the error. We cut off the part before an `@`, which may be a password.
fn place(host: &str, port: u16, tls: bool) -> Read<Place> {
    let named = |Why(reason)| {
        let name = host.rsplit('@').next().unwrap_or_default();
        why(format_args!("{name:?}: {reason}"))
    };
    url::host(host, port, tls).map_err(named)
}

fn some_of(places: Vec<Place>) -> Read<Vec<Place>> {
    if places.is_empty() {
        return Err(why("no host is named"));
    }
    Ok(places)
}

fn why(reason: impl fmt::Display) -> Why {
    Why(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;

    #[test]
    fn what_a_url_says_can_be_said_in_parts() {
        let watcher = Credentials::new("w", "x&y");
        let hosts = ["a", "b:7", "[::1]:9"];
        for (url, servers) in [
            ("redis://a", Servers::one("a")),
            (
                "rediss://[::1]:7/3",
                Servers::one("[::1]:7").tls(true).database(3),
            ),
            (
                "redis+unix:///run/r?db=1",
                Servers::socket("/run/r").database(1),
            ),
            (
                "redis+sentinel://a,b:7,[::1]:9/shop/2?sentinel_user=w&sentinel_password=x%26y",
                Servers::sentinels("shop", hosts)
                    .database(2)
                    .sentinel_credentials(watcher),
            ),
            (
                "rediss+cluster://a,b:7,[::1]:9?sharded_pubsub=both",
                Servers::cluster(hosts).tls(true).messages(Messages::Both),
            ),
            ("redis+cluster://a", Servers::cluster(["a"])),
        ] {
            let parsed = Target::parse(url).unwrap();
            assert_eq!(Target::of(&servers).unwrap(), parsed, "{url}");
        }
        let address: std::net::SocketAddr = "[::1]:7".parse().unwrap();
        let target = Target::of(&Servers::one(address.to_string())).unwrap();
        assert_eq!(target, Target::parse("redis://[::1]:7").unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let none: [&str; 0] = [];
        for (servers, why) in [
            (Servers::one(""), "host"),
            (Servers::one("redis://a"), "redis://a"),
            (Servers::one("user:secret@a"), "name or an address"),
            (Servers::one("a/3"), "name or an address"),
            (Servers::one("::1"), "::1"),
            (Servers::one("a:99999"), "a:99999"),
            (Servers::sentinels("shop", none), "no host"),
            (Servers::sentinels("", ["a"]), "service"),
            (Servers::cluster(none), "no host"),
            (Servers::cluster(["a"]).database(1), "database 0"),
            (Servers::cluster(["a", ""]), "host"),
            (Servers::one("a").messages(Messages::Off), "cluster"),
            (Servers::socket("/run/r").tls(true), "TLS"),
            (Servers::socket(""), "path"),
            (
                Servers::one("a").sentinel_credentials(Credentials::password("p")),
                "sentinels",
            ),
        ] {
            let error = Target::of(&servers).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{servers:?}");
            assert!(error.to_string().contains(why), "{servers:?}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
