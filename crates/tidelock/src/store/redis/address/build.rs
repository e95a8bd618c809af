//! Validates the server addresses, for both a URL and a [`Topology`].

use crate::error::{Error, Result};
use crate::redis::topology::{self as servers, PubSubMode, Topology};
use crate::store::redis::address::{Address, ClusterNodes, HostAddress, Sentinels, ServerAddress};
use crate::store::url::{self, UrlRefusal, UrlResult};

/// User and password.
#[derive(Default)]
pub(crate) struct UrlLogin {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl ServerAddress {
    pub(crate) fn sentinels(
        addresses: Vec<HostAddress>,
        service: &str,
        login: UrlLogin,
    ) -> UrlResult<Self> {
        if service.is_empty() {
            return Err(
                "the name of the service is missing: redis+sentinel://host:26379,…/service".into(),
            );
        }
        Ok(Self::Sentinels(Sentinels {
            addresses: some_of(addresses)?,
            service: service.to_owned(),
            user: login.user,
            password: login.password,
        }))
    }

    pub(crate) fn cluster(
        addresses: Vec<HostAddress>,
        db: i64,
        sharded: PubSubMode,
    ) -> UrlResult<Self> {
        if db != 0 {
            return Err("Redis Cluster supports only database 0".into());
        }
        let addresses = some_of(addresses)?;
        Ok(Self::Cluster(ClusterNodes { addresses, sharded }))
    }
}

impl Address {
    /// Like a parsed URL. The user and the password come from the client's options.
    pub(crate) fn of(servers: &Topology) -> Result<Self> {
        Self::from_parts(servers).map_err(|UrlRefusal { kind, why }| {
            Error::new(kind).because(format!("invalid Redis topology: {why}"))
        })
    }

    fn from_parts(servers: &Topology) -> UrlResult<Self> {
        let tls = servers.tls;
        let addresses = |hosts: &[String], port| -> UrlResult<Vec<HostAddress>> {
            hosts.iter().map(|host| address(host, port, tls)).collect()
        };
        if servers.pubsub_mode.is_some()
            && !matches!(servers.way, servers::TopologyKind::Cluster(_))
        {
            return Err("pubsub_mode applies only to a cluster".into());
        }
        let login = servers.sentinel_credentials.clone();
        if login.is_some() && !matches!(servers.way, servers::TopologyKind::Sentinels { .. }) {
            return Err("sentinel_credentials are for sentinels only".into());
        }
        let way = match &servers.way {
            servers::TopologyKind::One(host) => ServerAddress::One(address(host, 6379, tls)?),
            servers::TopologyKind::Socket(_) if tls => {
                return Err("TLS is not supported on a Unix socket".into());
            }
            servers::TopologyKind::Socket(path) if path.as_os_str().is_empty() => {
                return Err("the path of the socket is missing".into());
            }
            servers::TopologyKind::Socket(path) => {
                ServerAddress::One(HostAddress::Unix(path.clone()))
            }
            servers::TopologyKind::Sentinels { service, hosts } => {
                let login = login.map(|login| UrlLogin {
                    user: login.user,
                    password: login.password,
                });
                ServerAddress::sentinels(
                    addresses(hosts, 26379)?,
                    service,
                    login.unwrap_or_default(),
                )?
            }
            servers::TopologyKind::Cluster(hosts) => {
                let messages = servers.pubsub_mode.unwrap_or(PubSubMode::Auto);
                ServerAddress::cluster(addresses(hosts, 6379)?, servers.database, messages)?
            }
        };
        Ok(Self {
            way,
            db: servers.database,
            user: None,
            password: None,
            plain_locks: servers.plain_locks,
        })
    }
}

/// Adds the host to the error. We cut off the part before an `@`, which may be a password.
fn address(host: &str, port: u16, tls: bool) -> UrlResult<HostAddress> {
    let parsed = url::host(host).map_err(|UrlRefusal { why, .. }| {
        let name = host.rsplit('@').next().unwrap_or_default();
        format!("{name:?}: {why}")
    })?;
    Ok(HostAddress::tcp(&parsed, port, tls))
}

fn some_of(addresses: Vec<HostAddress>) -> UrlResult<Vec<HostAddress>> {
    if addresses.is_empty() {
        return Err("no host is named".into());
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;
    use crate::error::ErrorKind;

    #[test]
    fn a_topology_equals_its_url() {
        let watcher = Credentials::new("w", "x&y");
        let hosts = ["a", "b:7", "[::1]:9"];
        for (url, servers) in [
            ("redis://a", Topology::one("a")),
            (
                "rediss://[::1]:7/3",
                Topology::one("[::1]:7").tls(true).database(3),
            ),
            (
                "redis+unix:///run/r?db=1",
                Topology::socket("/run/r").database(1),
            ),
            (
                "redis+sentinel://a,b:7,[::1]:9/shop/2?sentinel_user=w&sentinel_password=x%26y",
                Topology::sentinels("shop", hosts)
                    .database(2)
                    .sentinel_credentials(watcher),
            ),
            (
                "rediss+cluster://a,b:7,[::1]:9?sharded_pubsub=both",
                Topology::cluster(hosts)
                    .tls(true)
                    .pubsub_mode(PubSubMode::Both),
            ),
            ("redis+cluster://a", Topology::cluster(["a"])),
        ] {
            let parsed = Address::parse(url).unwrap();
            assert_eq!(Address::of(&servers).unwrap(), parsed, "{url}");
        }
        let address: std::net::SocketAddr = "[::1]:7".parse().unwrap();
        let target = Address::of(&Topology::one(address.to_string())).unwrap();
        assert_eq!(target, Address::parse("redis://[::1]:7").unwrap());
    }

    #[test]
    fn an_invalid_option_is_refused() {
        let none: [&str; 0] = [];
        for (servers, why) in [
            (Topology::one(""), "host"),
            (Topology::one("redis://a"), "redis://a"),
            (Topology::one("user:secret@a"), "name or an address"),
            (Topology::one("a/3"), "name or an address"),
            (Topology::one("::1"), "::1"),
            (Topology::one("a:99999"), "a:99999"),
            (Topology::sentinels("shop", none), "no host"),
            (Topology::sentinels("", ["a"]), "service"),
            (Topology::cluster(none), "no host"),
            (Topology::cluster(["a"]).database(1), "database 0"),
            (Topology::cluster(["a", ""]), "host"),
            (Topology::one("a").pubsub_mode(PubSubMode::Off), "cluster"),
            (Topology::socket("/run/r").tls(true), "TLS"),
            (Topology::socket(""), "path"),
            (
                Topology::one("a").sentinel_credentials(Credentials::password("p")),
                "sentinels",
            ),
        ] {
            let error = Address::of(&servers).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{servers:?}");
            assert!(error.to_string().contains(why), "{servers:?}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
