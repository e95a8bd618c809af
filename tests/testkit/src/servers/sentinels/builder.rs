use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::member::{Part, spread, start_all};
use super::super::{Flavour, RedisBuilder, RedisServer, port};
use super::{SENTINELS, Sentinels};
use crate::hosts::Host;
use crate::scratch::scratch;

/// The settings of a primary under sentinels. Made by [`Sentinels::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct SentinelsBuilder {
    server: RedisBuilder,
    service: String,
    replicas: usize,
    down_after: Option<Duration>,
    failover_timeout: Duration,
    login: Option<(Option<String>, String)>,
    /// Of the data nodes, and of the sentinels. Empty: this machine.
    hosts: (Vec<Host>, Vec<Host>),
}

impl Default for SentinelsBuilder {
    fn default() -> Self {
        Self {
            server: RedisServer::builder(),
            service: "mymaster".to_owned(),
            replicas: 2,
            down_after: None,
            failover_timeout: Duration::from_secs(3),
            login: None,
            hosts: (Vec::new(), Vec::new()),
        }
    }
}

impl SentinelsBuilder {
    /// The settings of each data node: flavour, TLS, password or access list, more arguments. The sentinels use the
    /// same flavour and TLS.
    pub fn server(mut self, server: RedisBuilder) -> Self {
        self.server = server;
        self
    }

    /// The service name of the primary; the default is `mymaster`.
    pub fn service(mut self, name: &str) -> Self {
        name.clone_into(&mut self.service);
        self
    }

    /// Number of replicas; the default is 2.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// The silence after which a sentinel considers a node dead; the default is 1 s (Redis 6.2: 2 s).
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = Some(time);
        self
    }

    /// The limit of a failover; the default is 3 s.
    pub fn failover_timeout(mut self, time: Duration) -> Self {
        self.failover_timeout = time;
        self
    }

    /// Makes the sentinels require this password.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.login = Some((None, password.to_owned()));
        self
    }

    /// Makes the sentinels accept only this user.
    pub fn sentinel_user(mut self, user: &str, password: &str) -> Self {
        self.login = Some((Some(user.to_owned()), password.to_owned()));
        self
    }

    /// Puts each data node, the primary first, and each sentinel on a host of its own.
    pub fn hosts(mut self, nodes: &[Host], sentinels: &[Host]) -> Self {
        self.hosts = (nodes.to_vec(), sentinels.to_vec());
        self
    }

    /// Starts everything, and waits until every replica is in sync and every sentinel knows all the others.
    ///
    /// # Errors
    /// Fails when a server does not start or the servers do not find each other; the error contains their output.
    pub fn start(self) -> Result<Sentinels> {
        let flavour = self.server.which()?;
        let dir = scratch()?;
        let certs = self.server.make_certs(dir.path())?;
        let mut data = self.server.clone().member(Part::Data, certs.as_ref());
        // The node itself rewrites this file after each change of its role.
        data.membership.conf = Some(String::new());
        let nodes = start_all(spread(&data, self.replicas + 1, &self.hosts.0)?)?;
        let mut all = Sentinels {
            watch: Vec::new(),
            nodes,
            certs,
            service: self.service.clone(),
            password: self.server.open_password().map(str::to_owned),
            login: self.login.clone(),
            down_after: self.patience(flavour),
            _dir: dir,
        };
        self.join(&mut all).with_context(|| all.logs())?;
        Ok(all)
    }

    /// Redis 6.2 checks a node only once a second, or at the interval of this limit. With 1 s it considers healthy
    /// nodes dead.
    fn patience(&self, flavour: Flavour) -> Duration {
        let usual = if flavour == Flavour::Redis62 { 2 } else { 1 };
        self.down_after.unwrap_or(Duration::from_secs(usual))
    }

    fn join(&self, all: &mut Sentinels) -> Result<()> {
        let primary = &all.nodes[0];
        for replica in &all.nodes[1..] {
            let (host, port) = (primary.addr().ip().to_string(), primary.port().to_string());
            replica.admin(&["REPLICAOF", &host, &port])?;
            replica.admin(&["CONFIG", "REWRITE"])?;
        }
        // We wait for replication before we start the sentinels. Otherwise a sentinel would see a link that is not up
        // yet as down, for 10 s.
        all.await_followers(primary)?;
        let bare = spread(&self.server.bare(), SENTINELS, &self.hosts.1)?;
        let places = bare
            .iter()
            .map(|builder| Ok(SocketAddr::new(builder.addr(), port::free()?)))
            .collect::<Result<Vec<_>>>()?;
        let builders = bare.into_iter().zip(&places).map(|(builder, &place)| {
            let others = places.iter().copied().filter(|&other| other != place);
            self.sentinel(builder, place.port(), others, all)
        });
        all.watch = start_all(builders.collect())?;
        all.watch.iter().try_for_each(quicken)?;
        all.await_ok()
    }

    /// A sentinel that knows all the others from its start. Otherwise they need seconds to find each other.
    fn sentinel(
        &self,
        mut builder: RedisBuilder,
        port: u16,
        others: impl Iterator<Item = SocketAddr>,
        all: &Sentinels,
    ) -> RedisBuilder {
        match &self.login {
            Some((Some(user), password)) => {
                builder = builder.acl(&format!(
                    "user default off\nuser {user} on >{password} ~* &* +@all"
                ));
            }
            Some((None, password)) => builder = builder.password(password),
            None => {}
        }
        let text = self.conf(port, others, all, &builder);
        let mut builder = builder.member(Part::Sentinel, all.certs.as_ref());
        builder.membership.fixed_port = Some(port);
        builder.membership.conf = Some(text);
        builder
    }

    fn conf(
        &self,
        port: u16,
        others: impl Iterator<Item = SocketAddr>,
        all: &Sentinels,
        own: &RedisBuilder,
    ) -> String {
        let (service, primary) = (&self.service, all.nodes[0].addr());
        let mut lines = vec![
            format!("myid {}", id(port)),
            format!("monitor {service} {} {} 2", primary.ip(), primary.port()),
            format!(
                "down-after-milliseconds {service} {}",
                all.down_after.as_millis()
            ),
            format!(
                "failover-timeout {service} {}",
                self.failover_timeout.as_millis()
            ),
            format!("parallel-syncs {service} 1"),
        ];
        for replica in &all.nodes[1..] {
            let (host, port) = (replica.addr().ip(), replica.port());
            lines.push(format!("known-replica {service} {host} {port}"));
        }
        for other in others {
            lines.push(format!(
                "known-sentinel {service} {} {} {}",
                other.ip(),
                other.port(),
                id(other.port())
            ));
        }
        if let Some((user, password)) = self.server.login() {
            lines.extend(user.map(|user| format!("auth-user {service} {user}")));
            lines.push(format!("auth-pass {service} {password}"));
        }
        if let Some((user, password)) = own.login() {
            lines.extend(user.map(|user| format!("sentinel-user {user}")));
            lines.push(format!("sentinel-pass {password}"));
        }
        lines.iter().fold(String::new(), |mut text, line| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "sentinel {line}");
            text
        })
    }
}

/// Makes a sentinel check more often than in production. Otherwise the interval between two checks is as long as the
/// limit of 1 s, so the sentinel considers healthy nodes dead; and it demotes a returning old primary only after 8 s.
pub(super) fn quicken(sentinel: &RedisServer) -> Result<()> {
    if sentinel.flavour() == Flavour::Redis62 {
        return Ok(()); // Redis 6.2 has no command for it.
    }
    for (what, ms) in [("PING", "200"), ("INFO", "500"), ("PUBLISH", "250")] {
        sentinel.admin(&["SENTINEL", "DEBUG", &format!("{what}-PERIOD"), ms])?;
    }
    Ok(())
}

/// The id of a sentinel: any 40 hexadecimal digits that are unique.
fn id(port: u16) -> String {
    format!("{port:040x}")
}
