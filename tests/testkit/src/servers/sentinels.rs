//! A primary and its replicas under three sentinels.

mod builder;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

pub use builder::SentinelsBuilder;

use super::member::logs;
use super::wait::until;
use super::{Certs, RedisServer};

const SENTINELS: usize = 3;

/// The limit for any operation here, except a failover whose limit the caller sets. Sentinels of Redis 6.2 need half a
/// minute to demote an old primary.
const PATIENCE: Duration = Duration::from_secs(40);

/// A primary, its replicas and three sentinels with a quorum of two. Drop ends all of them.
#[derive(Debug)]
pub struct Sentinels {
    // The first field: the sentinels must stop before the nodes, so that none of them sees the nodes fail.
    watch: Vec<RedisServer>,
    nodes: Vec<RedisServer>,
    certs: Option<Certs>,
    service: String,
    password: Option<String>,
    login: Option<(Option<String>, String)>,
    down_after: Duration,
    _dir: TempDir,
}

impl Sentinels {
    /// Starts a primary, two replicas and three sentinels.
    ///
    /// # Errors
    /// The same as [`SentinelsBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A builder for another topology.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// `redis+sentinel://127.0.0.1:P1,…/SERVICE`, `rediss+sentinel://…` with TLS, with the password of the data nodes
    /// as user information and the login of the sentinels as `sentinel_user` and `sentinel_password`.
    pub fn url(&self) -> String {
        let login = self.password.as_ref();
        self.url_with(&login.map_or_else(String::new, |password| format!(":{password}@")))
    }

    /// As [`url`](Self::url), with this user of an access list.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, login: &str) -> String {
        let tls = if self.certs.is_some() { "s" } else { "" };
        let query = match &self.login {
            Some((Some(user), password)) => {
                format!("?sentinel_user={user}&sentinel_password={password}")
            }
            Some((None, password)) => format!("?sentinel_password={password}"),
            None => String::new(),
        };
        let hosts = super::hosts(&self.watch);
        format!(
            "redis{tls}+sentinel://{login}{hosts}/{}{query}",
            self.service
        )
    }

    /// The service name of the primary.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The silence after which a sentinel considers a node dead.
    pub fn down_after(&self) -> Duration {
        self.down_after
    }

    /// Every data node. The first was the primary at the start.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.watch
    }

    /// Restarts a sentinel with its state. `RedisServer::restart` would lose its shortened check intervals.
    ///
    /// # Errors
    /// The same as [`RedisServer::restart`].
    pub fn restart_sentinel(&self, i: usize) -> Result<()> {
        self.watch[i].restart()?;
        builder::quicken(&self.watch[i])
    }

    /// The certificates of all servers, if they use TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// The data node at this address.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn node(&self, addr: SocketAddr) -> Result<&RedisServer> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|node| node.addr() == addr)
            .with_context(|| format!("no data node at {addr}"))
    }

    /// The primary, as the first running sentinel reports it.
    ///
    /// # Errors
    /// Fails when no sentinel runs, or it knows no primary.
    pub fn primary(&self) -> Result<&RedisServer> {
        let mut up = self.watching();
        self.primary_by(up.next().context("no sentinel is up")?)
    }

    /// The number of failovers that the sentinels have completed, by the sentinel that knows most of them.
    ///
    /// # Errors
    /// Fails when a sentinel does not answer.
    pub fn failovers(&self) -> Result<u64> {
        type Seen = std::collections::HashMap<String, String>;
        let mut most = 0;
        for sentinel in self.watching() {
            let primary: Seen = sentinel.query(&["SENTINEL", "MASTER", &self.service])?;
            most = most.max(primary["config-epoch"].parse()?);
        }
        Ok(most)
    }

    /// The data nodes that are not the primary, including those that do not run.
    ///
    /// # Errors
    /// The same as [`primary`](Self::primary).
    pub fn replicas(&self) -> Result<Vec<&RedisServer>> {
        let primary = self.primary()?.port();
        let others = self.nodes.iter().filter(|node| node.port() != primary);
        Ok(others.collect())
    }

    /// Runs a planned failover (`SENTINEL FAILOVER`). Returns the new primary once it is one and every sentinel reports
    /// it. The old primary continues as a second primary until the sentinels demote it, some seconds later.
    ///
    /// # Errors
    /// Fails when the sentinels refuse or it takes longer than 40 s.
    pub fn failover(&self) -> Result<&RedisServer> {
        let old = self.primary()?.addr();
        let mut up = self.watching();
        let sentinel = up.next().context("no sentinel is up")?;
        // A sentinel refuses while it still completes another failover, so we retry.
        until("a sentinel that takes the order", PATIENCE, || {
            sentinel.admin(&["SENTINEL", "FAILOVER", &self.service])
        })?;
        self.await_primary_other_than(old, PATIENCE)
    }

    /// Waits until another node than the one at `old` is primary, by its own report and by that of every running
    /// sentinel.
    ///
    /// # Errors
    /// Fails when that takes longer than `within`.
    pub fn await_primary_other_than(
        &self,
        old: SocketAddr,
        within: Duration,
    ) -> Result<&RedisServer> {
        until("another primary", within, || {
            let primary = self.agreed()?;
            ensure!(primary.addr() != old, "{old} is still the primary");
            ensure!(primary.is_up(), "{} is down", primary.addr());
            let says = primary.is_primary()?;
            ensure!(says, "{} does not know it yet", primary.addr());
            Ok(primary)
        })
        .with_context(|| self.logs())
    }

    /// Waits until everything that runs is as after the start: all sentinels agree on one primary, every other node is
    /// an in-sync replica of the primary, and the sentinels see all nodes and each other.
    ///
    /// # Errors
    /// Fails when that takes longer than 40 s.
    pub fn await_ok(&self) -> Result<()> {
        let done = until("sentinels and replicas that agree", PATIENCE, || {
            let primary = self.agreed()?;
            ensure!(primary.is_up(), "{} is down", primary.addr());
            super::check_followers(primary, &self.nodes)?;
            let mut up = self.watching();
            up.try_for_each(|sentinel| self.check_view(sentinel))
        });
        done.with_context(|| self.logs())
    }

    /// The last log lines of its nodes and sentinels.
    pub fn logs(&self) -> String {
        logs(self.nodes.iter().chain(&self.watch))
    }

    fn await_followers(&self, primary: &RedisServer) -> Result<()> {
        until("replicas in sync", PATIENCE, || {
            super::check_followers(primary, &self.nodes)
        })
    }

    fn watching(&self) -> impl Iterator<Item = &RedisServer> {
        self.watch.iter().filter(|sentinel| sentinel.is_up())
    }

    fn primary_by(&self, sentinel: &RedisServer) -> Result<&RedisServer> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service];
        let (host, port): (String, u16) = sentinel.query(&ask)?;
        self.node(SocketAddr::new(host.parse()?, port))
    }

    fn agreed(&self) -> Result<&RedisServer> {
        let mut agreed: Option<&RedisServer> = None;
        for sentinel in self.watching() {
            let named = self.primary_by(sentinel)?;
            match agreed {
                Some(other) if other.port() != named.port() => {
                    bail!("sentinels name {} and {}", other.addr(), named.addr())
                }
                _ => agreed = Some(named),
            }
        }
        agreed.context("no sentinel is up")
    }

    /// Fails unless this sentinel sees all running nodes and sentinels as healthy.
    fn check_view(&self, sentinel: &RedisServer) -> Result<()> {
        type Seen = std::collections::HashMap<String, String>;
        let up = |servers: &[RedisServer]| servers.iter().filter(|server| server.is_up()).count();
        let primary: Seen = sentinel.query(&["SENTINEL", "MASTER", &self.service])?;
        ensure!(primary["flags"] == "master", "{}", primary["flags"]);
        let replicas: Vec<Seen> = sentinel.query(&["SENTINEL", "REPLICAS", &self.service])?;
        let ready = replicas.iter().filter(|replica| {
            replica["flags"] == "slave"
                && replica["master-link-status"] == "ok"
                && replica["master-port"] == primary["port"]
        });
        let (ready, wanted) = (ready.count(), up(&self.nodes) - 1);
        ensure!(ready == wanted, "{ready} of {wanted} replicas are ready");
        let others: Vec<Seen> = sentinel.query(&["SENTINEL", "SENTINELS", &self.service])?;
        // A sentinel's opinion of a dead primary stays as a separate flag.
        let ready = others.iter().filter(|other| {
            let mut flags = other["flags"].split(',');
            !flags.any(|flag| matches!(flag, "s_down" | "disconnected"))
        });
        let (ready, wanted) = (ready.count(), up(&self.watch) - 1);
        ensure!(
            ready == wanted,
            "{ready} of {wanted} other sentinels are there"
        );
        Ok(())
    }
}
