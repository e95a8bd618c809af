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

/// How long anything here may take that is not a failover of somebody's choosing.
/// Sentinels of Redis 6.2 need half a minute to tell an old primary its new place.
const PATIENCE: Duration = Duration::from_secs(40);

/// One primary, its replicas and three sentinels, two of which must agree. All of it goes with this value.
#[derive(Debug)]
pub struct Sentinels {
    // First, so that none of them sees the nodes go.
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
    /// A primary, two replicas, three sentinels.
    ///
    /// # Errors
    /// As [`SentinelsBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Something other than that.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// `redis+sentinel://127.0.0.1:P1,…/SERVICE`, `rediss+sentinel://…` with TLS, with the password of the data nodes
    /// as user information and what the sentinels ask for as `sentinel_user` and `sentinel_password`.
    pub fn url(&self) -> String {
        let login = self.password.as_ref();
        self.url_with(&login.map_or_else(String::new, |password| format!(":{password}@")))
    }

    /// As [`url`](Self::url), as this user of an access list.
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

    /// The name under which the sentinels watch the primary.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// How long a node is silent before a sentinel takes it for dead.
    pub fn down_after(&self) -> Duration {
        self.down_after
    }

    /// Every data node; the first was the primary at the start.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.watch
    }

    /// Starts a sentinel again, with all that it knew; `RedisServer::restart` would forget how often it looks around.
    ///
    /// # Errors
    /// As [`RedisServer::restart`].
    pub fn restart_sentinel(&self, i: usize) -> Result<()> {
        self.watch[i].restart()?;
        builder::quicken(&self.watch[i])
    }

    /// The certificates of all of them, if they speak TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// The data node at this address.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, addr: SocketAddr) -> Result<&RedisServer> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|node| node.addr() == addr)
            .with_context(|| format!("no data node at {addr}"))
    }

    /// The primary, by the word of the first sentinel that is up.
    ///
    /// # Errors
    /// When none is, or it knows of none.
    pub fn primary(&self) -> Result<&RedisServer> {
        let mut up = self.watching();
        self.primary_by(up.next().context("no sentinel is up")?)
    }

    /// The data nodes that are not the primary, also those that do not run.
    ///
    /// # Errors
    /// As [`primary`](Self::primary).
    pub fn replicas(&self) -> Result<Vec<&RedisServer>> {
        let primary = self.primary()?.port();
        let others = self.nodes.iter().filter(|node| node.port() != primary);
        Ok(others.collect())
    }

    /// A planned failover (`SENTINEL FAILOVER`). Returns the new primary once it is one and every sentinel says so. The
    /// old one goes on as a second primary until the sentinels have told it, which takes them some seconds.
    ///
    /// # Errors
    /// When the sentinels refuse or it takes longer than 40 s.
    pub fn failover(&self) -> Result<&RedisServer> {
        let old = self.primary()?.addr();
        let mut up = self.watching();
        let sentinel = up.next().context("no sentinel is up")?;
        // Refused while another failover is being finished.
        until("a sentinel that takes the order", PATIENCE, || {
            sentinel.admin(&["SENTINEL", "FAILOVER", &self.service])
        })?;
        self.await_primary_other_than(old, PATIENCE)
    }

    /// Waits until another node than the one at `old` is primary, says so itself, and is named by every sentinel that
    /// is up.
    ///
    /// # Errors
    /// When there is none `within` that time.
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

    /// Waits until everything that is up is as it was after the start: one primary that all sentinels agree on, every
    /// other node an in-sync replica of it, and the sentinels see all of that and each other.
    ///
    /// # Errors
    /// When that takes longer than 40 s.
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

    /// What its nodes and sentinels said last.
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

    /// An error unless this sentinel sees the running nodes and sentinels, healthy.
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
        // What one of them said of a dead primary stays as a flag of its own.
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
